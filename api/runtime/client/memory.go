package client

import (
	"context"
	"strconv"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// MemoryOptions limit a search of the memory.
type MemoryOptions struct {
	Limit int       // 0 means 10; the maximum is 50
	Since time.Time // only messages since then, unless zero
	Until time.Time // only messages before then, unless zero
}

// SearchMemory searches the threads of this thread's agent and user by meaning, and returns the closest messages
// first (RUN-08). It omits messages of threads that the caller may not read. The error is a BadRequest when the agent
// keeps no memory.
func (t *Thread) SearchMemory(ctx context.Context, text string, o MemoryOptions) (*runtimev1.MemoryHitList, error) {
	p := map[string]string{"q": text}
	if o.Limit != 0 {
		p["limit"] = strconv.Itoa(o.Limit)
	}
	if !o.Since.IsZero() {
		p["since"] = o.Since.Format(time.RFC3339Nano)
	}
	if !o.Until.IsZero() {
		p["until"] = o.Until.Format(time.RFC3339Nano)
	}
	return readAs[runtimev1.MemoryHitList](ctx, t, p, runtimev1.SubresourceMemory)
}
