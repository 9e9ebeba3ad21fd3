//go:build linux && (amd64 || arm64)

package v8

import (
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/inuse"
)

// compilerPeriod is the interval at which the compiler's memory is checked. It can allocate some hundred megabytes a
// second.
const compilerPeriod = time.Millisecond

// watchCompiler ends code that needs too much memory to compile, by the same measure as the default engine: one and a
// half times its memory. The compiler is Go code in the keeper, which no limit of the engine covers. stop ends the
// watch.
func (k *keeper) watchCompiler() (stop func()) {
	over := make(chan struct{})
	var watcher sync.WaitGroup
	if memory := k.open.Memory; memory > 0 {
		watcher.Go(func() {
			tick := time.NewTicker(compilerPeriod)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				if used := inuse.Bytes(); used > memory+memory/2+ownMemory {
					d := memoryDone(memory)
					d.Err.Message = "the code ran out of memory while it was compiled: its limit is " + size(memory)
					d.Err.Stack = d.Err.Error()
					k.compiler.Store(used)
					k.end(d)
					return
				}
			}
		})
	}
	return func() {
		close(over)
		watcher.Wait()
	}
}
