//go:build linux && (amd64 || arm64)

package compiler

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// overrun is why a process was killed while it worked on a source.
type overrun int

const (
	inTime  overrun = iota // it was not killed
	tooLong                // the source took more than its limit
	starved                // other processes used the processors
)

// watch kills the process when it has used more than limit of processor time for its current source, or after wait by
// the clock. stop ends the watch and returns whether and why it killed the process. The limit is for processor time,
// because on a busy machine a source that takes milliseconds may be answered seconds later, and then the source is
// not at fault.
func (p *process) watch(limit, wait time.Duration) (stop func() overrun) {
	begun := time.Now()
	before, known := p.worked()
	var (
		mu    sync.Mutex // held from the check to the kill: once stopped, the process works on another source
		ended bool
		over  overrun
		timer *time.Timer
	)
	look := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		waited := time.Since(begun)
		spent := waited
		if now, still := p.worked(); known && still {
			spent = now - before
		}
		switch {
		case spent >= limit:
			over = tooLong
		case waited >= wait:
			over = starved
		default:
			timer.Reset(min(max(limit-spent, limit/20), wait-waited))
			return
		}
		_ = p.cmd.Process.Kill()
	}
	mu.Lock()
	timer = time.AfterFunc(min(limit, wait), look)
	mu.Unlock()
	return func() overrun {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
		return over
	}
}

// worked returns the processor time that the process has used. ok is false when the kernel does not report it.
func (p *process) worked() (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED: user and system time of all threads
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid)<<3|scheduled, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}
