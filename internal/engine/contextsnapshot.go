package engine

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// state.context lives in the isolate, which ends when a run is parked. What of it can be written down is carried over
// to where the run goes on (STA-08): not functions, and nothing that holds a secret, which is kept sealed or not
// at all.

const (
	// maxScratch is how much of state.context a waiting run carries, in bytes.
	maxScratch = 256 << 10
	// scratchTimeout is how long the isolate has for telling it.
	scratchTimeout = 5 * time.Second
	// scratchModule gives what of state.context can cross.
	scratchModule = "skein/context"
)

var scratchCode = sandbox.Module{Filename: scratchModule, Code: `export default { execute: (state) => {
  const out = {};
  for (const key of Object.keys(state.context)) {
    try {
      out[key] = structuredClone(state.context[key]);
    } catch {} // it stays behind
  }
  return out;
} };`}

// scratch gives what of state.context the run can carry, encoded; nil when there is nothing. known is false when no
// isolate has it: then it is still what the run came with.
func (c *codeHost) contextSnapshot(ctx context.Context) (encoded []byte, known bool) {
	c.mu.Lock()
	iso := c.iso
	c.mu.Unlock()
	if iso == nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, scratchTimeout)
	defer cancel()
	v, err := iso.Invoke(ctx, scratchModule, scratchModule, nil)
	kept, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("it is no object")
	}
	if err == nil {
		maps.DeleteFunc(kept, func(key string, v any) bool { return c.hides(key) || c.secret(v) })
		encoded, err = value.Encode(kept)
	}
	if err == nil && len(encoded) > maxScratch {
		err = errors.New("it is too large")
	}
	if err != nil {
		c.engine.log.Info("a run waits without its context", "namespace", c.thread.Namespace, "name", c.thread.Name, "error", err.Error())
		return nil, true
	}
	if len(kept) == 0 {
		return nil, true
	}
	return encoded, true
}

// secret tells whether a value holds a secret, or may.
func (c *codeHost) secret(v any) bool {
	text, err := value.ToJSON(v)
	return err != nil || c.engine.opts.Redact(c.thread.Namespace, string(text)) != string(text) || c.hides(v)
}

// hides looks into the texts themselves: in JSON they are escaped.
func (c *codeHost) hides(v any) bool {
	switch v := v.(type) {
	case string:
		return c.engine.opts.Redact(c.thread.Namespace, v) != v
	case []byte:
		return c.hides(string(v))
	case []any:
		for _, item := range v {
			if c.hides(item) {
				return true
			}
		}
	case *value.Set:
		return c.hides(v.Members)
	case *value.Map:
		for _, entry := range v.Entries {
			if c.hides(entry[0]) || c.hides(entry[1]) {
				return true
			}
		}
	case map[string]any:
		for key, item := range v {
			if c.hides(key) || c.hides(item) {
				return true
			}
		}
	}
	return false
}

// snapshotContext is scratch for a run that is about to wait; changed tells whether it is another than was kept before.
func (r *run) snapshotContext(ctx context.Context) (changed bool) {
	if r.exec == nil {
		return false
	}
	kept, known := r.exec.code.contextSnapshot(ctx)
	if !known || bytes.Equal(kept, r.checkpoint.Context) {
		return false
	}
	r.checkpoint.Context = kept
	return true
}

// restoreContext gives an execution what the run has carried.
func (r *run) restoreContext(x *execution) {
	if len(r.checkpoint.Context) == 0 {
		return
	}
	v, err := value.Decode(r.checkpoint.Context)
	if err != nil {
		r.log.Error(err, "the run goes on without its context", "run", r.record.ID)
		return
	}
	x.code.state.SetContext(v)
}
