package thread

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

const maxKeyBytes = 512

// Value returns a value of the thread's key-value store; nil when it does not exist (KVS-01).
func (st *State) Value(ctx context.Context, key string) (json.RawMessage, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	v, err := st.svc.store.Value(ctx, st.id, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return v, err
}

// SetValue stores any JSON value under a key; nil or null removes it (KVS-01).
func (st *State) SetValue(ctx context.Context, key string, value json.RawMessage) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > 0 {
		if !json.Valid(value) {
			return notJSON("value", key)
		}
		if err := st.svc.checkJSON("value", value, st.svc.limits.valueBytes); err != nil {
			return err
		}
	}
	if value = bytes.TrimSpace(value); len(value) == 0 || string(value) == "null" {
		value = nil
	}
	return st.Apply(ctx, &store.PutValue{Key: key, Value: value})
}

func notJSON(field, key string) error {
	return invalid(field, "the value for %q is not valid JSON", key)
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKeyBytes {
		return invalid("key", "give a key of 1 to %d bytes", maxKeyBytes)
	}
	return checkText("key", key)
}
