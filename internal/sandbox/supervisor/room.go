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

// nestedWait is how long a run queues that another run waits for: those that hold the places may all be waiting
// for such ones, and would wait for each other until their time is up.
const nestedWait = 2 * time.Second

// room bounds what runs at a time, by number and by the sum of its memory. Who finds none queues, first come,
// first served; but what another run waits for does not queue for memory behind those that nobody waits for.
type room struct {
	opts     Options
	runs     *semaphore.Weighted
	nested   *semaphore.Weighted // runs that runs wait for: they must not wait for the places of those
	isolates *semaphore.Weighted
	memory   *memoryQueue // bytes of engines' heaps; nil: unbounded
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

// cgroupLimit is where a container finds how much memory it may use.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// ownShare is what of a container's memory is not for engines: the supervisor, and the children that wait.
var ownShare = map[sandbox.Engine]int64{sandbox.QuickJS: 64 << 20, sandbox.V8: 160 << 20}

// cost is what an execution with a limit may take of the container's memory.
func (r *room) cost(limit int64) int64 {
	if r.opts.Engine == sandbox.V8 {
		return v8.Footprint(limit)
	}
	return limit
}

// ownMemory gives what of the container's memory is for engines, at least what one of them may use; 0 when the
// container has no limit.
func ownMemory(file string, share, one int64) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0 // no container
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // "max"
	}
	return max(limit-share, one)
}

// memoryKeptError refuses a run for which isolates leave no memory. Its text is for whoever wrote the code.
type memoryKeptError struct{ text string }

func (e *memoryKeptError) Error() string { return e.text }

// enter waits for room for one more isolate; leave gives it back. An error says what is used up: a *memoryKeptError
// where waiting is of no use.
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
		// Over before the wait is, of which the wait for a place has had its part, so that it is known which of the two it was.
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
