package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/env"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/threads"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// registryTerminated equals ChildTerminated of package tool. It is what the registry of the parent shows of the child.
const registryTerminated = "terminated"

// CreateThread implements store.Store. A child of a terminated parent is created terminated, with an empty inbox. So
// the child never runs, whichever of its creation and the parent's termination came first (SUB-08). A child of a parent that is being deleted
// is not created: it would lose its first message, and it may be left to itself, or the parent's data may be saved.
func (s *Store) CreateThread(ctx context.Context, n store.Thread, ops ...store.Op) (stored *store.Thread, created bool, err error) {
	if n.ID == "" {
		return nil, false, errors.New("a thread needs an id")
	}
	err = s.whole(ctx, func() error {
		return s.db.Writer.Do(ctx, func(t *txn.Tx) error {
			stored, created = nil, false
			if stored, err = threads.Scan(t.One(t.Ctx, queries.Thread, n.ID)); !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if err := createThread(t, n, ops); err != nil {
				return err
			}
			created = true
			return nil
		}, n.ID, n.ParentID)
	})
	if err != nil {
		return nil, false, err
	}
	if created {
		stored, err = s.Thread(ctx, n.ID)
	}
	return stored, created, err
}

func createThread(t *txn.Tx, n store.Thread, ops []store.Op) error {
	if n.CreatedAt == 0 {
		n.CreatedAt = t.Now
	}
	if err := threads.CheckObject(t, n.ID); err != nil {
		return err
	}
	n.TerminatedAt, n.TerminatedReason = 0, ""
	if err := lineage(t, &n); err != nil {
		return err
	}
	fields, err := threads.FieldsText(&n.Fields)
	if err != nil {
		return err
	}
	var child any
	if n.Child != nil {
		data, err := json.Marshal(n.Child)
		if err != nil {
			return err
		}
		child = string(data)
	}
	second := t.Now / time.Second.Microseconds()
	h := &txn.Head{ID: n.ID, Namespace: n.Namespace, TerminatedAt: n.TerminatedAt, ParentID: n.ParentID, Fresh: true, Second: second, SecondBefore: second, Run: txn.LastRun{Known: true}}
	if err := t.Row(t.Ctx, queries.InsertThread, []any{n.ID, n.Namespace, n.Name, n.Agent, n.Agent, n.Agent, n.UserID, n.TaskID, n.Title,
		sqldb.NullJSON(n.Arguments), n.CreatedAt, n.ParentID, n.Reference, n.RootID, n.Depth, child, n.TerminatedAt,
		n.TerminatedReason, n.RegistryStatus, env.JoinNames(n.ScopedEnv), n.EnvRoot, fields, n.NamespaceUID}, &h.Key); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.InsertHead, h.Key, h.Namespace, t.Now, second); err != nil {
		return err
	}
	quotas.Threads(t, h.Namespace)
	t.Heads = append(t.Heads, h)
	h.Touch(store.ChangedAtWork)
	if err := runs.Feed(t, h, store.LifecycleThreadCreated, "", "", ""); err != nil {
		return err
	}
	if n.ParentID != "" {
		if _, err := t.Exec(t.Ctx, queries.InheritEnv, h.Key); err != nil {
			return err
		}
		if err := runs.AddEmptyUsage(t, h, n.Agent); err != nil {
			return err
		}
	}
	if err := threads.CountChild(t, &n); err != nil {
		return err
	}
	if err := threads.SetIdleExpiry(t, h, n.IdleExpiry); err != nil {
		return err
	}
	if n.TerminatedAt != 0 {
		h.Touch(store.ChangedThread)
		if err := threads.LogTerminated(t, h, n.TerminatedReason); err != nil {
			return err
		}
	}
	for _, op := range ops {
		if e, ok := op.(*store.Enqueue); ok && n.TerminatedAt != 0 && e.To == "" {
			continue
		}
		if err := apply(t, h, op); err != nil {
			return err
		}
	}
	return nil
}

// lineage fills in what a child takes from its parent.
func lineage(t *txn.Tx, n *store.Thread) error {
	if n.ParentID == "" {
		n.RootID, n.EnvRoot, n.Depth = n.ID, "", 0
		return nil
	}
	parent, err := t.HeadIn(n.Namespace, n.ParentID) // locks the parent's head, so that it is not terminated meanwhile
	if err != nil {
		return fmt.Errorf("parent of thread %s: %w", n.ID, err)
	}
	var root, reason string
	var depth int
	if err := t.Row(t.Ctx, queries.Lineage, []any{n.ParentID}, &root, &depth, &reason, &n.EnvRoot); err != nil {
		return fmt.Errorf("parent thread %s: %w", n.ParentID, err)
	}
	n.RootID, n.Depth = root, depth+1
	terminated := parent.TerminatedAt != 0
	if terminated && reason == store.ReasonPurged || !terminated && parent.Deleting() {
		return fmt.Errorf("parent of thread %s: %w", n.ID, store.ErrObjectDeleted)
	}
	if terminated {
		n.TerminatedAt, n.TerminatedReason = t.Now, store.ReasonParentTerminated
		if n.Child != nil {
			n.RegistryStatus = registryTerminated
		}
	}
	return nil
}
