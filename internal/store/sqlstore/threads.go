package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// reasonParentTerminated equals ReasonParentTerminated of api/v1alpha1.
const reasonParentTerminated = "ParentTerminated"

// CreateThread implements store.Store. A child of a terminated parent is created terminated, with an empty inbox. So
// the child never runs, whichever of its creation and the parent's termination came first (SUB-08).
func (s *Store) CreateThread(ctx context.Context, n store.Thread, ops ...store.Op) (stored *store.Thread, created bool, err error) {
	if n.ID == "" {
		return nil, false, errors.New("a thread needs an id")
	}
	err = s.writer.do(ctx, func(t *tx) error {
		stored, created = nil, false
		if stored, err = scanThread(t.one(t.ctx, qThread, n.ID)); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err := t.createThread(n, ops); err != nil {
			return err
		}
		created = true
		return nil
	}, n.ID, n.ParentID)
	if err != nil {
		return nil, false, err
	}
	if created {
		stored, err = s.Thread(ctx, n.ID)
	}
	return stored, created, err
}

func (t *tx) createThread(n store.Thread, ops []store.Op) error {
	if n.CreatedAt == 0 {
		n.CreatedAt = t.now
	}
	n.TerminatedAt, n.TerminatedReason = 0, ""
	if err := t.lineage(&n); err != nil {
		return err
	}
	fields, err := fieldsText(&n.Fields)
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
	second := t.now / time.Second.Microseconds()
	h := &head{id: n.ID, namespace: n.Namespace, terminatedAt: n.TerminatedAt, fresh: true, second: second, secondBefore: second, run: lastRun{known: true}}
	if err := t.row(t.ctx, qInsertThread, []any{n.ID, n.Namespace, n.Name, n.Agent, n.Agent, n.Agent, n.UserID, n.TaskID, n.Title,
		nullJSON(n.Arguments), n.CreatedAt, n.ParentID, n.Reference, n.RootID, n.Depth, child, n.TerminatedAt,
		n.TerminatedReason, n.RegistryStatus, joinNames(n.ScopedEnv), fields}, &h.key); err != nil {
		return err
	}
	if err := t.write(t.ctx, qInsertHead, h.key, h.namespace, t.now, second); err != nil {
		return err
	}
	t.heads = append(t.heads, h)
	h.touch(store.ChangedThread)
	if err := t.feed(h, store.LifecycleThreadCreated, "", "", ""); err != nil {
		return err
	}
	if n.ParentID != "" {
		if _, err := t.exec(t.ctx, qInheritEnv, h.key); err != nil {
			return err
		}
		if err := t.joinTree(h, n.Agent); err != nil {
			return err
		}
	}
	if err := t.setIdleExpiry(h, n.IdleExpiry); err != nil {
		return err
	}
	if n.TerminatedAt != 0 {
		if err := t.logTerminated(h, n.TerminatedReason); err != nil {
			return err
		}
	}
	for _, op := range ops {
		if e, ok := op.(*store.Enqueue); ok && n.TerminatedAt != 0 && e.To == "" {
			continue
		}
		if err := t.apply(h, op); err != nil {
			return err
		}
	}
	return nil
}

// lineage fills in what a child takes from its parent.
func (t *tx) lineage(n *store.Thread) error {
	if n.ParentID == "" {
		n.RootID, n.Depth = n.ID, 0
		return nil
	}
	if _, err := t.head(n.ParentID); err != nil { // locks the parent's head, so that it is not terminated meanwhile
		return fmt.Errorf("parent of thread %s: %w", n.ID, err)
	}
	var root string
	var depth int
	var terminated int64
	if err := t.row(t.ctx, qLineage, []any{n.ParentID}, &root, &depth, &terminated); err != nil {
		return fmt.Errorf("parent thread %s: %w", n.ParentID, err)
	}
	n.RootID, n.Depth = root, depth+1
	if terminated != 0 {
		n.TerminatedAt, n.TerminatedReason = t.now, reasonParentTerminated
	}
	return nil
}

// Thread implements store.Store.
func (s *Store) Thread(ctx context.Context, id string) (*store.Thread, error) {
	t, err := readOne(ctx, s.readers, scanThread, qThread, id)
	if err != nil {
		return nil, fmt.Errorf("thread %s: %w", id, err)
	}
	return t, nil
}

// Children implements store.Store.
func (s *Store) Children(ctx context.Context, id string) ([]store.Thread, error) {
	return s.listThreads(ctx, qChildren, id)
}

func (s *Store) listThreads(ctx context.Context, query string, args ...any) ([]store.Thread, error) {
	threads, err := readList(ctx, s.readers, scanThread, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	return threads, nil
}

func (t *tx) terminate(h *head, op *store.Terminate) error {
	if op.Already = h.terminatedAt != 0; op.Already {
		return nil
	}
	h.terminatedAt = t.now
	if err := t.write(t.ctx, qTerminate, t.now, op.Reason, h.key); err != nil {
		return err
	}
	if err := t.emptyInbox(h); err != nil {
		return err
	}
	return t.logTerminated(h, op.Reason)
}

func (t *tx) emptyInbox(h *head) error {
	h.waiting, h.queued, h.taken = 0, 0, true
	h.touch(store.ChangedThread)
	return t.write(t.ctx, qEmptyInbox, h.key)
}

func (t *tx) logTerminated(h *head, reason string) error {
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return err
	}
	_, err = t.log(h, store.Event{Type: store.EventTerminated, Data: data})
	return err
}
