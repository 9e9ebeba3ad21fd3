// Package scopes implements the state of handlers (STA-01 to STA-06, docs/state.md): request state for one handler
// call, session state for one run, and thread state across runs; also work that continues after the response, and
// listeners. The engine creates a Session for each run and saves it with the run. Code in sandboxes reaches it over the
// bridge.
package scopes

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

// Entry is a key with its value.
type Entry struct {
	Key   string
	Value any
}

// Values is the state of a scope in memory: keys in the order in which they were first set, with the values as given.
// It is safe for concurrent use.
type Values struct {
	memory *membudget.Account

	mu    sync.Mutex
	table table
	// writes counts the changes, saved those that are stored.
	writes, saved int
}

// NewValues returns an empty scope.
func NewValues() *Values { return &Values{} }

// Get returns the value under a key. ok is false when there is none.
func (v *Values) Get(key string) (value any, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	value, ok = v.table.values[key]
	return value, ok
}

// Has reports whether there is a value under a key.
func (v *Values) Has(key string) bool {
	_, ok := v.Get(key)
	return ok
}

// Set stores a value under a key. What the account of ctx has drawn for the value belongs to the session from then on.
func (v *Values) Set(ctx context.Context, key string, value any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := take(ctx, v.memory)
	defer h.drop()
	v.table.set(key, value, h)
	v.writes++
}

// Delete removes a key and reports whether it existed.
func (v *Values) Delete(key string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	there := v.table.remove(key)
	if there {
		v.writes++
	}
	return there
}

// Clear removes all keys.
func (v *Values) Clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writes++
	v.table.clear()
}

// Push appends to the array under a key, which it creates when missing, and keeps the last max elements, all when max
// is 0. It returns store.ErrNotArray when the value is something else (STA-04). Memory is as in Set.
func (v *Values) Push(ctx context.Context, key string, value any, max int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	h := take(ctx, v.memory)
	defer h.drop()
	v.writes++
	return v.table.push(key, value, max, h)
}

// Keys returns the keys in the order in which they were first set.
func (v *Values) Keys() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.table.keys)
}

// Values returns the values in the order of their keys.
func (v *Values) Values() []any {
	out := []any{}
	for _, e := range v.Entries() {
		out = append(out, e.Value)
	}
	return out
}

// Entries returns the entries in the order of their keys.
func (v *Values) Entries() []Entry {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.table.entries()
}

// Size returns the number of keys.
func (v *Values) Size() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.table.keys)
}

// table is a map that keeps the order of its keys.
type table struct {
	keys   []string
	values map[string]any
	kept   map[string]*kept
}

func (t *table) set(key string, value any, h *held) {
	t.put(key, value)
	t.kept[key].drop()
	t.kept[key] = &kept{set: h.keep()}
}

// clear removes all keys.
func (t *table) clear() {
	for _, k := range t.kept {
		k.drop()
	}
	*t = table{}
}

func (t *table) put(key string, value any) {
	if t.values == nil {
		t.values, t.kept = map[string]any{}, map[string]*kept{}
	}
	if _, there := t.values[key]; !there {
		t.keys = append(t.keys, key)
	}
	t.values[key] = value
}

func (t *table) remove(key string) bool {
	if _, there := t.values[key]; !there {
		return false
	}
	delete(t.values, key)
	t.kept[key].drop()
	delete(t.kept, key)
	i := slices.Index(t.keys, key)
	t.keys = slices.Delete(t.keys, i, i+1)
	return true
}

// push creates a new array, so that holders of the old one see no change.
func (t *table) push(key string, value any, max int, h *held) error {
	var list []any
	if old, there := t.values[key]; there {
		var ok bool
		if list, ok = elements(old); !ok {
			return fmt.Errorf("push to %q: %w", key, store.ErrNotArray)
		}
	}
	list = append(slices.Clip(list), value)
	t.put(key, list)
	k := t.kept[key]
	if k == nil {
		k = &kept{}
		t.kept[key] = k
	}
	k.pushed = append(k.pushed, h.keep())
	if gone := len(list) - max; max > 0 && gone > 0 {
		t.values[key] = slices.Clone(list[gone:])
		k.first(gone, len(list))
	}
	return nil
}

func (t *table) entries() []Entry {
	out := make([]Entry, 0, len(t.keys))
	for _, k := range t.keys {
		out = append(out, Entry{k, t.values[k]})
	}
	return out
}

// elements returns the elements of an array of any Go type. ok is false for anything else, also for bytes and nil.
func elements(v any) (list []any, ok bool) {
	if list, ok := v.([]any); ok {
		return list, true
	}
	r := reflect.ValueOf(v)
	if !r.IsValid() || r.Kind() != reflect.Slice && r.Kind() != reflect.Array || r.Type().Elem().Kind() == reflect.Uint8 {
		return nil, false
	}
	for i := range r.Len() {
		list = append(list, r.Index(i).Interface())
	}
	return list, true
}
