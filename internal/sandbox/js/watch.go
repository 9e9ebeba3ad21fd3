//go:build linux && (amd64 || arm64)

package js

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

// The compiler is Go code in this process: what it takes is not of the engine's heap. So it is watched while it
// runs, and code that takes too much to compile ends as code that takes too much to run.

// watchEvery is how often the compiler's memory is looked at: it takes some hundred megabytes a second.
const watchEvery = time.Millisecond

// watchCompiler watches until the function that it gives is called. Beyond one and a half times the code's memory it ends the
// conversation, which makes the supervisor kill this process: nothing in here can stop the compiler.
func (m *machine) watchCompiler(memory int64) (stop func()) {
	debug.SetMaxStack(compileStack)
	over := make(chan struct{})
	var watcher sync.WaitGroup
	if memory > 0 {
		watcher.Go(func() {
			tick := time.NewTicker(watchEvery)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				if used := inUse(); used > memory+memory/2+ownMemory {
					m.compiler.Store(used)
					_ = m.done(sandbox.StatusMemory, failure("InternalError", "the code ran out of memory while it was compiled: its limit is %s", size(memory)))
					return
				}
			}
		})
	}
	return func() {
		close(over)
		watcher.Wait()
		debug.SetMaxStack(maxStack)
	}
}

// inUse is how many bytes of this process the Go runtime holds of the kernel.
func inUse() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
