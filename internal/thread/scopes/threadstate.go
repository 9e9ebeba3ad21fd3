package scopes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

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

	mu      sync.Mutex
	loaded  bool
	table   table
	pending []change
	saving  int // how many of pending the current save includes
}

// change is a write that is not stored yet.
type change struct {
	verb  store.StateVerb
	key   string
	value any
	max   int
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
	return len(s.pending) > 0
}

// load fetches the state once, and applies the pending changes to it. The caller holds mu.
func (s *ThreadState) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	page, err := s.backend.StateEntries(ctx, store.StateQuery{})
	if err != nil {
		return fmt.Errorf("load the thread's state: %w", err)
	}
	t := table{}
	for _, e := range page.Entries {
		var v any
		if err := json.Unmarshal(e.Value, &v); err != nil {
			return fmt.Errorf("the thread's state is damaged at %q: %w", e.Key, err)
		}
		t.set(e.Key, v)
	}
	s.table, s.loaded = t, true
	for _, c := range s.pending {
		_ = s.apply(c) // a push may meet a value that is not an array: saving skips it and reports that
	}
	return nil
}

func (s *ThreadState) apply(c change) error {
	switch c.verb {
	case store.StateSet:
		s.table.set(c.key, c.value)
	case store.StateDelete:
		s.table.remove(c.key)
	case store.StateClear:
		s.table = table{}
	case store.StatePush:
		return s.table.push(c.key, c.value, c.max)
	}
	return nil
}

// write records a change for saving. When the state is loaded, it also applies the change at once.
func (s *ThreadState) write(c change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		if err := s.apply(c); err != nil {
			return err
		}
	} else if c.verb == store.StatePush {
		if err := s.checkPush(c.key); err != nil {
			return err
		}
	}
	switch c.verb { // changes being saved stay, because they apply again if the save fails
	case store.StateClear:
		s.pending = s.pending[:s.saving]
	case store.StateSet, store.StateDelete:
		s.pending = slices.Concat(s.pending[:s.saving], slices.DeleteFunc(slices.Clone(s.pending[s.saving:]), func(p change) bool { return p.key == c.key && p.verb != store.StateClear }))
	}
	s.pending = append(s.pending, c)
	return nil
}

// checkPush refuses a push that is known to fail without a fetch: the key was just set to something else.
func (s *ThreadState) checkPush(key string) error {
	for _, c := range slices.Backward(s.pending) {
		switch {
		case c.verb == store.StateClear, c.key == key && c.verb != store.StateSet:
			return nil
		case c.key == key:
			if _, ok := elements(c.value); !ok {
				return fmt.Errorf("push to %q: %w", key, store.ErrNotArray)
			}
			return nil
		}
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

// Set stores a value under a key. It fetches nothing.
func (s *ThreadState) Set(key string, value any) {
	_ = s.write(change{verb: store.StateSet, key: key, value: value}) // only a push can fail
}

// Delete removes a key. It fetches nothing.
func (s *ThreadState) Delete(key string) {
	_ = s.write(change{verb: store.StateDelete, key: key})
}

// Clear removes all keys. It fetches nothing.
func (s *ThreadState) Clear() { _ = s.write(change{verb: store.StateClear}) }

// Push appends to the array under a key, which it creates when missing, and keeps the last max elements, all when max
// is 0. It fetches nothing. It returns store.ErrNotArray when the value is known to be something else (STA-04). When
// that is only found while saving, the push is skipped and logged.
func (s *ThreadState) Push(key string, value any, max int) error {
	return s.write(change{verb: store.StatePush, key: key, value: value, max: max})
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
// end of the run: a state that is too large then may still become smaller.
func (s *ThreadState) save(runID string, quiet bool) (merge *store.MergeState, ops []store.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saving = len(s.pending)
	if s.saving == 0 {
		return nil, nil
	}
	merge = &store.MergeState{RunID: runID, MaxBytes: thread.MaxStateBytes, Quiet: quiet}
	for _, c := range s.pending {
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

// dropSaved drops the changes that are stored. A state that was too large keeps its changes until the end of the run.
func (s *ThreadState) dropSaved(m *store.MergeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Persisted || !m.Quiet {
		s.pending = slices.Clone(s.pending[s.saving:])
	}
	s.saving = 0
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
