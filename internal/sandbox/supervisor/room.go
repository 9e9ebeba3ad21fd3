//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/v8"
)

// nestedWait is how long a run queues for which another run waits. All runs that hold places may be waiting for such
// runs, and would otherwise wait for each other until their time is up.
const nestedWait = 2 * time.Second

// room limits what runs at the same time, by number and by total memory. A request without room queues, first come,
// first served. But a run for which another run waits does not queue for memory behind runs that no other waits for.
type room struct {
	opts     Options
	runs     *semaphore.Weighted
	nested   *semaphore.Weighted // runs that other runs wait for: they must not wait for the places of those
	isolates *semaphore.Weighted
	memory   *memoryQueue // bytes of engines' heaps; nil means no limit
	total    int64
}

func newRoom(o Options) *room {
	places := func() *semaphore.Weighted { return semaphore.NewWeighted(int64(o.Concurrency)) }
	r := &room{opts: o, runs: places(), nested: places(), isolates: places()}
	if r.total = o.TotalMemory; r.total == 0 {
		r.total = ownMemory(cgroupLimit, ownShare[o.Engine], r.cost(o.MaxMemory))
	}
	if r.total > 0 {
		r.memory = &memoryQueue{total: r.total, free: r.total}
	}
	return r
}

// cgroupLimit is the file with the memory limit of a container.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// ownShare is the part of a container's memory that is not for engines: the supervisor and the ready children.
var ownShare = map[sandbox.Engine]int64{sandbox.QuickJS: 64 << 20, sandbox.V8: 160 << 20}

// cost returns how much of the container's memory an execution with a limit may use.
func (r *room) cost(limit int64) int64 {
	if r.opts.Engine == sandbox.V8 {
		return v8.Footprint(limit)
	}
	return limit
}

// ownMemory returns how much of the container's memory is for engines, at least what one engine may use. It returns 0
// when the container has no limit.
func ownMemory(file string, share, one int64) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0 // not in a container
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // the text is "max"
	}
	return max(limit-share, one)
}

// memoryKeptError refuses a run for which isolates leave no memory. Its text is for the author of the code.
type memoryKeptError struct{ text string }

func (e *memoryKeptError) Error() string { return e.text }

// enter waits for room for one more isolate; leave frees it. The error says what is used up. It is a *memoryKeptError
// when waiting is useless.
func (r *room) enter(ctx context.Context, l protocol.Limits, nested bool) (leave func(), err error) {
	places, wait := r.runs, r.opts.MaxWallTime
	switch {
	case l.Kind == protocol.KindIsolate:
		places = r.isolates
	case nested:
		places, wait = r.nested, min(wait, nestedWait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if places.Acquire(ctx, 1) != nil {
		return nil, fmt.Errorf("the sandbox is busy: it runs %d at a time, and none of them ended within %s: run fewer at once, or raise maxConcurrency of its pool", r.opts.Concurrency, wait)
	}
	if r.memory == nil {
		return func() { places.Release(1) }, nil
	}
	c := memoryClaim{bytes: min(r.cost(l.Memory), r.total), nested: nested, keeps: l.Kind == protocol.KindIsolate}
	if !c.keeps {
		// The patience ends before the wait does, a part of which was spent waiting for a place, so that it is clear
		// which of the two ended.
		c.begun = time.Now()
		until, _ := ctx.Deadline()
		c.patience = max(1, min(nestedWait, until.Sub(c.begun)*9/10))
	}
	if err := r.memory.acquire(ctx, c); err != nil {
		places.Release(1)
		if !c.keeps && errors.Is(err, errMemoryKept) {
			return nil, &memoryKeptError{fmt.Sprintf("not enough memory: what runs in the sandbox may use %d MiB in all, this run %d MiB of them, and the isolates of tools, hooks and other definitions that are under way leave less: "+
				"give the run a lower memoryLimitBytes, or the pool a lower maxMemory or more resources.limits.memory", r.total>>20, c.bytes>>20)}
		}
		return nil, fmt.Errorf("the sandbox is busy: what runs in it may use %d MiB in all, and %d MiB did not come free within %s: run fewer at once, or give them a lower memoryLimitBytes", r.total>>20, c.bytes>>20, wait)
	}
	return func() {
		r.memory.release(c)
		places.Release(1)
	}, nil
}
