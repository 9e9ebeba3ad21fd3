//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reaper reaps orphaned processes when the supervisor is PID 1 of its pod, for example those of a kubectl exec. Own
// children are waited for by the code that started them. mu guards mine.
type reaper struct {
	mu      sync.Mutex
	mine    map[int]bool
	signals chan os.Signal
}

// newReaper returns a reaper. active says whether orphans become its children, as they do for PID 1.
func newReaper(active bool) *reaper {
	r := &reaper{mine: map[int]bool{}}
	if !active {
		return r
	}
	r.signals = make(chan os.Signal, 1)
	signal.Notify(r.signals, syscall.SIGCHLD)
	go func() {
		for range r.signals {
			r.sweep()
		}
	}()
	return r
}

func (r *reaper) close() {
	if r.signals != nil {
		signal.Stop(r.signals)
		close(r.signals)
	}
}

// Starting a child holds the lock, so that the child is known as ours before it can end.
func (r *reaper) lock()   { r.mu.Lock() }
func (r *reaper) unlock() { r.mu.Unlock() }

func (r *reaper) own(pid int) { r.mine[pid] = true }

func (r *reaper) forget(pid int) {
	r.mu.Lock()
	delete(r.mine, pid)
	r.mu.Unlock()
	if r.signals != nil {
		// While one of ours waited to be reaped, it hid those behind it.
		select {
		case r.signals <- syscall.SIGCHLD:
		default:
		}
	}
}

// sweep reaps ended processes until none is left or the next one is ours.
func (r *reaper) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		pid := nextEnded()
		if pid <= 0 || r.mine[pid] {
			return
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil {
			return
		}
	}
}

// nextEnded returns the next ended child without reaping it.
func nextEnded() int {
	// struct siginfo on 64 bits: three integers, padding, then the pid; 128 bytes in all.
	var info [128]byte
	_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info[0])), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(*(*int32)(unsafe.Pointer(&info[16])))
}
