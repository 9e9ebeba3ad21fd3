//go:build linux && (amd64 || arm64)

package v8_test

import (
	"context"
	"encoding/binary"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// brokenEngine is what Deno becomes when V8 is compromised: native code behind the same lockdown, with the keeper at
// the other end of its pipes. The name of the program says what it tries.
func brokenEngine() {
	// The runtime must open what it needs for its timers during the start.
	if r, _, err := os.Pipe(); err != nil || r.SetDeadline(time.Time{}) != nil {
		panic("no pipe")
	}
	conn := protocol.NewConn(os.Stdin, os.Stdout, nil)
	_ = conn.Write(protocol.TypeReady, nil)
	if _, _, err := conn.Read(); err != nil {
		return
	}
	_ = conn.Write(protocol.TypeStarted, nil)
	name := filepath.Base(os.Args[0])
	if route, ok := routes[name]; ok {
		v, _ := value.Encode(route())
		done(conn, v)
		time.Sleep(time.Hour)
	}
	forgeries[name](conn)
	time.Sleep(time.Hour)
}

func done(c *protocol.Conn, v []byte) {
	d := protocol.Done{Status: sandbox.StatusSuccess, Outcome: protocol.Outcome{Value: v}}
	_ = c.Write(protocol.TypeDone, d.Encode())
}

func outcome(_, _ uintptr, errno syscall.Errno) string { return unix.ErrnoName(errno) }

func text(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}

func cstr(s string) uintptr {
	b, _ := syscall.BytePtrFromString(s)
	return uintptr(unsafe.Pointer(b))
}

// routes are ways to escape, tried once the engine is ready. Each reports the kernel's answer.
var routes = map[string]func() string{
	"open a file":        func() string { _, err := os.ReadFile("/etc/passwd"); return text(err) },
	"look for a file":    func() string { _, err := os.Stat("/etc/passwd"); return text(err) },
	"make a socket":      func() string { return outcome(syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0)) },
	"make a unix socket": func() string { return outcome(syscall.RawSyscall(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0)) },
	"run a program":      func() string { return text(exec.Command("/bin/true").Run()) },
	"exec itself":        func() string { return text(syscall.Exec("/proc/self/exe", []string{"x"}, nil)) },
	"fork": func() string {
		return outcome(syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0))
	},
	"fork by clone3":        func() string { return outcome(syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)) },
	"signal its parent":     func() string { return text(syscall.Kill(os.Getppid(), syscall.SIGKILL)) },
	"look into its parent":  func() string { return text(unix.PtraceAttach(1)) },
	"undo its death signal": func() string { return text(unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)) },
	"raise its limits": func() string {
		return text(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 1024}))
	},
	"use io_uring":          func() string { return outcome(syscall.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)) },
	"load a BPF program":    func() string { return outcome(syscall.RawSyscall(unix.SYS_BPF, 0, 0, 0)) },
	"make a user namespace": func() string { return text(unix.Unshare(unix.CLONE_NEWUSER)) },
	"make a file in memory": func() string { _, err := unix.MemfdCreate("x", 0); return text(err) },
	"filter its own calls":  func() string { return outcome(syscall.RawSyscall(unix.SYS_SECCOMP, 1, 0, 0)) },
	"open a file by a path of 32 bits": func() string {
		return outcome(syscall.RawSyscall6(unix.SYS_OPENAT2, 0, cstr("/etc/passwd"), 0, 0, 0, 0))
	},
	"do what it may": func() string {
		if _, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
			return "machine code: " + err.Error()
		}
		threads := make(chan int, 8)
		for range 8 {
			go func() {
				runtime.LockOSThread()
				time.Sleep(time.Millisecond)
				threads <- 1
			}()
		}
		for range 8 {
			<-threads
		}
		return "fine"
	},
}

// forgeries are what an engine can send or do but must not.
var forgeries = map[string]func(*protocol.Conn){
	"a frame of the supervisor's": func(*protocol.Conn) { _, _ = os.Stdout.Write([]byte{0, 0, 0, 2, byte(protocol.TypeGone), 0}) },
	"a frame of the manager's":    func(*protocol.Conn) { _, _ = os.Stdout.Write([]byte{0, 0, 0, 2, byte(protocol.TypeReply), 0}) },
	"a frame of four gigabytes":   func(*protocol.Conn) { _, _ = os.Stdout.Write([]byte{255, 255, 255, 255, byte(protocol.TypeReport)}) },
	"text":                        func(*protocol.Conn) { _, _ = os.Stdout.WriteString(strings.Repeat("HTTP/1.1 200 OK\r\n\r\n", 100)) },
	"a result that is no value":   func(c *protocol.Conn) { done(c, []byte{99, 1, 2}) },
	"a last frame that is none":   func(c *protocol.Conn) { _ = c.Write(protocol.TypeDone, []byte{1, 2, 3}) },
	"a call of a function that was not given": func(c *protocol.Conn) {
		args, _ := value.Encode([]any{})
		_ = c.Write(protocol.TypeHostCall, (&protocol.HostCall{ID: 1, Func: 7, Args: args}).Encode())
	},
	"endless reports": func(c *protocol.Conn) {
		v, _ := value.Encode("x")
		for c.Write(protocol.TypeReport, v) == nil {
		}
	},
	"a frame larger than its memory": func(*protocol.Conn) {
		const pieces, piece = 20, 1 << 20 // gradually, so that the engine itself stays small
		_, _ = os.Stdout.Write(append(binary.BigEndian.AppendUint32(nil, pieces*piece+1), byte(protocol.TypeReport)))
		for b := make([]byte, piece); ; {
			if _, err := os.Stdout.Write(b); err != nil {
				return
			}
		}
	},
	"silence": func(*protocol.Conn) {},
	"its end": func(*protocol.Conn) { os.Exit(3) },
	"more memory than it may have": func(*protocol.Conn) {
		b := make([]byte, 400<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	},
}

// frameLimit is the memory limit of code whose engine sends a larger frame. The watch does not see what the keeper
// would hold of it.
const frameLimit = 16 << 20

var _ = Describe("an engine that is broken", Label("COD-01", "COD-08"), func() {
	attack := func(name string, wall time.Duration, memory int64) sandbox.Result {
		GinkgoHelper()
		exe, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		program := filepath.Join(GinkgoT().TempDir(), name)
		Expect(os.Symlink(exe, program)).To(Succeed())
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
			o.Engine, o.Deno, o.Prefork = sandbox.V8, program, 1
		})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		DeferCleanup(cancel)
		r := s.Dial(GinkgoT(), "thread").RunCode(ctx, sandbox.CodeRequest{Source: "1", WallTime: wall, MemoryLimitBytes: memory}).Wait(ctx)
		Expect(ctx.Err()).NotTo(HaveOccurred(), "it ended because nobody waited any longer")
		if r.Error != nil {
			Expect(r.Error.Message).NotTo(ContainSubstring("did not stop"), "nobody stopped it: the client gave it up")
		}
		return r
	}

	for _, name := range slices.Sorted(maps.Keys(routes)) {
		if name == "do what it may" {
			continue
		}
		It("cannot "+name, func() {
			r := attack(name, time.Minute, 0)
			Expect(r.Status).To(Equal(sandbox.StatusSuccess), "%v", r.Error)
			Expect(r.Value).To(SatisfyAny(
				Equal("EPERM"), Equal("ENOSYS"), ContainSubstring("operation not permitted"), ContainSubstring("function not implemented"),
			))
		})
	}

	It("can still do what an engine needs", func() {
		r := attack("do what it may", time.Minute, 0)
		Expect(r.Error).To(BeNil())
		Expect(r.Value).To(Equal("fine"))
	})

	It("ends as one without memory by a frame that is larger than that", Label("COD-06"), func() {
		r := attack("a frame larger than its memory", time.Minute, frameLimit)
		Expect(r.Status).To(Equal(sandbox.StatusMemory), "%v", r.Error)
		Expect(r.Error.Message).To(ContainSubstring("its limit is 16 MiB"))
		Expect(r.Reports).To(BeEmpty())
	})

	for _, name := range slices.Sorted(maps.Keys(forgeries)) {
		if name == "a frame larger than its memory" {
			continue
		}
		It("gets nowhere with "+name, func() {
			r := attack(name, 2*time.Second, 0)
			Expect(r.Status).To(BeElementOf(sandbox.StatusTerminated, sandbox.StatusMemory))
			Expect(r.Value).To(BeNil())
			Expect(r.Error.Message).NotTo(BeEmpty())
			Expect(r.Retriable).To(BeFalse())
		})
	}
})
