package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// sleep is a set of reasons why nobody takes the items of a thread's inbox.
type sleep int64

const (
	asleepParked   sleep = 1 << iota // by a user's stop (MSG-08)
	asleepRetained                   // without an object (THR-09)
)

// life is the part of a head that rarely changes. Its changes are written at once, not together with the counters.
type life struct {
	asleep     sleep
	woken      bool // by this transaction
	cleared    bool // by this transaction
	idleExpiry int64
	expiresAt  sql.NullInt64
}

// takes returns an error when the thread does not take an operation: a retained thread takes only those about its
// object.
func (h *head) takes(op store.Op) error {
	if h.life.asleep&asleepRetained == 0 {
		return nil
	}
	switch op := op.(type) {
	case *store.Retain, *store.Adopt, *store.Condemn:
		return nil
	case *store.Enqueue:
		if op.IgnoreTerminated || (op.To != "" && op.To != h.id) {
			return nil // the receiver decides
		}
	}
	return fmt.Errorf("thread %s: %w", h.id, store.ErrRetained)
}

// applyLife applies the operations of ops_life.go. known is false for others.
func (t *tx) applyLife(h *head, op store.Op) (known bool, err error) {
	switch op := op.(type) {
	case *store.Destroy:
		return true, t.destroy(h, op)
	case *store.SetIdleExpiry:
		return true, t.setIdleExpiry(h, op.Expiry)
	case *store.Park:
		return true, t.park(h, op)
	case *store.Continue:
		return true, t.resume(h, op)
	case *store.Revoke:
		return true, t.revoke(h)
	case *store.Retain:
		return true, t.retain(h)
	case *store.Adopt:
		return true, t.adopt(h, op)
	case *store.Condemn:
		return true, t.markPurged(h)
	}
	return false, nil
}

// park keeps inbox items from being taken, unless a waiting item prevents it.
func (t *tx) park(h *head, op *store.Park) error {
	wanted := false
	if op.Unless != nil {
		err := t.rows(t.ctx, qInbox, []any{h.key}, func(scan scanner) error {
			item, err := scanInbox(scan)
			wanted = wanted || err == nil && op.Unless(*item)
			return err
		})
		if err != nil {
			return err
		}
	}
	if wanted {
		return nil
	}
	return t.suspend(h, asleepParked)
}

// suspend adds a reason to keep inbox items from being taken.
func (t *tx) suspend(h *head, why sleep) error {
	if h.life.asleep&why != 0 {
		return nil
	}
	h.life.asleep |= why
	h.touch(store.ChangedThread)
	_, err := t.exec(t.ctx, qSetAsleep, int64(h.life.asleep), h.key)
	return err
}

// wake removes a reason. Items are taken again when it was the last one.
func (t *tx) wake(h *head, why sleep) error {
	if h.life.asleep&why == 0 {
		return nil
	}
	h.life.asleep &^= why
	h.life.woken = true
	h.touch(store.ChangedThread)
	if h.waiting > 0 {
		h.touch(store.ChangedInbox)
	}
	_, err := t.exec(t.ctx, qSetAsleep, int64(h.life.asleep), h.key)
	return err
}

func (t *tx) resume(h *head, op *store.Continue) error {
	if h.terminatedAt != 0 {
		return fmt.Errorf("thread %s: %w", h.id, store.ErrTerminated)
	}
	op.Was = h.life.asleep&asleepParked != 0
	if !op.Was {
		return nil
	}
	if _, err := t.log(h, store.Event{Type: store.EventContinued}); err != nil {
		return err
	}
	return t.wake(h, asleepParked)
}

// shutOut revokes the lease and ends the newest run, so that nothing more of the run is accepted.
func (t *tx) shutOut(h *head, reason string) error {
	if err := t.revoke(h); err != nil {
		return err
	}
	r, err := runOf(h.id)(t.one(t.ctx, qNewestRun, h.key))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil || r.Status.Ended() {
		return err
	}
	r.Status, r.Reason, r.State = store.RunStopped, reason, nil
	return t.putRun(h, &store.PutRun{Run: *r})
}

// reasonDestroyed and reasonObjectDeleted are values of Run.Reason.
const (
	reasonDestroyed     = "Destroyed"
	reasonObjectDeleted = "ThreadDeleted"
)

func (t *tx) destroy(h *head, op *store.Destroy) error {
	op.Done = false
	if op.IfExpired {
		expired, err := t.expired(h)
		if err != nil || !expired {
			return err
		}
	}
	op.Done = true
	if !op.Within {
		if err := t.shutOut(h, reasonDestroyed); err != nil {
			return err
		}
	}
	messages := h.counts.total(true, 0, true)
	if err := t.clearConversation(h, op.Within); err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"reason": op.Reason, "messages": messages})
	if err != nil {
		return err
	}
	if _, err := t.log(h, store.Event{Type: store.EventDestroyed, Data: data}); err != nil {
		return err
	}
	h.touch(store.ChangedThread)
	h.life.cleared = true
	if err := t.feed(h, store.LifecycleThreadDestroyed, "", "", op.Reason); err != nil {
		return err
	}
	if _, err := t.exec(t.ctx, qDestroyed, t.now, op.Reason, h.key); err != nil {
		return err
	}
	return t.setExpiresAt(h, sql.NullInt64{}) // until something happens there is nothing to expire
}

// clearConversation removes everything that makes up a conversation. Anything that becomes part of one must be removed
// here too. The log keeps what happened, without the contents. When a run continues (within), the inbox stays for the
// next run.
func (t *tx) clearConversation(h *head, within bool) error {
	if err := t.cutMessages(h, 0, nil); err != nil {
		return err
	}
	if err := t.clearState(h); err != nil {
		return err
	}
	if !within {
		if err := t.emptyInbox(h); err != nil {
			return err
		}
	}
	// The instructions of the skills are gone with the messages.
	forget := &store.UpdateThread{EditFields: func(f *store.Fields) error { f.ActivatedSkills = nil; return nil }}
	if err := t.updateThread(h, forget); err != nil {
		return err
	}
	return t.wake(h, asleepParked)
}

// retain keeps a thread whose object is deleted. A parked thread stays parked.
func (t *tx) retain(h *head) error {
	if h.life.asleep&asleepRetained != 0 {
		return nil
	}
	if err := t.shutOut(h, reasonObjectDeleted); err != nil {
		return err
	}
	if _, err := t.log(h, store.Event{Type: store.EventRetained}); err != nil {
		return err
	}
	if _, err := t.exec(t.ctx, qDropFirings, h.id); err != nil {
		return err
	}
	if _, err := t.exec(t.ctx, qSetRetained, t.now, h.key); err != nil {
		return err
	}
	return t.suspend(h, asleepRetained)
}

// purgedOwner is the owner UID of a thread that is being purged.
const purgedOwner = "purged"

func (t *tx) adopt(h *head, op *store.Adopt) error {
	var id, owner, title string
	var retained int64
	if err := t.row(t.ctx, qOwner, []any{h.key}, &id, &owner, &retained, &title); err != nil {
		return err
	}
	switch {
	case retained == 0 && owner == op.ObjectUID:
		return nil
	case retained == 0, owner == purgedOwner:
		return fmt.Errorf("thread %s: %w", h.id, store.ErrNotRetained)
	}
	if op.Title != "" {
		title = op.Title
	}
	if _, err := t.exec(t.ctx, qAdopt, op.ObjectUID, op.Name, op.Agent, op.Agent, title, h.key); err != nil {
		return err
	}
	if _, err := t.log(h, store.Event{Type: store.EventAdopted}); err != nil {
		return err
	}
	return t.wake(h, asleepRetained)
}

func (t *tx) markPurged(h *head) error {
	if h.life.asleep&asleepRetained == 0 {
		return fmt.Errorf("thread %s: %w", h.id, store.ErrNotRetained)
	}
	_, err := t.exec(t.ctx, qMarkPurged, purgedOwner, h.key)
	return err
}

// Retained implements store.Store.
func (s *Store) Retained(ctx context.Context, namespace, after string, limit int) ([]store.Thread, error) {
	return s.listThreads(ctx, qRetainedThreads, namespace, after, pageSize(limit))
}
