package client

import (
	"context"
	"encoding/json"
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Value returns a value of the thread's key-value store, or nil when there is none (KVS-01).
func (t *Thread) Value(ctx context.Context, key string) (json.RawMessage, error) {
	var v json.RawMessage
	if err := t.getAt(ctx, &v, nil, runtimev1.SubresourceKV, key); err != nil {
		return nil, err
	}
	if string(v) == "null" {
		return nil, nil
	}
	return v, nil
}

// SetValue stores any JSON value under a key. nil removes it.
func (t *Thread) SetValue(ctx context.Context, key string, value any) error {
	if value == nil {
		return t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceKV, key)
	}
	data, err := jsonFor(key, value)
	if err != nil {
		return err
	}
	return t.send(ctx, http.MethodPut, data, nil, runtimev1.SubresourceKV, key)
}
