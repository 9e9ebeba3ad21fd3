//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/lockdown"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// hostileChild is what a child becomes when its engine is compromised: native code under the lockdown of the real
// child, with the supervisor at the other end of its pipes.
func hostileChild(attack string) {
	if err := lockdown.Apply(lockdown.Limits{AddressSpace: 8 << 30, Data: 1 << 30}); err != nil {
		panic(err)
	}
	conn := protocol.NewConn(os.Stdin, os.Stdout, nil)
	_ = conn.Write(protocol.TypeReady, nil)
	if _, _, err := conn.Read(); err != nil {
		return
	}
	_ = conn.Write(protocol.TypeStarted, nil)
	if route, ok := routes[attack]; ok {
		say(conn, route())
		return
	}
	forgeries[attack](conn)
}

// say settles the run with a text.
func say(conn *protocol.Conn, text string) {
	v, _ := value.Encode(text)
	d := protocol.Done{Status: sandbox.StatusSuccess, Outcome: protocol.Outcome{Value: v}}
	_ = conn.Write(protocol.TypeDone, d.Encode())
}

func outcome(_, _ uintptr, errno syscall.Errno) string { return unix.ErrnoName(errno) }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// cstr returns a NUL-terminated path for a raw system call.
func cstr(s string) uintptr {
	b, _ := syscall.BytePtrFromString(s)
	return uintptr(unsafe.Pointer(b))
}

// routes are ways to escape. Each reports the kernel's answer.
var routes = map[string]func() string{
	"open a file": func() string { _, err := os.ReadFile("/etc/passwd"); return text(err) },
	"open by openat2": func() string {
		return outcome(syscall.RawSyscall6(unix.SYS_OPENAT2, 0, cstr("/etc/passwd"), 0, 0, 0, 0))
	},
	"make a socket":      func() string { return outcome(syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)) },
	"make a socket pair": func() string { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return text(err) },
	"run a program":      func() string { return text(exec.Command("/bin/true").Run()) },
	"exec itself":        func() string { return text(syscall.Exec("/proc/self/exe", []string{"x"}, nil)) },
	"fork by clone": func() string {
		return outcome(syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0))
	},
	"fork by clone in a new namespace": func() string {
		return outcome(syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.CLONE_NEWUSER|int(unix.SIGCHLD)), 0, 0, 0, 0, 0))
	},
	"fork by clone3":       func() string { return outcome(syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)) },
	"signal its parent":    func() string { return text(syscall.Kill(os.Getppid(), syscall.SIGKILL)) },
	"signal by tgkill":     func() string { return text(unix.Tgkill(os.Getppid(), os.Getppid(), syscall.SIGKILL)) },
	"look into its parent": func() string { return text(unix.PtraceAttach(os.Getppid())) },
	"read another's memory": func() string {
		return outcome(syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid()), 0, 0, 0, 0, 0))
	},
	"undo its death signal": func() string { return text(unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)) },
	"raise its limits": func() string {
		return text(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1024}))
	},
	"load native code": func() string {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		return text(err)
	},
	"turn data into code": func() string {
		b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return "mmap: " + err.Error()
		}
		return text(unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC))
	},
	"use io_uring":          func() string { return outcome(syscall.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)) },
	"load a BPF program":    func() string { return outcome(syscall.RawSyscall(unix.SYS_BPF, 0, 0, 0)) },
	"make a user namespace": func() string { return text(unix.Unshare(unix.CLONE_NEWUSER)) },
	"make a file in memory": func() string { _, err := unix.MemfdCreate("x", 0); return text(err) },
	"copy a descriptor of its parent": func() string {
		return outcome(syscall.RawSyscall(unix.SYS_PIDFD_OPEN, uintptr(os.Getppid()), 0, 0))
	},
	"do what it may": func() string {
		// Threads, memory and time must continue to work under the filter.
		done := make(chan int, 8)
		for range 8 {
			go func() {
				runtime.LockOSThread()
				b := make([]byte, 4<<20)
				for i := range b {
					b[i] = 1
				}
				time.Sleep(time.Millisecond)
				done <- len(b)
			}()
		}
		n := 0
		for range 8 {
			n += <-done
		}
		runtime.GC()
		if n != 32<<20 {
			return "short"
		}
		return "fine"
	},
}

// raw writes bytes to the supervisor unchanged.
func raw(b ...byte) { _, _ = os.Stdout.Write(b) }

func header(t protocol.Type, size uint32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, size), byte(t))
}

// forgeries are messages that a child can send but must not.
var forgeries = map[string]func(*protocol.Conn){
	"a frame of no known type":       func(*protocol.Conn) { raw(header(99, 1)...) },
	"a frame of the supervisor's":    func(*protocol.Conn) { raw(append(header(protocol.TypeGone, 2), 0)...) },
	"a frame of the manager's":       func(*protocol.Conn) { raw(append(header(protocol.TypeReply, 2), 0)...) },
	"a frame of four gigabytes":      func(*protocol.Conn) { raw(header(protocol.TypeReport, 0xFFFFFFFF)...) },
	"a frame of no size":             func(*protocol.Conn) { raw(0, 0, 0, 0, byte(protocol.TypeReport)) },
	"a log of 40 MiB":                func(*protocol.Conn) { raw(header(protocol.TypeLog, 40<<20)...) },
	"half a frame":                   func(*protocol.Conn) { raw(append(header(protocol.TypeReport, 100), 1, 2, 3)...) },
	"text":                           func(*protocol.Conn) { _, _ = os.Stdout.WriteString(strings.Repeat("HTTP/1.1 200 OK\r\n\r\n", 100)) },
	"a result that is no value":      func(c *protocol.Conn) { done(c, []byte{99, 1, 2}) },
	"a result of endless depth":      func(c *protocol.Conn) { done(c, []byte(strings.Repeat("\x0a\x01", 100_000))) },
	"a result of a billion values":   func(c *protocol.Conn) { done(c, append([]byte{byte(value.TagArray)}, 0x80, 0x94, 0xeb, 0xdc, 0x03)) },
	"a result with a function in it": func(c *protocol.Conn) { done(c, []byte{byte(value.TagFunc), 1}) },
	"a status that does not exist": func(c *protocol.Conn) {
		d := protocol.Done{Status: "owned", Outcome: protocol.Outcome{Err: &sandbox.Error{}}}
		_ = c.Write(protocol.TypeDone, d.Encode())
	},
	"a call of a function that was not given": func(c *protocol.Conn) { call(c, 7) },
	"a call whose arguments are not an array": func(c *protocol.Conn) {
		m := protocol.HostCall{ID: 1, Args: []byte{byte(value.TagTrue)}}
		_ = c.Write(protocol.TypeHostCall, m.Encode())
		time.Sleep(time.Hour)
	},
	"endless calls": func(c *protocol.Conn) {
		for {
			if call(c, 0) != nil {
				return
			}
		}
	},
	"endless reports": func(c *protocol.Conn) {
		v, _ := value.Encode("x")
		for c.Write(protocol.TypeReport, v) == nil {
		}
	},
	"silence": func(*protocol.Conn) { time.Sleep(time.Hour) },
	"more memory than it may have": func(*protocol.Conn) {
		for {
			b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				panic("cannot allocate memory")
			}
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
		}
	},
}

func done(c *protocol.Conn, v []byte) {
	d := protocol.Done{Status: sandbox.StatusSuccess, Outcome: protocol.Outcome{Value: v}}
	_ = c.Write(protocol.TypeDone, d.Encode())
}

func call(c *protocol.Conn, f uint64) error {
	args, _ := value.Encode([]any{})
	m := protocol.HostCall{ID: 1, Func: f, Args: args}
	return c.Write(protocol.TypeHostCall, m.Encode())
}
