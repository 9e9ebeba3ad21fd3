package thread

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// KV is the key-value service of one namespace (STA-07): named stores of JSON values beside threads.
type KV struct {
	svc *Service
	ns  store.Namespace
}

// KV returns the key-value service of a namespace. Without a UID it is that of the namespace that has the name when a value is
// asked for.
func (s *Service) KV(ns store.Namespace) *KV { return &KV{svc: s, ns: ns} }

// KVValue is the result of Get. Data is nil when the value does not exist or has expired.
type KVValue struct {
	Exists    bool
	Data      json.RawMessage
	ExpiresAt int64 // microseconds; 0 for never
}

// maxTTL keeps the sum with the present time within an int64.
const maxTTL = 100 * 366 * 24 * time.Hour

var storeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func checkStore(name string) error {
	if !storeName.MatchString(name) {
		return invalid("store", "use a store name of 1 to 63 letters, digits, '-', '_' and '.', the first and the last a letter or digit")
	}
	return nil
}

func checkPlace(storeName, key string) error {
	if err := checkStore(storeName); err != nil {
		return err
	}
	return checkKey(key)
}

// Get returns a value.
func (k *KV) Get(ctx context.Context, storeName, key string) (KVValue, error) {
	if err := checkPlace(storeName, key); err != nil {
		return KVValue{}, err
	}
	ns, err := k.svc.KnownNamespace(ctx, k.ns)
	if err != nil {
		return KVValue{}, err
	}
	e, err := k.svc.store.GetKV(ctx, ns, storeName, key)
	if errors.Is(err, store.ErrNotFound) {
		return KVValue{}, nil
	}
	if err != nil {
		return KVValue{}, err
	}
	return KVValue{Exists: true, Data: e.Value, ExpiresAt: e.ExpiresAt}, nil
}

// Set stores any JSON value for ttl, or for ever when ttl is 0. The namespace must exist.
func (k *KV) Set(ctx context.Context, storeName, key string, value json.RawMessage, ttl time.Duration) error {
	if err := checkPlace(storeName, key); err != nil {
		return err
	}
	if ttl < 0 || ttl > maxTTL {
		return invalid("ttl", "give seconds, up to a hundred years, or 0 for ever")
	}
	if len(bytes.TrimSpace(value)) == 0 {
		return invalid("data", "give a JSON value; delete the key to remove it")
	}
	if !json.Valid(value) {
		return notJSON("data", key)
	}
	if err := k.svc.checkJSON("data", value, k.svc.limits.valueBytes); err != nil {
		return err
	}
	ns, err := k.svc.KnownNamespace(ctx, k.ns)
	if err != nil {
		return err
	}
	if ns.UID == "" && k.svc.namespaceUID != nil {
		return invalid("namespace", "namespace %q does not exist: create it first", ns.Name)
	}
	e := store.KVEntry{Key: key, Value: value}
	if ttl > 0 {
		e.ExpiresAt = k.svc.now() + ttl.Microseconds()
	}
	return k.svc.store.SetKV(ctx, ns, storeName, e)
}

// Delete removes a value and reports whether it existed.
func (k *KV) Delete(ctx context.Context, storeName, key string) (bool, error) {
	if err := checkPlace(storeName, key); err != nil {
		return false, err
	}
	ns, err := k.svc.KnownNamespace(ctx, k.ns)
	if err != nil {
		return false, err
	}
	return k.svc.store.DeleteKV(ctx, ns, storeName, key)
}

// Keys lists the keys of a store in order. A store that was never written has none.
func (k *KV) Keys(ctx context.Context, storeName string, q store.KeyQuery) (*store.KeyPage, error) {
	if err := checkStore(storeName); err != nil {
		return nil, err
	}
	if err := checkKeyQuery(q); err != nil {
		return nil, err
	}
	ns, err := k.svc.KnownNamespace(ctx, k.ns)
	if err != nil {
		return nil, err
	}
	return k.svc.store.KVKeys(ctx, ns, storeName, q)
}

// feedKept is how long entries of the lifecycle feed are kept for readers.
const feedKept = 7 * 24 * time.Hour

// SweepSession removes expired values of the key-value service and old entries of the lifecycle feed.
func (s *Service) SweepSession(ctx context.Context) (removed int64, err error) {
	for {
		n, more, err := s.store.SweepSession(ctx, s.clock.Now().Add(-feedKept).UnixMicro())
		removed += n
		if err != nil || !more {
			return removed, err
		}
	}
}
