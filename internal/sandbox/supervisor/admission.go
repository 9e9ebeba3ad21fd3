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

// admission limits what runs at the same time, by number and by total memory. A request that exceeds the capacity
// queues, first come, first served. But a run for which another run waits does not queue for memory behind runs that no
// other waits for.
type admission struct {
	opts     Options
	runs     *semaphore.Weighted
	nested   *semaphore.Weighted // runs that other runs wait for: they must not wait for the places of those
	isolates *semaphore.Weighted
	memory   *memoryQueue // bytes of engines' heaps; nil means no limit
	total    int64
}

func newAdmission(o Options) *admission {
	places := func() *semaphore.Weighted { return semaphore.NewWeighted(int64(o.Concurrency)) }
	a := &admission{opts: o, runs: places(), nested: places(), isolates: places()}
	if a.total = o.TotalMemory; a.total == 0 {
		a.total = ownMemory(cgroupLimit, ownShare[o.Engine], a.cost(o.MaxMemory))
	}
	if a.total > 0 {
		a.memory = &memoryQueue{total: a.total, free: a.total}
	}
	return a
}

// cgroupLimit is the file with the memory limit of a container.
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// ownShare is the part of a container's memory that is not for engines: the supervisor and the ready children.
var ownShare = map[sandbox.Engine]int64{sandbox.QuickJS: 64 << 20, sandbox.V8: 160 << 20}

// cost returns how much of the container's memory an execution with a limit may use.
func (a *admission) cost(limit int64) int64 {
	if a.opts.Engine == sandbox.V8 {
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

// admit waits for the capacity for one more isolate; release frees it. The error says what is used up. It is a *memoryKeptError
// when waiting is useless.
func (a *admission) admit(ctx context.Context, l protocol.Limits, nested bool) (release func(), err error) {
	places, wait := a.runs, a.opts.MaxWallTime
	switch {
	case l.Kind == protocol.KindIsolate:
		places = a.isolates
	case nested:
		places, wait = a.nested, min(wait, nestedWait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if places.Acquire(ctx, 1) != nil {
		return nil, fmt.Errorf("the sandbox is busy: it runs %d at a time, and none of them ended within %s: run fewer at once, or raise maxConcurrency of its pool", a.opts.Concurrency, wait)
	}
	if a.memory == nil {
		return func() { places.Release(1) }, nil
	}
	c := memoryClaim{bytes: min(a.cost(l.Memory), a.total), nested: nested, keeps: l.Kind == protocol.KindIsolate}
	if !c.keeps {
		// The patience ends before the wait does, a part of which was spent waiting for a place, so that it is clear
		// which of the two ended.
		c.begun = time.Now()
		until, _ := ctx.Deadline()
		c.patience = max(1, min(nestedWait, until.Sub(c.begun)*9/10))
	}
	if err := a.memory.acquire(ctx, c); err != nil {
		places.Release(1)
		if !c.keeps && errors.Is(err, errMemoryKept) {
			return nil, &memoryKeptError{fmt.Sprintf("not enough memory: what runs in the sandbox may use %d MiB in all, this run %d MiB of them, and the isolates of tools, hooks and other definitions need the rest: "+
				"give the run a lower memoryLimitBytes, or the pool a lower maxMemory or more resources.limits.memory", a.total>>20, c.bytes>>20)}
		}
		return nil, fmt.Errorf("the sandbox is busy: what runs in it may use %d MiB in all, and %d MiB did not come free within %s: run fewer at once, or give them a lower memoryLimitBytes", a.total>>20, c.bytes>>20, wait)
	}
	return func() {
		a.memory.release(c)
		places.Release(1)
	}, nil
}
