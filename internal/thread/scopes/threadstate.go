package scopes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Backend is where thread state is stored. *thread.State is one.
type Backend interface {
	StateEntries(ctx context.Context, q store.StateQuery) (*store.StatePage, error)
}

var _ Backend = (*thread.State)(nil)

// ThreadState is the state of a thread across its runs (STA-02). It is lazy: nothing is fetched before the first read.
// Writes are merged in the store, whether the state was fetched or not (STA-03). It is safe for concurrent use.
type ThreadState struct {
	backend Backend
	encode  Encoder
	memory  *membudget.Account

	mu      sync.Mutex
	loaded  bool
	table   table
	pending changes
	encoded int64 // drawn for the JSON of the current save
}

// Encoder writes a value as JSON.
type Encoder func(value any) ([]byte, error)

// Loaded reports whether the state has been fetched.
func (s *ThreadState) Loaded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// Dirty reports whether there are changes that are not stored yet.
func (s *ThreadState) Dirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.count > 0
}

// load fetches the state once, and applies the pending changes to it. The caller holds mu.
func (s *ThreadState) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	if err := s.memory.Draw(ctx, thread.MaxStateBytes); err != nil {
		return err
	}
	page, err := s.backend.StateEntries(ctx, store.StateQuery{})
	s.memory.Return(thread.MaxStateBytes) // the values are drawn by themselves, all at once
	if err != nil {
		return fmt.Errorf("load the thread's state: %w", err)
	}
	cost := int64(0)
	for _, e := range page.Entries {
		cost += membudget.JSONCost(e.Value)
	}
	if err := s.memory.Draw(ctx, cost); err != nil {
		return err
	}
	t := table{}
	for i, e := range page.Entries {
		if err := s.read(&t, e); err != nil {
			t.clear()
			for _, e := range page.Entries[i+1:] {
				s.memory.Return(membudget.JSONCost(e.Value))
			}
			return err
		}
	}
	s.table, s.loaded = t, true
	for _, c := range s.pending.all() {
		_ = s.apply(*c) // a push may meet a value that is not an array: saving skips it and reports that
	}
	return nil
}

// read adds an entry, whose memory is drawn, to a table.
func (s *ThreadState) read(t *table, e store.StateEntry) error {
	h := heldBy(s.memory, membudget.JSONCost(e.Value))
	defer h.drop()
	var v any
	if err := json.Unmarshal(e.Value, &v); err != nil {
		return fmt.Errorf("the thread's state is damaged at %q: %w", e.Key, err)
	}
	t.set(e.Key, v, h)
	return nil
}

func (s *ThreadState) apply(c change) error {
	switch c.verb {
	case store.StateSet:
		s.table.set(c.key, c.value, c.held)
	case store.StateDelete:
		s.table.remove(c.key)
	case store.StateClear:
		s.table.clear()
	case store.StatePush:
		return s.table.push(c.key, c.value, c.max, c.held)
	}
	return nil
}

// write records a change for saving. When the state is loaded, it also applies the change at once. What the account of ctx has drawn
// belongs to the state from then on.
func (s *ThreadState) write(ctx context.Context, c change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.held = take(ctx, s.memory)
	defer c.held.drop()
	if s.loaded {
		if err := s.apply(c); err != nil {
			return err
		}
	} else if c.verb == store.StatePush {
		if err := s.checkPush(c.key); err != nil {
			return err
		}
	}
	s.pending.add(c)
	return nil
}

// checkPush refuses a push that is known to fail without a fetch: the key was just set to something else.
func (s *ThreadState) checkPush(key string) error {
	c := s.pending.latest(key)
	if c == nil || c.verb != store.StateSet {
		return nil
	}
	if _, ok := elements(c.value); !ok {
		return fmt.Errorf("push to %q: %w", key, store.ErrNotArray)
	}
	return nil
}

// Get returns the value under a key. ok is false when there is none.
func (s *ThreadState) Get(ctx context.Context, key string) (value any, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, false, err
	}
	value, ok = s.table.values[key]
	return value, ok, nil
}

// Has reports whether there is a value under a key.
func (s *ThreadState) Has(ctx context.Context, key string) (bool, error) {
	_, ok, err := s.Get(ctx, key)
	return ok, err
}

// Set stores a value under a key. It fetches nothing. What the account of ctx has drawn for the value belongs to the session from then
// on.
func (s *ThreadState) Set(ctx context.Context, key string, value any) {
	_ = s.write(ctx, change{verb: store.StateSet, key: key, value: value}) // only a push can fail
}

// Delete removes a key. It fetches nothing.
func (s *ThreadState) Delete(key string) {
	_ = s.write(context.Background(), change{verb: store.StateDelete, key: key})
}

// Clear removes all keys. It fetches nothing.
func (s *ThreadState) Clear() { _ = s.write(context.Background(), change{verb: store.StateClear}) }

// Push appends to the array under a key, which it creates when missing, and keeps the last max elements, all when max
// is 0. It fetches nothing. It returns store.ErrNotArray when the value is known to be something else (STA-04). When
// that is only found while saving, the push is skipped and logged. Memory is as in Set.
func (s *ThreadState) Push(ctx context.Context, key string, value any, max int) error {
	return s.write(ctx, change{verb: store.StatePush, key: key, value: value, max: max})
}

// Entries returns all entries in the order in which their keys were first set.
func (s *ThreadState) Entries(ctx context.Context) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	return s.table.entries(), nil
}

// Keys returns the keys in the order in which they were first set.
func (s *ThreadState) Keys(ctx context.Context) ([]string, error) {
	entries, err := s.Entries(ctx)
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys, err
}

// Values returns the values in the order of their keys.
func (s *ThreadState) Values(ctx context.Context) ([]any, error) {
	entries, err := s.Entries(ctx)
	values := make([]any, len(entries))
	for i, e := range entries {
		values[i] = e.Value
	}
	return values, err
}

// Size returns the number of keys.
func (s *ThreadState) Size(ctx context.Context) (int, error) {
	entries, err := s.Entries(ctx)
	return len(entries), err
}

// save returns the operations that store the pending changes; nil when there are none. quiet is for saves before the
// end of the run: a state that is too large then may still become smaller. merge is not among the operations when it is known without
// the store that the state is too large.
func (s *ThreadState) save(runID string, quiet bool) (merge *store.MergeState, ops []store.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returnEncoded()
	s.pending.mark(true)
	if s.pending.count == 0 {
		return nil, nil
	}
	merge = &store.MergeState{RunID: runID, MaxBytes: thread.MaxStateBytes, Quiet: quiet}
	least := int64(0) // how large the state is at least
	for _, c := range s.pending.all() {
		stored := store.StateChange{Verb: c.verb, Key: c.key, Max: c.max}
		if c.verb == store.StateSet || c.verb == store.StatePush {
			data, err := s.encode(c.value)
			if err == nil && !json.Valid(data) {
				err = fmt.Errorf("it is not JSON")
			}
			if err != nil {
				ops = append(ops, notSerializable(runID, store.ScopeThread, c.key, err))
				continue
			}
			size := int64(len(data))
			if c.verb == store.StateSet && s.pending.latest(c.key) == c {
				least += size
			}
			if least > thread.MaxStateBytes {
				return s.tooLarge(merge, ops, least)
			}
			// What finds no room is stored all the same, because to wait for it would be to wait with the changes. The changes are drawn.
			if s.memory.TryDraw(size) == nil {
				s.encoded += size
			}
			stored.Value = data
		}
		if checked, err := thread.CheckStateChange(stored); err != nil {
			ops = append(ops, notSerializable(runID, store.ScopeThread, c.key, err))
		} else {
			merge.Changes = append(merge.Changes, checked)
		}
	}
	return merge, append([]store.Op{merge}, ops...)
}

// tooLarge returns the operations for changes that cannot be stored, because their JSON alone has too many bytes.
func (s *ThreadState) tooLarge(merge *store.MergeState, ops []store.Op, bytes int64) (*store.MergeState, []store.Op) {
	s.returnEncoded()
	merge.Changes = nil
	if merge.Quiet {
		return merge, nil
	}
	return merge, append(ops, &store.SkipState{RunID: merge.RunID, Skipped: store.StateSkipped{
		Scope: store.ScopeThread, Reason: store.ReasonStateTooLarge, Bytes: bytes, Limit: merge.MaxBytes,
		Message: fmt.Sprintf("the changes of thread state have %d bytes of JSON or more, and the limit of the state is %d, so they were not saved: keep large data in files or the key-value store", bytes, merge.MaxBytes),
	}})
}

// returnEncoded returns the memory of the JSON of the last save. The caller holds mu.
func (s *ThreadState) returnEncoded() {
	s.memory.Return(s.encoded)
	s.encoded = 0
}

// dropSaved drops the changes that are stored. A state that was too large keeps its changes until the end of the run.
func (s *ThreadState) dropSaved(m *store.MergeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returnEncoded()
	if m.Persisted || !m.Quiet {
		s.pending.removeAll(isSaved)
	}
	s.pending.mark(false)
}

// forget drops the loaded and pending state after the state was cleared.
func (s *ThreadState) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.clear()
	s.pending.removeAll(isAny)
	s.loaded = false
}

func notSerializable(runID string, scope store.StateScope, key string, err error) *store.SkipState {
	return &store.SkipState{RunID: runID, Skipped: store.StateSkipped{
		Scope: scope, Reason: store.StateNotSerializable, Key: clip(key),
		Message: fmt.Sprintf("the value of %q in %s state cannot be saved and was skipped: %v", clip(key), scope, err),
	}}
}

// clip shortens a key of any length.
func clip(key string) string {
	if len(key) > 100 {
		return key[:100] + "…"
	}
	return key
}
