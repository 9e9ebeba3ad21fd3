package code

import (
	"context"
	"slices"

	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

// The scopes of state (STA-01, docs/state.md). Code sees a copy of session state in its isolate, because the methods
// are synchronous; every change of it arrives here. Thread state is only here.

func (c *stateCall) session() (*scopes.Session, error) {
	if c.host.Session == nil {
		return nil, &sandbox.Error{Name: "NotSupportedError", Message: "there is no session here"}
	}
	return c.host.Session, nil
}

// value returns an argument as it is, also null.
func (c *stateCall) value(i int) any {
	if i >= len(c.args) {
		return nil
	}
	return c.args[i]
}

// entryKey returns the session, and the key of an entry.
func (c *stateCall) entryKey() (*scopes.Session, string, error) {
	s, err := c.session()
	if err != nil {
		return nil, "", err
	}
	key, err := c.text(0, "key")
	return s, key, err
}

func sessionSet(ctx context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	if !c.skips(s, store.ScopeSession, key) {
		s.State.Set(ctx, key, c.value(1))
	}
	return nil, nil
}

// skips leaves out a value that contains a function, because a function belongs to its isolate.
func (c *stateCall) skips(s *scopes.Session, scope store.StateScope, key string) bool {
	if !containsFunction(c.value(1)) {
		return false
	}
	s.Skip(scope, key, "a function")
	return true
}

func (c *stateCall) redacted(text string) string {
	if c.host.Redact == nil {
		return text
	}
	return c.host.Redact(text)
}

func containsFunction(v any) bool {
	switch v := v.(type) {
	case sandbox.FuncRef:
		return true
	case []any:
		return slices.ContainsFunc(v, containsFunction)
	case map[string]any:
		for _, item := range v {
			if containsFunction(item) {
				return true
			}
		}
	case *values.Set:
		return slices.ContainsFunc(v.Members, containsFunction)
	case *values.Map:
		return slices.ContainsFunc(v.Entries, func(e [2]any) bool { return containsFunction(e[0]) || containsFunction(e[1]) })
	}
	return false
}

// skipState records that the isolate has left out a value that cannot be transferred.
func skipState(_ context.Context, c *stateCall) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	scope, err := c.text(0, "scope")
	if err != nil {
		return nil, err
	}
	key, _ := c.arg(1).(string)
	reason, _ := c.arg(2).(string)
	if scope := store.StateScope(scope); scope == store.ScopeThread || scope == store.ScopeSession {
		s.Skip(scope, c.redacted(key), c.redacted(reason)) // redact before Skip cuts them short
	}
	return nil, nil
}

func sessionDelete(_ context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	return s.State.Delete(key), nil
}

func sessionClear(_ context.Context, c *stateCall) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	s.State.Clear()
	return nil, nil
}

func threadGet(ctx context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	v, ok, err := s.Thread.State.Get(ctx, key)
	if err != nil || !ok {
		return []any{}, err
	}
	return []any{v}, nil // a list, to distinguish absent from null
}

func threadHas(ctx context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	return s.Thread.State.Has(ctx, key)
}

func threadSet(ctx context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	if !c.skips(s, store.ScopeThread, key) {
		s.Thread.State.Set(ctx, key, c.value(1))
	}
	return nil, nil
}

func threadDelete(_ context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	s.Thread.State.Delete(key)
	return nil, nil
}

func threadClear(_ context.Context, c *stateCall) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	s.Thread.State.Clear()
	return nil, nil
}

func threadPush(ctx context.Context, c *stateCall) (any, error) {
	s, key, err := c.entryKey()
	if err != nil {
		return nil, err
	}
	limit := 0
	if v := c.arg(2); v != nil {
		n, ok := v.(float64)
		if !ok || n < 1 || n > 1e6 || n != float64(int(n)) {
			return nil, c.wrong(2, "how many of the last elements to keep, a whole number from 1")
		}
		limit = int(n)
	}
	if c.skips(s, store.ScopeThread, key) {
		return nil, nil
	}
	return nil, s.Thread.State.Push(ctx, key, c.value(1), limit)
}

func threadEntries(ctx context.Context, c *stateCall) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	entries, err := s.Thread.State.Entries(ctx)
	if err != nil {
		return nil, err
	}
	return pairs(entries), nil
}

func pairs(entries []scopes.Entry) []any {
	out := make([]any, 0, len(entries))
	for _, e := range entries {
		out = append(out, []any{e.Key, e.Value})
	}
	return out
}

// threadStatus returns whether the state is loaded and whether it has unsaved changes.
func threadStatus(_ context.Context, c *stateCall) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	return map[string]any{"loaded": s.Thread.State.Loaded(), "dirty": s.Thread.State.Dirty()}, nil
}

// scopesStatic returns the session state that an isolate starts with.
func scopesStatic(t *store.Thread, s *scopes.Session) any {
	if s == nil {
		return nil
	}
	entries := []any{}
	for _, e := range s.State.Entries() {
		entries = append(entries, []any{e.Key, e.Value})
	}
	return map[string]any{"session": s.ID, "thread": t.ID, "entries": entries}
}
