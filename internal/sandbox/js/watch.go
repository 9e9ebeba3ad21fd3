//go:build linux && (amd64 || arm64)

package js

import (
	"runtime/debug"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
)

// The compiler is Go code in this process, and its memory is not in the engine's heap. So it is watched while it
// runs, and code that needs too much memory to compile ends like code that needs too much to run.

// watchEvery is the interval at which the compiler's memory is checked. It can allocate some hundred megabytes a
// second.
const watchEvery = time.Millisecond

// watchCompiler watches until the returned function is called. If the compiler uses more than one and a half times
// the code's memory, it ends the conversation, which makes the supervisor kill this process: nothing in here can stop
// the compiler.
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
				if used := m.compiler.InUse(); used > memory+memory/2+ownMemory {
					m.compiling.Store(used)
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
