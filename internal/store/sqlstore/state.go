package sqlstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// merge computes a batch of changes before it writes any, so that a state that would become too large stays as it was.
// It reads the sums of the state, the size of each changed key, and a value only for a push.
type merge struct {
	t       *tx
	h       *head
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

func (t *tx) mergeState(h *head, op *store.MergeState) error {
	op.Persisted = false
	m := &merge{t: t, h: h, keys: map[string]*stateKey{}}
	if err := t.row(t.ctx, qStateSum, []any{h.key}, &m.count, &m.bytes, &m.pos); err != nil {
		return err
	}
	for _, c := range op.Changes {
		err := m.change(c)
		if errors.Is(err, store.ErrNotArray) && !op.Strict {
			err = t.skipState(h, &store.SkipState{RunID: op.RunID, Skipped: store.StateSkipped{
				Scope: store.ScopeThread, Reason: store.StateNotArray, Key: c.Key, Message: err.Error(),
			}})
		}
		if err != nil {
			return err
		}
	}
	op.Bytes = m.total()
	if op.MaxBytes > 0 && op.Bytes > op.MaxBytes {
		if op.Strict {
			return fmt.Errorf("it would have %d bytes of JSON, the limit is %d: %w", op.Bytes, op.MaxBytes, store.ErrStateTooLarge)
		}
		if op.Quiet {
			return nil
		}
		return t.skipState(h, &store.SkipState{RunID: op.RunID, Skipped: store.StateSkipped{
			Scope: store.ScopeThread, Reason: store.StateTooLarge, Bytes: op.Bytes, Limit: op.MaxBytes,
			Message: fmt.Sprintf("thread state has %d bytes of JSON, more than the limit of %d, so its changes were not saved: keep large data in files or the key-value store", op.Bytes, op.MaxBytes),
		}})
	}
	op.Persisted = true
	return m.write()
}

// total returns the length of the state as one JSON object: with the braces, and a comma between two entries.
func (m *merge) total() int64 {
	return m.bytes + 2 + max(m.count-1, 0)
}

func (m *merge) key(name string) (*stateKey, error) {
	if k := m.keys[name]; k != nil {
		return k, nil
	}
	k := &stateKey{}
	if !m.cleared {
		err := m.t.row(m.t.ctx, qStateRow, []any{m.h.key, name}, &k.pos, &k.size)
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
	k, err := m.key(c.Key)
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
		if err := m.t.row(m.t.ctx, qStateOld, []any{m.h.key, name}, &stored); err != nil {
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
		if err := t.write(t.ctx, qClearState, h.key); err != nil {
			return err
		}
	}
	for _, name := range m.order {
		k := m.keys[name]
		var err error
		switch {
		case !k.dirty:
		case k.there:
			err = t.write(t.ctx, qPutState, h.key, name, k.pos, k.size, string(k.value))
		case !m.cleared:
			err = t.write(t.ctx, qDeleteState, h.key, name)
		}
		if err != nil {
			return err
		}
	}
	h.touch(0)
	return t.unwarnState(h, store.ScopeThread)
}

// skipState logs what was not saved, and stores a warning when the state was too large.
func (t *tx) skipState(h *head, op *store.SkipState) error {
	data, err := json.Marshal(op.Skipped)
	if err != nil {
		return err
	}
	if _, err := t.log(h, store.Event{Type: store.EventStateSkipped, RunID: op.RunID, Data: data}); err != nil {
		return err
	}
	if op.Skipped.Reason != store.StateTooLarge {
		return nil
	}
	_, err = t.exec(t.ctx, qWarnState, h.key, string(op.Skipped.Scope), op.Skipped.Reason, op.Skipped.Message, t.now)
	h.touch(store.ChangedThread)
	return err
}

func (t *tx) unwarnState(h *head, scope store.StateScope) error {
	n, err := t.exec(t.ctx, qUnwarnState, h.key, string(scope))
	if n > 0 {
		h.touch(store.ChangedThread)
	}
	return err
}

// clearState removes the thread's state, its warnings and the record of an import.
func (t *tx) clearState(h *head) error {
	for _, q := range []string{qClearState, qClearWarnings, qClearImport} {
		if err := t.write(t.ctx, q, h.key); err != nil {
			return err
		}
	}
	return nil
}

// State implements store.SessionStore.
func (s *Store) State(ctx context.Context, threadID string, q store.StateQuery) (page *store.StatePage, err error) {
	limit := int64(q.Limit)
	if limit <= 0 {
		limit = 1 << 40
	}
	err = s.readers.snapshot(ctx, func(c *conn) error {
		var key, pos int64
		if err := c.row(ctx, qThreadKey, []any{threadID}, &key); err != nil {
			return err
		}
		page = &store.StatePage{}
		if err := c.row(ctx, qStateSum, []any{key}, &page.Total, &page.Bytes, &pos); err != nil {
			return err
		}
		page.Bytes += 2 + max(page.Total-1, 0)
		page.Entries, err = list(ctx, c, func(scan scanner) (*store.StateEntry, error) {
			var e store.StateEntry
			var value string
			err := scan(&e.Key, &value)
			e.Value = json.RawMessage(value)
			return &e, err
		}, qStatePage, key, limit, int64(max(q.Offset, 0)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("state of thread %s: %w", threadID, err)
	}
	return page, nil
}

// StateValue implements store.SessionStore.
func (s *Store) StateValue(ctx context.Context, threadID, key string) (json.RawMessage, error) {
	var value string
	if err := s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, qStateValue, []any{threadID, key}, &value)
	}); err != nil {
		return nil, fmt.Errorf("state %q of thread %s: %w", key, threadID, err)
	}
	return json.RawMessage(value), nil
}

// StateWarnings implements store.SessionStore.
func (s *Store) StateWarnings(ctx context.Context, threadID string) ([]store.StateWarning, error) {
	warnings, err := readList(ctx, s.readers, func(scan scanner) (*store.StateWarning, error) {
		var w store.StateWarning
		return &w, scan(&w.Scope, &w.Reason, &w.Message, &w.At)
	}, qStateWarnings, threadID)
	if err != nil {
		return nil, fmt.Errorf("warnings of the state of thread %s: %w", threadID, err)
	}
	return warnings, nil
}
