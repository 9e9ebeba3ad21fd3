//go:build linux && (amd64 || arm64)

package compiler

import (
	"time"

	"golang.org/x/sys/unix"
)

// watch calls over once when the process has worked for longer than limit on what it was just asked, unless stop is
// called before. The time is that of its processors: on a busy machine a source that takes milliseconds may be answered
// seconds later, and it is not the source that is to be changed then. It is not waited for without end.
func (p *process) watch(limit time.Duration, over func()) (stop func()) {
	begun := time.Now()
	before, known := p.worked()
	stopped := make(chan struct{})
	go func() {
		t := time.NewTimer(limit)
		defer t.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-t.C:
			}
			now, still := p.worked()
			left := limit - (now - before)
			if !known || !still || left <= 0 || time.Since(begun) >= patience*limit {
				over()
				return
			}
			t.Reset(max(left, limit/20))
		}
	}()
	return func() { close(stopped) }
}

// worked gives how much processor time the process has had; not ok where the kernel does not say.
func (p *process) worked() (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED: of all threads, user and system
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid)<<3|scheduled, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
