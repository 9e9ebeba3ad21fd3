package threads

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
	"github.com/skein-dev/skein/internal/store/sqlstore/values"
)

// Park keeps inbox items from being taken, unless a waiting item prevents it.
func Park(t *txn.Tx, h *txn.Head, op *store.Park) error {
	wanted, err := waitsFor(t, h, op.Unless)
	if wanted || err != nil {
		return err
	}
	return t.Suspend(h, txn.AsleepParked)
}

// waitsFor reports whether an item for which is returns true waits in the inbox. Without is there is none.
func waitsFor(t *txn.Tx, h *txn.Head, is func(store.InboxItem) bool) (found bool, err error) {
	if is == nil {
		return false, nil
	}
	err = t.Rows(t.Ctx, queries.Inbox, []any{h.Key}, func(scan sqldb.Scanner) error {
		item, err := inbox.Scan(scan)
		found = found || err == nil && is(*item)
		return err
	})
	return found, err
}

// Continue ends that a thread is parked.
func Continue(t *txn.Tx, h *txn.Head, op *store.Continue) error {
	if h.TerminatedAt != 0 {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrTerminated)
	}
	op.Was = h.Life.Asleep&txn.AsleepParked != 0
	if !op.Was {
		return nil
	}
	if _, err := t.Log(h, store.Event{Type: store.EventContinued}); err != nil {
		return err
	}
	return t.Wake(h, txn.AsleepParked)
}

// shutOut revokes the lease and ends the newest run, so that nothing more of the run is accepted.
func shutOut(t *txn.Tx, h *txn.Head, reason string) error {
	if err := t.Revoke(h); err != nil {
		return err
	}
	r, err := runs.ScanOf(h.ID)(t.One(t.Ctx, queries.NewestRun, h.Key))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || r.Status.Ended() {
		return err
	}
	r.Status, r.Reason, r.State = store.RunStopped, reason, nil
	return runs.Put(t, h, &store.PutRun{Run: *r})
}

// Destroy removes the conversation of a thread.
func Destroy(t *txn.Tx, h *txn.Head, op *store.Destroy) error {
	op.Done = false
	if err := h.Whole(); err != nil {
		return err
	}
	if op.IfExpired {
		expired, err := hasExpired(t, h)
		if err != nil || !expired {
			return err
		}
	}
	op.Done = true
	if !op.Within {
		if err := shutOut(t, h, store.ReasonDestroyed); err != nil {
			return err
		}
	}
	messages := h.Counts.Total(true, 0, true)
	if err := clearConversation(t, h, op.Within); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"reason": op.Reason, "messages": messages})
	if err != nil {
		return err
	}
	if _, err := t.Log(h, store.Event{Type: store.EventDestroyed, Data: data}); err != nil {
		return err
	}
	h.Touch(store.ChangedThread)
	h.Life.Cleared = true
	if err := runs.Feed(t, h, store.LifecycleThreadDestroyed, "", "", op.Reason); err != nil {
		return err
	}
	if _, err := t.Exec(t.Ctx, queries.Destroyed, t.Now, op.Reason, h.Key); err != nil {
		return err
	}
	return t.SetExpiresAt(h, sql.NullInt64{}) // until something happens there is nothing to expire
}

// clearConversation removes everything that makes up a conversation. Anything that becomes part of one must be removed
// here too. The log keeps what happened, without the contents. When a run continues (within), the inbox stays for the
// next run.
func clearConversation(t *txn.Tx, h *txn.Head, within bool) error {
	if err := messages.Remove(t, h, 0, nil, -1, true); err != nil {
		return err
	}
	if err := values.ClearState(t, h); err != nil {
		return err
	}
	if !within {
		if err := inbox.Empty(t, h); err != nil {
			return err
		}
	}
	// The instructions of the skills are gone with the messages.
	forget := &store.UpdateThread{EditFields: func(f *store.Fields) error { f.ActivatedSkills = nil; return nil }}
	if err := Update(t, h, forget); err != nil {
		return err
	}
	return t.Wake(h, txn.AsleepParked)
}

// Retain keeps a thread whose object is deleted. A parked thread stays parked.
func Retain(t *txn.Tx, h *txn.Head, op *store.Retain) error {
	if op.Of != "" {
		owner, _, err := ownerOf(t, h)
		if err != nil {
			return err
		}
		if owner != op.Of {
			return fmt.Errorf("thread %s: %w", h.ID, store.ErrNotRetained)
		}
	}
	if h.Life.Asleep&txn.AsleepRetained != 0 {
		return nil
	}
	if err := shutOut(t, h, store.ReasonThreadDeleted); err != nil {
		return err
	}
	if _, err := t.Log(h, store.Event{Type: store.EventRetained}); err != nil {
		return err
	}
	if _, err := t.Exec(t.Ctx, queries.DropFirings, h.ID); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.ChildEnded, h.Key); err != nil {
		return err
	}
	if _, err := t.Exec(t.Ctx, queries.SetRetained, t.Now, op.NamespaceUID, h.Key); err != nil {
		return err
	}
	h.Life.Asleep &^= txn.AsleepDeleting
	return t.Suspend(h, txn.AsleepRetained)
}

// purgedOwner is the owner UID of a thread that is being purged.
const purgedOwner = "purged"

// Adopt gives a retained thread an object.
func Adopt(t *txn.Tx, h *txn.Head, op *store.Adopt) error {
	var id, owner, within, title, restored string
	var retained int64
	if err := t.Row(t.Ctx, queries.Owner, []any{h.Key}, &id, &owner, &within, &retained, &title, &restored); err != nil {
		return err
	}
	switch {
	case retained == 0 && owner == op.ObjectUID:
		return nil
	case retained == 0, owner == purgedOwner, within != "" && op.NamespaceUID != "" && within != op.NamespaceUID:
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrNotRetained)
	}
	if err := CheckObject(t, op.ObjectUID); err != nil {
		return err
	}
	if keepsParent(restored) {
		return adoptRestored(t, h, op, within)
	}
	if op.Title != "" {
		title = op.Title
	}
	if err := t.Write(t.Ctx, queries.RerootUsage, h.ID, h.Key); err != nil {
		return err
	}
	if _, err := t.Exec(t.Ctx, queries.Adopt, op.ObjectUID, cmp.Or(op.NamespaceUID, within), op.Name, op.Agent, op.Agent, title, h.Key); err != nil {
		return err
	}
	h.ParentID = ""
	if _, err := t.Log(h, store.Event{Type: store.EventAdopted}); err != nil {
		return err
	}
	return t.Wake(h, txn.AsleepRetained)
}

// AdoptBelow implements store.Store. It writes a page at a time, because a tree may be large.
func (s Store) AdoptBelow(ctx context.Context, id string, limit int) (moved int, err error) {
	type below struct{ key, depth int64 }
	var page []below
	err = s.DB.Readers.Interruptible().Snapshot(ctx, func(c *sqldb.Conn) error {
		page = nil
		var restored string
		if err := c.Row(ctx, queries.Restored, []any{id}, &restored); err != nil || keepsParent(restored) {
			return store.IgnoreNotFound(err)
		}
		return c.Rows(ctx, queries.ElsewhereBelow, []any{id, id, sqldb.PageSize(limit)}, func(scan sqldb.Scanner) error {
			var b below
			err := scan(&b.key, &b.depth)
			page = append(page, b)
			return err
		})
	})
	if err == nil && len(page) > 0 {
		err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
			for _, b := range page {
				if err := t.Write(t.Ctx, queries.Reroot, id, b.depth, b.key); err != nil {
					return err
				}
				if err := t.Write(t.Ctx, queries.RerootUsage, id, b.key); err != nil {
					return err
				}
			}
			return nil
		}, id)
	}
	if err != nil {
		return 0, fmt.Errorf("move what is below thread %s: %w", id, err)
	}
	return len(page), nil
}

// keepsParent reports whether a retained thread is adopted as the child that it was, because it came from a backup. restored is its column of
// that name, which is empty for other threads.
func keepsParent(restored string) bool {
	return restored != "" && !strings.HasPrefix(restored, queries.RestoredKept)
}

// adoptRestored gives a thread of a backup its new object. It is what it was: the child of its parent, with the agent that it had, and
// in the middle of its run. Its idle expiry counts from now.
func adoptRestored(t *txn.Tx, h *txn.Head, op *store.Adopt, within string) error {
	if _, err := t.Exec(t.Ctx, queries.AdoptRestored, op.ObjectUID, cmp.Or(op.NamespaceUID, within), op.Name, h.Key); err != nil {
		return err
	}
	if h.Life.IdleExpiry > 0 && h.Life.ExpiresAt.Valid {
		if err := t.SetExpiresAt(h, sql.NullInt64{Int64: t.Now + h.Life.IdleExpiry, Valid: true}); err != nil {
			return err
		}
	}
	if _, err := t.Log(h, store.Event{Type: store.EventAdopted}); err != nil {
		return err
	}
	return t.Wake(h, txn.AsleepRetained)
}

// Orphan implements store.BackupStore.
func (s Store) Orphan(ctx context.Context, threadID, uid string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		h, err := t.Head(threadID)
		if err != nil {
			return err
		}
		owner, retained, err := ownerOf(t, h)
		if err != nil {
			return err
		}
		if retained || owner != uid {
			return fmt.Errorf("thread %s: %w", threadID, store.ErrNotRetained)
		}
		return Retain(t, h, &store.Retain{})
	}, threadID)
}

// ownerOf returns the UID of the object that a thread belongs to, or last belonged to.
func ownerOf(t *txn.Tx, h *txn.Head) (uid string, retained bool, err error) {
	var id, owner string
	var at int64
	err = t.Row(t.Ctx, queries.OrphanOwner, []any{h.Key}, &id, &owner, &at)
	return cmp.Or(owner, id), at != 0, err
}

// MarkPurged keeps a retained thread from being adopted while it is purged.
func MarkPurged(t *txn.Tx, h *txn.Head) error {
	if h.Life.Asleep&txn.AsleepRetained == 0 {
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrNotRetained)
	}
	_, err := t.Exec(t.Ctx, queries.MarkPurged, purgedOwner, h.Key)
	return err
}

// RetainedBefore implements store.Store.
func (s Store) RetainedBefore(ctx context.Context, before int64, limit int) ([]store.Thread, error) {
	return s.listThreads(ctx, queries.RetainedBefore, before, purgedOwner, sqldb.PageSize(limit))
}

// Undeclared implements store.Store.
func (s Store) Undeclared(ctx context.Context, after string, limit int) ([]store.Thread, error) {
	return s.listThreads(ctx, queries.UndeclaredThreads, after, sqldb.PageSize(limit))
}

// Owned implements store.Store.
func (s Store) Owned(ctx context.Context, namespace, after string, limit int) ([]store.ThreadOwner, error) {
	return sqldb.ReadList(ctx, s.DB.Readers.Interruptible(), func(scan sqldb.Scanner) (*store.ThreadOwner, error) {
		var o store.ThreadOwner
		err := scan(&o.ThreadID, &o.Name, &o.UID)
		o.UID = cmp.Or(o.UID, o.ThreadID)
		return &o, err
	}, queries.OwnedThreads, namespace, after, sqldb.PageSize(limit))
}

// Retained implements store.Store.
func (s Store) Retained(ctx context.Context, namespace, after string, limit int, most int64) (threads []store.Thread, more bool, err error) {
	limit = sqldb.PageSize(limit)
	return s.page(ctx, s.DB.Readers, limit, most, queries.RetainedThreads, namespace, after, limit+1)
}
