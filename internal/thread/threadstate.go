package thread

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// MaxStateBytes is the largest size of a thread's state, and of a session's, as JSON. Larger state is not saved
// (STA-05).
const MaxStateBytes = 1 << 20

const (
	maxStateChanges = 10_000
	maxPushKept     = 1_000_000
)

// StateEntries returns a page of the thread's state, keys in the order in which they were first set; all of it when the
// query has no limit (STA-02).
func (st *State) StateEntries(ctx context.Context, q store.StateQuery) (*store.StatePage, error) {
	if q.Limit < 0 || q.Offset < 0 {
		return nil, invalid("limit", "give limit and offset of 0 or more")
	}
	return st.svc.store.State(ctx, st.id, q)
}

// StateValue returns one value of the thread's state. ok is false when there is none.
func (st *State) StateValue(ctx context.Context, key string) (value json.RawMessage, ok bool, err error) {
	if err := checkKey(key); err != nil {
		return nil, false, err
	}
	value, err = st.svc.store.StateValue(ctx, st.id, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// MergeState applies changes to the thread's state in the store, all or nothing, and returns the size of the state
// after them, in bytes of JSON. It returns an *InvalidError for a push on a value that is not an array
// (store.ErrNotArray) and for a state that would exceed MaxStateBytes (store.ErrStateTooLarge).
func (st *State) MergeState(ctx context.Context, changes []store.StateChange) (bytes int64, err error) {
	if len(changes) > maxStateChanges {
		return 0, invalid("ops", "give at most %d changes at once", maxStateChanges)
	}
	checked := make([]store.StateChange, len(changes))
	for i, c := range changes {
		if checked[i], err = CheckStateChange(c); err != nil {
			return 0, err
		}
	}
	op := &store.MergeState{Changes: checked, MaxBytes: MaxStateBytes, Strict: true}
	err = st.Apply(ctx, op)
	switch {
	case errors.Is(err, store.ErrNotArray):
		return 0, &InvalidError{Field: "push", Message: err.Error() + ": set the key to an array, or delete it first", cause: err}
	case errors.Is(err, store.ErrStateTooLarge):
		return 0, &InvalidError{Field: "state", Message: err.Error() + ": keep large data in files or the key-value store", cause: err}
	}
	return op.Bytes, err
}

// CheckStateChange checks one change of state and returns it with its value as compact JSON.
func CheckStateChange(c store.StateChange) (store.StateChange, error) {
	switch c.Verb {
	case store.StateClear:
		if c.Key != "" || len(c.Value) > 0 {
			return c, invalid("op", "clear removes everything: it has neither key nor value")
		}
		return c, nil
	case store.StateSet, store.StatePush, store.StateDelete:
	default:
		return c, invalid("op", "give set, delete, push or clear, not %q", c.Verb)
	}
	if err := checkKey(c.Key); err != nil {
		return c, err
	}
	if c.Verb == store.StateDelete {
		return c, nil
	}
	if len(bytes.TrimSpace(c.Value)) == 0 {
		return c, invalid("value", "give a JSON value")
	}
	if c.Max < 0 || c.Max > maxPushKept || c.Max > 0 && c.Verb != store.StatePush {
		return c, invalid("max", "only push takes max, the number of elements to keep, from 1 to %d", maxPushKept)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, c.Value); err != nil {
		return c, invalid("value", "it is not valid JSON")
	}
	c.Value = compact.Bytes()
	return c, nil
}

// ValueKeys lists the keys of the thread's key-value store in order (KVS-01).
func (st *State) ValueKeys(ctx context.Context, q store.KeyQuery) (*store.KeyPage, error) {
	if err := checkKeyQuery(q); err != nil {
		return nil, err
	}
	return st.svc.store.ValueKeys(ctx, st.id, q)
}

func checkKeyQuery(q store.KeyQuery) error {
	if q.Limit < 0 || q.Limit > maxPage {
		return invalid("limit", "give a number from 1 to %d, or leave it out for 100", maxPage)
	}
	for field, v := range map[string]string{"prefix": q.Prefix, "after": q.After} {
		if len(v) > maxKeyBytes {
			return invalid(field, "keys have at most %d bytes", maxKeyBytes)
		}
		if err := checkText(field, v); err != nil {
			return err
		}
	}
	return nil
}
