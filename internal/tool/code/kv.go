package code

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// This file implements the key-value service of the namespace (STA-07), which handlers use as ctx.kv (AGT-09).

// maxKVKeys is the largest number of keys that getKeys returns.
const maxKVKeys = 10_000

// keyCost is what a key takes in memory besides its bytes, and maxKeyCost what the longest one takes with them.
const (
	keyCost    = 64
	maxKeyCost = keyCost + 512
)

func (c *stateCall) kv() *thread.KV { return c.host.Threads.KV(c.host.Thread.InNamespace()) }

// place reads the store's name and the key. The service checks them.
func (c *stateCall) place() (name, key string, err error) {
	if name, err = c.text(0, "store's name"); err != nil {
		return "", "", err
	}
	key, err = c.text(1, "key")
	return name, key, err
}

func kvGet(ctx context.Context, c *stateCall) (any, error) {
	name, key, err := c.place()
	if err != nil {
		return nil, err
	}
	adjust, err := membudget.Reserve(ctx, maxValueBytes)
	if err != nil {
		return nil, err
	}
	v, err := c.kv().Get(ctx, name, key)
	if err != nil || !v.Exists {
		return map[string]any{"exists": false}, err
	}
	adjust(int64(len(v.Data)))
	out := map[string]any{"exists": true, "contentType": "application/json"}
	if v.ExpiresAt != 0 {
		out["expiresAt"] = time.UnixMicro(v.ExpiresAt).UTC().Format(time.RFC3339)
	}
	out["data"] = v.Data // decoded as it is sent
	return out, nil
}

func kvSet(ctx context.Context, c *stateCall) (any, error) {
	name, key, err := c.place()
	if err != nil {
		return nil, err
	}
	data, err := c.exactly(2, key)
	if err != nil {
		return nil, err
	}
	if data == nil {
		data = json.RawMessage("null")
	}
	var options struct {
		TTL *float64 `json:"ttl"` // seconds; absent or 0 means for ever
	}
	if err := c.into(3, "the options", &options); err != nil {
		return nil, err
	}
	var ttl time.Duration
	if options.TTL != nil {
		if *options.TTL < 0 || *options.TTL > 100*366*24*3600 {
			return nil, c.wrong(3, "the options, whose ttl is in seconds, up to a hundred years, or 0 for ever")
		}
		ttl = time.Duration(*options.TTL * float64(time.Second))
	}
	return nil, c.kv().Set(ctx, name, key, data, ttl)
}

func kvDelete(ctx context.Context, c *stateCall) (any, error) {
	name, key, err := c.place()
	if err != nil {
		return nil, err
	}
	_, err = c.kv().Delete(ctx, name, key)
	return nil, err
}

func kvKeys(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.text(0, "store's name")
	if err != nil {
		return nil, err
	}
	keys := []string{}
	q := store.KeyQuery{Limit: 1000}
	for len(keys) < maxKVKeys {
		adjust, err := membudget.Reserve(ctx, int64(q.Limit)*maxKeyCost)
		if err != nil {
			return nil, err
		}
		page, err := c.kv().Keys(ctx, name, q)
		if err != nil {
			return nil, err
		}
		var size int64
		for _, k := range page.Keys {
			size += int64(len(k)) + keyCost
		}
		adjust(size)
		keys = append(keys, page.Keys...)
		if !page.HasMore {
			break
		}
		q.After = keys[len(keys)-1]
	}
	return keys, nil
}
