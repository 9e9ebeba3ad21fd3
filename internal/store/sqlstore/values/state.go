package values

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// merge computes a batch of changes before it writes any, so that a state that would become too large stays as it was.
// It reads the sums of the state, the size of each changed key, and a value only for a push.
type merge struct {
	t       *txn.Tx
	h       *txn.Head
	keys    map[string]*stateKey
	order   []string
	cleared bool
	count   int64
	bytes   int64 // of keys and values, without the separators
	pos     int64
}

// stateKey is a key that the batch has changed.
type stateKey struct {
	there bool
	pos   int64
	size  int64
	value []byte // nil when it is as stored
	dirty bool
}

// MergeState applies changes to the state of a thread.
func MergeState(t *txn.Tx, h *txn.Head, op *store.MergeState) error {
	op.Persisted = false
	m := &merge{t: t, h: h, keys: map[string]*stateKey{}}
	if err := t.Row(t.Ctx, queries.StateSum, []any{h.Key}, &m.count, &m.bytes, &m.pos); err != nil {
		return err
	}
	for _, c := range op.Changes {
		err := m.change(c)
		if errors.Is(err, store.ErrNotArray) && !op.Strict {
			err = SkipState(t, h, &store.SkipState{RunID: op.RunID, Skipped: store.StateSkipped{
				Scope: store.ScopeThread, Reason: store.StateNotArray, Key: c.Key, Message: err.Error(),
			}})
		}
		if err != nil {
			return err
		}
	}
	op.Bytes = m.Total()
	if op.MaxBytes > 0 && op.Bytes > op.MaxBytes {
		if op.Strict {
			return fmt.Errorf("it would have %d bytes of JSON, the limit is %d: %w", op.Bytes, op.MaxBytes, store.ErrStateTooLarge)
		}
		if op.Quiet {
			return nil
		}
		return SkipState(t, h, &store.SkipState{RunID: op.RunID, Skipped: store.StateSkipped{
			Scope: store.ScopeThread, Reason: store.ReasonStateTooLarge, Bytes: op.Bytes, Limit: op.MaxBytes,
			Message: fmt.Sprintf("thread state has %d bytes of JSON, more than the limit of %d, so its changes were not saved: keep large data in files or the key-value store", op.Bytes, op.MaxBytes),
		}})
	}
	op.Persisted = true
	return m.write()
}

// Total returns the length of the state as one JSON object: with the braces, and a comma between two entries.
func (m *merge) Total() int64 {
	return m.bytes + 2 + max(m.count-1, 0)
}

// keyState returns what is known of a key. It reads the row at the first use of the key, unless the state was cleared.
func (m *merge) keyState(name string) (*stateKey, error) {
	if k := m.keys[name]; k != nil {
		return k, nil
	}
	k := &stateKey{}
	if !m.cleared {
		err := m.t.Row(m.t.Ctx, queries.StateRow, []any{m.h.Key, name}, &k.pos, &k.size)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		k.there = err == nil
	}
	m.keys[name] = k
	m.order = append(m.order, name)
	return k, nil
}

func (m *merge) change(c store.StateChange) error {
	if c.Verb == store.StateClear {
		m.cleared, m.count, m.bytes, m.pos = true, 0, 0, 0
		m.keys, m.order = map[string]*stateKey{}, nil
		return nil
	}
	k, err := m.keyState(c.Key)
	if err != nil {
		return err
	}
	switch c.Verb {
	case store.StateSet:
		m.set(k, c.Key, c.Value)
	case store.StateDelete:
		m.remove(k)
	case store.StatePush:
		list, err := m.array(k, c.Key)
		if err != nil {
			return err
		}
		list = append(list, c.Value)
		if c.Max > 0 && len(list) > c.Max {
			list = list[len(list)-c.Max:]
		}
		m.set(k, c.Key, joinArray(list))
	default:
		return fmt.Errorf("a change of state is set, delete, push or clear, not %q", c.Verb)
	}
	return nil
}

func (m *merge) set(k *stateKey, name string, value []byte) {
	if k.there {
		m.bytes -= k.size
	} else {
		m.pos++
		m.count++
		k.there, k.pos = true, m.pos
	}
	k.value, k.dirty, k.size = value, true, stateSize(name, value)
	m.bytes += k.size
}

func (m *merge) remove(k *stateKey) {
	if !k.there {
		return
	}
	m.bytes -= k.size
	m.count--
	*k = stateKey{dirty: true}
}

// array returns the elements under a key, none when the key does not exist.
func (m *merge) array(k *stateKey, name string) (list []json.RawMessage, err error) {
	if !k.there {
		return nil, nil
	}
	value := k.value
	if value == nil {
		var stored string
		if err := m.t.Row(m.t.Ctx, queries.StateOld, []any{m.h.Key, name}, &stored); err != nil {
			return nil, err
		}
		value = []byte(stored)
	}
	if value = bytes.TrimSpace(value); len(value) == 0 || value[0] != '[' {
		return nil, fmt.Errorf("push to %q: %w", name, store.ErrNotArray)
	}
	err = json.Unmarshal(value, &list)
	return list, err
}

func joinArray(list []json.RawMessage) []byte {
	out := []byte{'['}
	for i, e := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// stateSize returns what an entry adds to the length of the JSON object.
func stateSize(key string, value []byte) int64 {
	quoted, _ := json.Marshal(key) // marshalling a string cannot fail
	return int64(len(quoted) + 1 + len(value))
}

func (m *merge) write() error {
	t, h := m.t, m.h
	if m.cleared {
		if err := t.Write(t.Ctx, queries.ClearState, h.Key); err != nil {
			return err
		}
	}
	for _, name := range m.order {
		k := m.keys[name]
		var err error
		switch {
		case !k.dirty:
		case k.there:
			err = t.Write(t.Ctx, queries.PutState, h.Key, name, k.pos, k.size, string(k.value))
		case !m.cleared:
			err = t.Write(t.Ctx, queries.DeleteState, h.Key, name)
		}
		if err != nil {
			return err
		}
	}
	h.Touch(0)
	return UnwarnState(t, h, store.ScopeThread)
}

// SkipState logs what was not saved, and stores a warning when the state was too large.
func SkipState(t *txn.Tx, h *txn.Head, op *store.SkipState) error {
	data, err := json.Marshal(op.Skipped)
	if err != nil {
		return err
	}
	if _, err := t.Log(h, store.Event{Type: store.EventStateSkipped, RunID: op.RunID, Data: data}); err != nil {
		return err
	}
	if op.Skipped.Reason != store.ReasonStateTooLarge {
		return nil
	}
	_, err = t.Exec(t.Ctx, queries.WarnState, h.Key, string(op.Skipped.Scope), op.Skipped.Reason, op.Skipped.Message, t.Now)
	h.Touch(store.ChangedThread)
	return err
}

// UnwarnState removes the warning of a scope.
func UnwarnState(t *txn.Tx, h *txn.Head, scope store.StateScope) error {
	n, err := t.Exec(t.Ctx, queries.UnwarnState, h.Key, string(scope))
	if n > 0 {
		h.Touch(store.ChangedThread)
	}
	return err
}

// ClearState removes the thread's state, its warnings and the record of an import.
func ClearState(t *txn.Tx, h *txn.Head) error {
	for _, q := range []string{queries.ClearState, queries.ClearWarnings, queries.ClearImport} {
		if err := t.Write(t.Ctx, q, h.Key); err != nil {
			return err
		}
	}
	return nil
}

// State implements store.SessionStore.
func (s Store) State(ctx context.Context, threadID string, q store.StateQuery) (page *store.StatePage, err error) {
	limit := int64(q.Limit)
	if limit <= 0 {
		limit = 1 << 40
	}
	err = s.DB.Readers.Snapshot(ctx, func(c *sqldb.Conn) error {
		var key, pos int64
		if err := c.Row(ctx, queries.ThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		page = &store.StatePage{}
		if err := c.Row(ctx, queries.StateSum, []any{key}, &page.Total, &page.Bytes, &pos); err != nil {
			return err
		}
		page.Bytes += 2 + max(page.Total-1, 0)
		page.Entries, err = sqldb.List(ctx, c, func(scan sqldb.Scanner) (*store.StateEntry, error) {
			var e store.StateEntry
			var value string
			err := scan(&e.Key, &value)
			e.Value = json.RawMessage(value)
			return &e, err
		}, queries.StatePage, key, limit, int64(max(q.Offset, 0)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("state of thread %s: %w", threadID, err)
	}
	return page, nil
}

// StateValue implements store.SessionStore.
func (s Store) StateValue(ctx context.Context, threadID, key string) (json.RawMessage, error) {
	var value string
	if err := s.DB.Readers.Row(ctx, queries.StateValue, []any{threadID, key}, &value); err != nil {
		return nil, fmt.Errorf("state %q of thread %s: %w", key, threadID, err)
	}
	return json.RawMessage(value), nil
}

// StateWarnings implements store.SessionStore.
func (s Store) StateWarnings(ctx context.Context, threadID string) ([]store.StateWarning, error) {
	warnings, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.StateWarning, error) {
		var w store.StateWarning
		return &w, scan(&w.Scope, &w.Reason, &w.Message, &w.At)
	}, queries.StateWarnings, threadID)
	if err != nil {
		return nil, fmt.Errorf("warnings of the state of thread %s: %w", threadID, err)
	}
	return warnings, nil
}
