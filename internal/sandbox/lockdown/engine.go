//go:build linux && (amd64 || arm64)

package lockdown

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// descriptorCommands are the commands of fcntl that the engine may use.
var descriptorCommands = []uint32{unix.F_DUPFD, unix.F_DUPFD_CLOEXEC, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL}

// engineRules are for a third-party program that generates machine code: what it needs to schedule and allocate,
// including executable memory, and, gated, what it needs to start. They include no sockets.
func engineRules(pid uint32) []rule {
	out := []rule{
		{call: unix.SYS_MMAP}, {call: unix.SYS_MPROTECT}, {call: unix.SYS_PKEY_MPROTECT}, {call: unix.SYS_BRK}, {call: unix.SYS_MEMBARRIER},
		{call: unix.SYS_PREAD64}, {call: unix.SYS_READV}, {call: unix.SYS_LSEEK}, {call: unix.SYS_FSTAT},
		// Of fcntl only what reads and sets flags and duplicates. Other commands could have signals sent to processes of the same user.
		{call: unix.SYS_FCNTL, when: condition{kind: oneOf, argument: 1, values: descriptorCommands}},
		{call: unix.SYS_CLOCK_GETRES}, {call: unix.SYS_GETCPU}, {call: unix.SYS_GETRUSAGE}, {call: unix.SYS_PPOLL}, {call: unix.SYS_EPOLL_PWAIT2},
		{call: unix.SYS_SCHED_GETPARAM}, {call: unix.SYS_SCHED_GETSCHEDULER},
		// Socket pairs wake its event loop. They connect to nothing else, and it can create no other sockets.
		{call: unix.SYS_SOCKETPAIR, when: condition{kind: equals, argument: 0, value: unix.AF_UNIX}}, {call: unix.SYS_SENDTO}, {call: unix.SYS_RECVFROM}, {call: unix.SYS_SENDMSG},
		{call: unix.SYS_PRCTL, when: condition{kind: equals, argument: 0, value: unix.PR_SET_NAME}},
	}
	for _, r := range rules(pid) {
		if r.call != unix.SYS_MMAP && r.call != unix.SYS_MPROTECT {
			out = append(out, r)
		}
	}
	for _, call := range []uint32{
		unix.SYS_EXECVE, unix.SYS_OPENAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
		unix.SYS_GETCWD, unix.SYS_GETDENTS64, unix.SYS_STATFS, unix.SYS_FSTATFS, unix.SYS_IOCTL,
		unix.SYS_PIPE2, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2, unix.SYS_DUP, unix.SYS_DUP3,
		unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_PRLIMIT64, unix.SYS_SET_TID_ADDRESS,
		unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETPPID,
	} {
		out = append(out, rule{call: call, gated: true})
	}
	return append(out, archEngineRules...)
}

// ApplyEngine locks the calling thread for a program that it executes next and that generates machine code. What only
// the start needs (opening files, executing) is gated: the returned listener must be passed to a Gate in another
// process, which allows these calls while it is open. The caller must have locked the goroutine to its thread. An
// error that wraps ErrNoGate means that no filter was installed.
func ApplyEngine(l Limits) (listener int, err error) {
	if !notices() {
		return -1, ErrNoGate
	}
	if err := ApplyLimits(l); err != nil {
		return -1, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("setting no_new_privs: %w", err)
	}
	program := filter(engineRules(uint32(os.Getpid())), retAsk)
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	switch {
	case errno == unix.ENOSYS || errno == unix.EINVAL:
		return -1, fmt.Errorf("%w: %w", ErrNoGate, errno)
	case errno != 0:
		return -1, fmt.Errorf("installing the seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// ErrNoGate means that the kernel cannot ask another process whether system calls may continue.
var ErrNoGate = errors.New("this kernel has no seccomp notifications that let system calls go on")

// Gate allows the gated system calls of a process until it is closed for good. After that they fail. The error says
// why it did not allow them, or that the process was killed instead.
type Gate interface {
	Close() error
}

// noticeGate answers the notifications of the filter of ApplyEngine.
type noticeGate struct {
	wake *os.File
	done chan struct{}
	err  error // valid once done is closed
}

// notification is struct seccomp_notif, and answer is struct seccomp_notif_resp.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	data  [64]byte
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// OpenGate takes over a listener of ApplyEngine.
func OpenGate(listener int) (Gate, error) {
	r, w, err := os.Pipe()
	if err != nil {
		_ = unix.Close(listener)
		return nil, err
	}
	g := &noticeGate{wake: w, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		defer r.Close()
		// Close the listener in the goroutine that waits on it: the kernel keeps a listener open while it is waited
		// on.
		defer func() { _ = unix.Close(listener) }()
		g.err = serve(listener, int(r.Fd()))
	}()
	return g, nil
}

// serve returns an error when it cannot let calls continue. The calls fail once the listener is closed, and would
// wait forever while it is open.
func serve(listener, wake int) error {
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return fmt.Errorf("waiting for system calls of the engine: %w", err)
		}
		if fds[1].Revents != 0 || fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			return nil
		}
		var n notification
		if control(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue
		}
		a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if errno := control(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a)); errno == unix.EINVAL {
			return fmt.Errorf("%w: %w", ErrNoGate, errno) // any other error belongs to a thread that has ended
		}
	}
}

func control(fd int, request uintptr, p unsafe.Pointer) syscall.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(p))
	return errno
}

// Close implements Gate.
func (g *noticeGate) Close() error {
	_ = g.wake.Close()
	<-g.done
	return g.err
}
