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

// ApplyTracedEngine does what ApplyEngine does, for kernels without seccomp notifications (gVisor, Linux before 5.0),
// or without ones that let a call continue (Linux before 5.5). Gated calls ask the tracer of the process, and fail
// when there is none. OpenTraceGate must have been called for the calling thread before.
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

// traceGate allows the gated system calls of a process while it traces the process.
type traceGate struct {
	pid     int
	first   int // the thread that is traced first; its number changes once it executes a program
	closing chan struct{}
	done    chan struct{}
}

// OpenTraceGate traces a thread of a child process and all its descendants. While it is traced, the child ends with
// this process.
func OpenTraceGate(pid, tid int) (Gate, error) {
	g := &traceGate{pid: pid, first: tid, closing: make(chan struct{}), done: make(chan struct{})}
	attached := make(chan error)
	go func() {
		defer close(g.done)
		// A tracer is a thread. The runtime ends this thread with the function, and the kernel then kills what it
		// still traces. If this is the initial thread of the program, it does not end, but is just not used any more.
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

// serve lets every stopped thread continue. When the gate is to be closed, it detaches each of them.
func (g *traceGate) serve() {
	threads := map[int]bool{g.first: true}
	leaving := false
	for len(threads) > 0 {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // all threads have ended
			return
		case !status.Stopped():
			delete(threads, tid)
			if tid == g.pid {
				return
			}
			continue
		}
		threads[tid] = true
		signal, called := 0, false // a thread continues with its own signals
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
		// Not before the signal of Close has arrived: otherwise it would permanently stop the process, which is no
		// longer traced.
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
		} // otherwise it was killed while it was stopped, and Wait4 reports its end
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

// closeTimeout bounds how long detaching from the threads may take. Usually it takes a moment.
const closeTimeout = 10 * time.Second

// Close implements Gate. It kills a process that it cannot detach from, so that the process never runs with its gate
// open.
func (g *traceGate) Close() error {
	close(g.closing)
	select {
	case <-g.done:
		return nil
	default:
	}
	// A traced thread stops only for its tracer. A signal to the whole process could reach a thread that is not
	// traced.
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
