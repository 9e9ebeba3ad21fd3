package threads

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// saltBytes is the length of the key of a task's digest.
const saltBytes = 32

// task is a row of child_task.
type task struct {
	store.ChildTask
	salt string
}

func scanTask(scan sqldb.Scanner) (*task, error) {
	var t task
	var text sql.NullString
	if err := scan(&t.ID, &t.ParentID, &t.Reference, &t.Namespace, &t.Kind, &t.Agent, &text, &t.salt); err != nil {
		return nil, err
	}
	if text.Valid {
		t.Task = json.RawMessage(text.String)
	}
	return &t, nil
}

// forgotten reports whether the child was purged.
func (t *task) forgotten() bool { return t.salt == "" }

// digest identifies a task without revealing it: a guess can be checked only with the key.
func (t *task) digest() string {
	h := hmac.New(sha256.New, []byte(t.salt))
	h.Write(t.Task)
	return "hmac-sha256:" + hex.EncodeToString(h.Sum(nil))
}

// ReserveChild implements store.ChildStore.
func (s Store) ReserveChild(ctx context.Context, c store.ChildTask, limits []store.ChildLimit) (digest string, err error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	n := task{ChildTask: c, salt: hex.EncodeToString(salt)}
	err = s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		have, err := scanTask(t.One(t.Ctx, queries.ChildTask, c.ID))
		switch {
		case err == nil && have.forgotten():
			return store.ErrChildPurged
		case err == nil:
			digest = have.digest()
			return nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		counted, err := s.countLiving(t, c)
		if err != nil {
			return err
		}
		for _, limit := range limits {
			if living := counted.of[limit.Scope]; living >= limit.Most {
				return &store.ChildLimitError{ChildLimit: limit, Living: living}
			}
		}
		if counted.changes >= ManyChanges {
			if err := s.addChanges(t, c.Namespace); err != nil {
				return err
			}
		}
		digest = n.digest()
		return t.Write(t.Ctx, queries.PutChildTask, n.ID, n.ParentID, n.Reference, n.Namespace, n.Kind, n.Agent, sqldb.NullJSON(n.Task), n.salt, t.Now)
	}, childrenOf(c.Namespace))
	if err != nil {
		return "", fmt.Errorf("reserve a child of thread %s: %w", c.ParentID, err)
	}
	return digest, nil
}

// ReleaseChild implements store.ChildStore.
func (s Store) ReleaseChild(ctx context.Context, parentID, reference string) error {
	return s.DB.Writer.Do(ctx, func(t *txn.Tx) error {
		return t.Write(t.Ctx, queries.ReleaseChild, parentID, reference)
	})
}

// ChildTask implements store.ChildStore.
func (s Store) ChildTask(ctx context.Context, id string) (*store.ChildTask, string, error) {
	t, err := sqldb.ReadOne(ctx, s.DB.Readers, scanTask, queries.ChildTask, id)
	if err == nil && t.forgotten() {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, "", fmt.Errorf("task %s: %w", id, err)
	}
	return &t.ChildTask, t.digest(), nil
}

// LivingChildren implements store.ChildStore.
func (s Store) LivingChildren(ctx context.Context, namespace, parentID string) (map[string]int, error) {
	living, changes := map[string]int{}, int64(0)
	err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		clear(living)
		changes = 0
		return c.Rows(ctx, queries.LivingKinds, queries.KindsOf(namespace, parentID), func(scan sqldb.Scanner) error {
			var name string
			var n int
			var more int64
			if err := scan(&name, &n, &more); err != nil {
				return err
			}
			if kind, of := strings.CutPrefix(name, parentID+"/"); of && n > 0 {
				living[kind] = n
			}
			changes += more
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("count the children of thread %s: %w", parentID, err)
	}
	if changes >= ManyChanges {
		_ = s.addManyChanges(ctx, namespace) // the children are counted: the next count or reservation makes up for what failed here
	}
	return living, nil
}

// UnmadeChildren implements store.ChildStore.
func (s Store) UnmadeChildren(ctx context.Context, parentID string, before int64) ([]string, error) {
	return sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.UnmadeChildren, parentID, before)
}

// Child implements store.ChildStore.
func (s Store) Child(ctx context.Context, parentID, reference string) (*store.Thread, error) {
	t, err := sqldb.ReadOne(ctx, s.DB.Readers, Scan, queries.Child, parentID, reference)
	if err != nil {
		return nil, fmt.Errorf("child %s of thread %s: %w", reference, parentID, err)
	}
	return t, nil
}

// ChildStates implements store.ChildStore.
func (s Store) ChildStates(ctx context.Context, parentID string, references []string) (map[string]store.ChildState, error) {
	states := map[string]store.ChildState{}
	for some := range slices.Chunk(references, queries.ChildrenAtOnce) {
		args := make([]any, 1+queries.ChildrenAtOnce)
		args[0] = parentID
		for i := range queries.ChildrenAtOnce {
			args[1+i] = some[min(i, len(some)-1)]
		}
		if err := s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
			return c.Rows(ctx, queries.ChildStates, args, func(scan sqldb.Scanner) error {
				var reference string
				var is store.ChildState
				err := scan(&reference, &is.ThreadID, &is.RegistryStatus)
				states[reference] = is
				return err
			})
		}); err != nil {
			return nil, fmt.Errorf("states of the children of thread %s: %w", parentID, err)
		}
	}
	return states, nil
}

// UnfinishedChildren implements store.ChildStore.
func (s Store) UnfinishedChildren(ctx context.Context, parentID string) ([]string, error) {
	return sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.UnfinishedChildren, parentID)
}

// UnfinishedBelow implements store.ChildStore.
func (s Store) UnfinishedBelow(ctx context.Context, parentID string) ([]string, error) {
	return sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.UnfinishedBelow, parentID)
}

// WorkingChildren implements store.ChildStore.
func (s Store) WorkingChildren(ctx context.Context, parentID string) ([]store.Thread, error) {
	return s.listThreads(ctx, queries.WorkingChildren, parentID)
}

// ChildrenSince implements store.ChildStore.
func (s Store) ChildrenSince(ctx context.Context, parentID string, since int64) ([]store.Thread, error) {
	return s.listThreads(ctx, queries.ChildrenSince, parentID, since)
}

// CountChild counts a new thread among the children of its parent.
func CountChild(t *txn.Tx, n *store.Thread) error {
	if n.ParentID == "" || n.Child == nil {
		return nil
	}
	living := 0
	if n.TerminatedAt == 0 {
		living = 1
	}
	return t.Write(t.Ctx, queries.CountChild, "thread:"+n.ID, n.ParentID, n.Reference, n.Namespace, n.Child.Name, n.Agent, living, n.CreatedAt)
}

// deleteTasks removes the task of a thread, and all that is stored of its children.
func deleteTasks(t *txn.Tx, id string, key int64) error {
	for _, query := range []string{queries.ForgetOwnTask, queries.DeleteOwnCount} {
		if err := t.Write(t.Ctx, query, key); err != nil {
			return err
		}
	}
	return t.Write(t.Ctx, queries.DeleteChildTasks, id)
}
