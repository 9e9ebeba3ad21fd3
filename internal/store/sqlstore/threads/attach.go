package threads

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// lineage is where a thread stands in its tree.
type lineage struct {
	parent, reference, root, envRoot string
	depth                            int
	terminated                       int64
	namespace                        string
}

func readLineage(t *txn.Tx, id string) (l lineage, err error) {
	err = t.Row(t.Ctx, queries.OwnLineage, []any{id}, &l.parent, &l.reference, &l.root, &l.envRoot, &l.depth, &l.terminated, &l.namespace)
	return l, err
}

// Attach makes a root thread the child of another, with everything below it.
func Attach(t *txn.Tx, h *txn.Head, op *store.Attach) error {
	to, err := t.Head(op.ParentID) // locks the parent's head, so that it is not terminated meanwhile
	if err != nil {
		return fmt.Errorf("parent of thread %s: %w", h.ID, err)
	}
	own, err := readLineage(t, h.ID)
	if err != nil {
		return err
	}
	parent, err := readLineage(t, op.ParentID)
	if err != nil {
		return fmt.Errorf("parent of thread %s: %w", h.ID, err)
	}
	switch {
	case own.parent == op.ParentID && own.reference == op.Reference:
		return nil
	case own.parent != "":
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrHasParent)
	case parent.root == h.ID, own.namespace != parent.namespace:
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrCycle)
	case own.terminated != 0, parent.terminated != 0, h.Deleting(), to.Deleting():
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrTerminated)
	}
	var variables int64
	if err := t.Row(t.Ctx, queries.TreeHasEnv, []any{h.ID}, &variables); err != nil {
		return err
	}
	if variables > 0 { // their values are bound to the tree that they were set in
		return fmt.Errorf("thread %s: %w", h.ID, store.ErrHasEnv)
	}
	status, err := registryStatus(t, h, op)
	if err != nil {
		return err
	}
	child, err := json.Marshal(op.Child)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		query string
		args  []any
	}{
		{queries.MoveTree, []any{h.ID, parent.root, parent.envRoot, parent.depth + 1}},
		{queries.MoveUsage, []any{parent.root, h.ID}},
		{queries.Attach, []any{op.ParentID, op.Reference, string(child), status, h.Key}},
		{queries.InheritEnv, []any{h.Key}},
	} {
		if err := t.Write(t.Ctx, w.query, w.args...); err != nil {
			return err
		}
	}
	if err := runs.AddEmptyUsage(t, h, op.Agent); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.AttachUsage, op.ParentID, h.ID); err != nil {
		return err
	}
	h.ParentID = op.ParentID
	h.Touch(store.ChangedThread)
	return CountChild(t, &store.Thread{
		ID: h.ID, ParentID: op.ParentID, Reference: op.Reference, Namespace: own.namespace, Agent: op.Agent, Child: &op.Child, CreatedAt: t.Now,
	})
}

// registryStatus returns the registry status of a new child. Its run can neither begin nor end until the transaction is over.
func registryStatus(t *txn.Tx, h *txn.Head, op *store.Attach) (string, error) {
	last, err := runs.ScanOf(h.ID)(t.One(t.Ctx, queries.NewestRun, h.Key))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	return op.RegistryStatus(last), nil
}
