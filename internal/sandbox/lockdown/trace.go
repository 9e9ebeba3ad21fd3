//go:build linux && (amd64 || arm64)

package lockdown

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ApplyTracedEngine does what ApplyEngine does, for kernels that have no seccomp notifications (gVisor, Linux before
// 5.0), or none that let a call go on (Linux before 5.5): what is gated asks the tracer of the process, and fails where
// there is none. OpenTraceGate must have been called for the calling thread before.
func ApplyTracedEngine(l Limits) error {
	if err := ApplyLimits(l); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	program := filter(engineRules(uint32(os.Getpid())), retTrace)
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("installing the seccomp filter: %w", errno)
	}
	return nil
}

// traceGate lets the gated system calls of a process through for so long as it traces it.
type traceGate struct {
	pid     int
	first   int // the thread that is traced first; its own by another number once it executes a program
	closing chan struct{}
	done    chan struct{}
}

// OpenTraceGate traces a thread of a child process, and all that come from it. The child ends with this process
// for so long as it is traced.
func OpenTraceGate(pid, tid int) (Gate, error) {
	g := &traceGate{pid: pid, first: tid, closing: make(chan struct{}), done: make(chan struct{})}
	attached := make(chan error)
	go func() {
		defer close(g.done)
		// A tracer is a thread. The runtime ends this one with the function, and the kernel what it still traces then;
		// but not the thread that the program began with, which only stops being used.
		runtime.LockOSThread()
		const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
		if err := ptrace(unix.PTRACE_SEIZE, tid, options); err != nil {
			err = fmt.Errorf("tracing the engine while it starts: %w", err)
			if errors.Is(err, unix.EPERM) {
				err = fmt.Errorf("%w: this node, or the seccomp profile of the pod, forbids ptrace (is kernel.yama.ptrace_scope above 1?): allow it, use nodes with Linux 5.5 or newer, which do without, or the engine quickjs", err)
			}
			attached <- err
			return
		}
		attached <- nil
		g.serve()
	}()
	if err := <-attached; err != nil {
		return nil, err
	}
	return g, nil
}

// serve lets every stopped thread go on, and, once the gate is to be closed, lets each of them go.
func (g *traceGate) serve() {
	threads := map[int]bool{g.first: true}
	leaving := false
	for len(threads) > 0 {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // all have ended
			return
		case !status.Stopped():
			delete(threads, tid)
			if tid == g.pid {
				return
			}
			continue
		}
		threads[tid] = true
		signal, called := 0, false // a thread goes on with the signals that are its own
		switch cause := status.TrapCause(); {
		case cause == unix.PTRACE_EVENT_CLONE:
			var started uint64
			if ptraceRead(unix.PTRACE_GETEVENTMSG, tid, unsafe.Pointer(&started)) == nil {
				threads[int(started)] = true
			}
		case uint32(status)>>16 == 0 && status.StopSignal() == unix.SIGSTOP:
			called = g.isClosing()
		case uint32(status)>>16 == 0:
			signal = int(status.StopSignal())
		}
		// Not before Close's signal is here: it would stop the process that nobody traces any more, for good.
		if called && !leaving {
			leaving = true
			for other := range threads {
				if other != tid && ptrace(unix.PTRACE_INTERRUPT, other, 0) != nil {
					delete(threads, other) // it has ended
				}
			}
		}
		if !leaving {
			_ = ptrace(unix.PTRACE_CONT, tid, signal)
			continue
		}
		if ptrace(unix.PTRACE_DETACH, tid, signal) == nil {
			delete(threads, tid)
		} // else it was killed where it stopped, and Wait4 tells of its end
	}
}

func (g *traceGate) isClosing() bool {
	select {
	case <-g.closing:
		return true
	default:
		return false
	}
}

// closeTimeout is how long the threads may take to be let go. They need a moment.
const closeTimeout = 10 * time.Second

// Close implements Gate. A process that cannot be let go is ended: it is never run with its gate open.
func (g *traceGate) Close() error {
	close(g.closing)
	select {
	case <-g.done:
		return nil
	default:
	}
	// A traced thread stops for its tracer alone; to the process it could go by one that is not traced.
	if unix.Tgkill(g.pid, g.first, unix.SIGSTOP) != nil {
		_ = unix.Tgkill(g.pid, g.pid, unix.SIGSTOP)
	}
	late := time.AfterFunc(closeTimeout, func() { _ = unix.Kill(g.pid, unix.SIGKILL) })
	<-g.done
	if !late.Stop() {
		return fmt.Errorf("the threads of the engine could not be let go in %s: it was killed", closeTimeout)
	}
	return nil
}

func ptrace(request, tid, data int) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, uintptr(data), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func ptraceRead(request, tid int, data unsafe.Pointer) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, uintptr(data), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
