package codeexec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// state.context lives in the isolate, which ends when a run is parked. The part of it that can be encoded is carried over
// to where the run continues (STA-08). Functions cannot be encoded. Values that contain a secret are not carried over,
// because secrets are stored sealed or not at all.

const (
	// maxSnapshot is how much of state.context a waiting run carries, in bytes.
	maxSnapshot = 256 << 10
	// snapshotTimeout is how long the isolate may take to return it.
	snapshotTimeout = 5 * time.Second
	// snapshotModule returns the part of state.context that can be cloned.
	snapshotModule = "skein/context"
)

var snapshotCode = sandbox.Module{Filename: snapshotModule, Code: `export default { execute: (state) => {
  const out = {};
  for (const key of Object.keys(state.context)) {
    try {
      out[key] = structuredClone(state.context[key]);
    } catch {} // it stays behind
  }
  return out;
} };`}

// Snapshot returns the part of state.context that the run can carry over, encoded, or nil if there is none. known is
// false if there is no isolate: state.context is then what the run had before.
func (c *Host) Snapshot(ctx context.Context) (encoded []byte, known bool) {
	c.mu.Lock()
	iso := c.iso
	c.mu.Unlock()
	if iso == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	v, err := iso.Invoke(ctx, snapshotModule, snapshotModule, nil)
	kept, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("state.context is not an object")
	}
	if err == nil {
		maps.DeleteFunc(kept, func(key string, v any) bool { return c.containsSecret(key) || c.secret(v) })
		encoded, err = value.Encode(kept)
	}
	if err == nil && len(encoded) > maxSnapshot {
		err = fmt.Errorf("state.context has %d bytes: at most %d are carried over", len(encoded), maxSnapshot)
	}
	if err != nil {
		c.env.Log.Info("a run is parked without its state.context", "namespace", c.thread.Namespace, "name", c.thread.Name, "error", err.Error())
		return nil, true
	}
	if len(kept) == 0 {
		return nil, true
	}
	return encoded, true
}

// secret reports whether a value contains a secret, or may contain one.
func (c *Host) secret(v any) bool {
	text, err := value.ToJSON(v)
	return err != nil || c.env.Redact(c.thread.Namespace, string(text)) != string(text) || c.containsSecret(v)
}

// containsSecret reports whether a text within a value contains a secret. It looks at the texts as they are, since JSON escapes
// them.
func (c *Host) containsSecret(v any) bool {
	switch v := v.(type) {
	case string:
		return c.env.Redact(c.thread.Namespace, v) != v
	case []byte:
		return c.containsSecret(string(v))
	case []any:
		for _, item := range v {
			if c.containsSecret(item) {
				return true
			}
		}
	case *value.Set:
		return c.containsSecret(v.Members)
	case *value.Map:
		for _, entry := range v.Entries {
			if c.containsSecret(entry[0]) || c.containsSecret(entry[1]) {
				return true
			}
		}
	case map[string]any:
		for key, item := range v {
			if c.containsSecret(key) || c.containsSecret(item) {
				return true
			}
		}
	}
	return false
}
