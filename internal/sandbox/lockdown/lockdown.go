//go:build linux && (amd64 || arm64)

// Package lockdown permanently removes from a process everything that a JavaScript engine with two open pipes does
// not need. The process cannot open files, make sockets, start programs or processes, signal others, make memory
// executable, or read the clocks of others. Package lockdown needs no privileges and works inside the restricted Pod
// Security Standard, under RuntimeDefault and in gVisor.
package lockdown

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrNoSeccomp means that the kernel has no seccomp filters.
var ErrNoSeccomp = errors.New("this kernel has no seccomp filters, which untrusted code needs")

// Limits are the limits of the locked process.
type Limits struct {
	AddressSpace uint64 // bytes that it may map; 0 means no limit
	Data         uint64 // bytes of writable memory; 0 means no limit
	Files        uint64 // descriptors; 0 means what a child of ours needs
	// Keeper lets the process wait for and kill processes that it started before, and read files that it has open at
	// an offset.
	Keeper bool
}

// maxFiles is enough for the pipes and what the runtime keeps open.
const maxFiles = 16

// Apply locks the calling process with all its threads, permanently. It must be called before anything from the
// untrusted side is read.
func Apply(l Limits) error {
	if err := ApplyLimits(l); err != nil {
		return err
	}
	if err := openPoller(); err != nil {
		return err
	}

	inherited, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("reading no_new_privs: %w", err)
	}
	if inherited == 0 {
		// The thread that installs the filter needs it. A process that was started with it has it on every thread, and is spared the thread
		// that the runtime starts for LockOSThread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("setting no_new_privs: %w", err)
		}
	}
	// Not dumpable, so that no other process of this user can inspect it, nor it others through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing dumpable: %w", err)
	}
	allowed := rules(uint32(os.Getpid()))
	if l.Keeper {
		allowed = append(allowed, keeperRules...)
	}
	return install(filter(allowed, retDeny))
}

// openPoller makes the runtime open its poller, on which its timers wait. Afterwards it could not.
func openPoller() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_ = w.Close()
	return r.Close()
}

// limitOf returns n as a resource limit. 0 means no limit.
func limitOf(n uint64) uint64 {
	if n == 0 {
		return unix.RLIM_INFINITY
	}
	return n
}

// ApplyLimits only sets the resource limits, for kernels without seccomp where the operator accepted that.
func ApplyLimits(l Limits) error {
	for _, r := range []struct {
		what int
		most uint64
	}{
		{unix.RLIMIT_NOFILE, cmp.Or(l.Files, maxFiles)},
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_MEMLOCK, 0},
		{unix.RLIMIT_AS, limitOf(l.AddressSpace)},
		{unix.RLIMIT_DATA, limitOf(l.Data)},
	} {
		if err := unix.Setrlimit(r.what, &unix.Rlimit{Cur: r.most, Max: r.most}); err != nil {
			return fmt.Errorf("setting resource limit %d: %w", r.what, err)
		}
	}
	// gVisor does not allow setting this one. The filter allows no message queues anyway.
	err := unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{})
	if err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("setting the limit of message queues: %w", err)
	}
	return nil
}

// install installs the filter on every thread at once.
func install(program []unix.SockFilter) error {
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	switch {
	case errno == unix.ENOSYS || errno == unix.EINVAL:
		return fmt.Errorf("%w: %w", ErrNoSeccomp, errno)
	case errno != 0:
		return fmt.Errorf("installing the seccomp filter: %w", errno)
	case failed != 0:
		return fmt.Errorf("the seccomp filter did not reach thread %d", failed)
	}
	return nil
}

// Supported returns an error that wraps ErrNoSeccomp when this kernel does not filter system calls. It tries to
// install a program at an invalid address, which changes nothing: a kernel with filters answers that it cannot read
// the program. Only Linux itself reports what is available; gVisor filters but does not report it.
func Supported() error {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, 0)
	if errno != unix.EFAULT {
		return fmt.Errorf("%w: %w", ErrNoSeccomp, errno)
	}
	return nil
}
