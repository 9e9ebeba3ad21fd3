package thread

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

const (
	maxIdempotencyKey = 200
	// maxRecord limits the stored results of a keyed transaction. One with larger results is still applied only once.
	maxRecord = 1 << 20
)

// guard holds what a request says about its writes: the version that they expect, and the key under which they take
// effect once. mu guards applied and expect.
type guard struct {
	mu          sync.Mutex
	key         string
	fingerprint func() string
	applied     int
	expect      *int64
}

// ExpectVersion returns the same thread for one request that has seen a version of it. The request's first write fails with
// a *store.VersionError when the thread has another version by then (THR-11).
func (st *State) ExpectVersion(version int64) *State {
	bound := *st
	bound.guard = &guard{expect: &version}
	if st.guard != nil {
		bound.guard.key, bound.guard.fingerprint = st.guard.key, st.guard.fingerprint
	}
	return &bound
}

// Idempotent returns the same thread for one request that may be repeated under a key (MSG-10). Each of its writes,
// identified by their order, is applied once, however often the request comes and wherever it was interrupted. A repeat
// gets the results of the first one in its ops. fingerprint is called at each write and identifies the request: another
// request with the same key fails with store.ErrKeyReused.
func (st *State) Idempotent(key string, fingerprint func() string) (*State, error) {
	if err := CheckIdempotencyKey(key); err != nil {
		return nil, err
	}
	bound := *st
	bound.guard = &guard{key: key, fingerprint: fingerprint}
	if st.guard != nil {
		bound.guard.expect = st.guard.expect
	}
	return &bound, nil
}

// CheckIdempotencyKey refuses invalid keys.
func CheckIdempotencyKey(key string) error {
	if key == "" || len(key) > maxIdempotencyKey {
		return invalid("Idempotency-Key", "give a key of 1 to %d bytes, such as a random UUID", maxIdempotencyKey)
	}
	return checkText("Idempotency-Key", key)
}

func (g *guard) apply(ctx context.Context, st *State, ops []store.Op) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []store.Op
	var once *store.Once
	if g.key != "" && len(ops) > 0 {
		once = &store.Once{
			Key: fmt.Sprintf("write-%d:%s", g.applied, g.key), Fingerprint: g.fingerprint(),
			Result: func() (json.RawMessage, error) { return recordResults(ops) },
		}
		all = append(all, once)
	}
	if g.expect != nil {
		all = append(all, &store.ExpectVersion{Version: *g.expect})
	}
	if err := st.svc.store.Apply(ctx, st.id, st.fence, st.conditions(append(all, ops...))...); err != nil {
		return err
	}
	if len(ops) > 0 {
		g.applied++
		g.expect = nil // the request's own writes change the version from here on
	}
	if once != nil && once.Existed {
		return restoreResults(ops, once.Recorded)
	}
	return nil
}

// opResult is an op after it was applied.
type opResult struct {
	Op     string          `json:"op"`
	Result json.RawMessage `json:"result"`
}

// hasResult reports whether an op has a result that a repeat must return and that may be stored.
func hasResult(op store.Op) bool {
	switch op.(type) {
	case *store.AppendMessage, *store.UpdateMessage, *store.DeleteMessage, *store.Enqueue, *store.Terminate, *store.PutRelationship:
		return true
	}
	return false
}

func recordResults(ops []store.Op) (json.RawMessage, error) {
	results := make([]opResult, len(ops))
	for i, op := range ops {
		results[i].Op = fmt.Sprintf("%T", op)
		if !hasResult(op) {
			continue
		}
		var err error
		if results[i].Result, err = json.Marshal(op); err != nil {
			return nil, fmt.Errorf("store the result of an idempotent write: %w", err)
		}
	}
	data, err := json.Marshal(results)
	if err != nil || len(data) > maxRecord {
		return nil, err
	}
	return data, nil
}

// restoreResults fills ops with the recorded results of the first request.
func restoreResults(ops []store.Op, recorded json.RawMessage) error {
	if len(recorded) == 0 {
		return nil
	}
	var results []opResult
	if err := json.Unmarshal(recorded, &results); err != nil {
		return fmt.Errorf("the record of an idempotent write is damaged: %w", err)
	}
	for i, op := range ops {
		if i >= len(results) || results[i].Op != fmt.Sprintf("%T", op) || len(results[i].Result) == 0 {
			continue
		}
		if err := json.Unmarshal(results[i].Result, op); err != nil {
			return fmt.Errorf("the record of an idempotent write is damaged: %w", err)
		}
	}
	return nil
}
