//go:build linux && (amd64 || arm64)

package lockdown_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/lockdown"
)

// tracedArg makes the test binary the process behind the gate.
const tracedArg = "traced"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == tracedArg {
		traced()
		return
	}
	os.Exit(m.Run())
}

// traced opens a file whenever a line tells it to, and reports the result.
func traced() {
	runtime.LockOSThread()
	in := bufio.NewReader(os.Stdin)
	say := func(v any) { _, _ = fmt.Println(v) }
	say(unix.Gettid())
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	if err := lockdown.ApplyTracedEngine(lockdown.Limits{Files: 64}); err != nil {
		say(err)
		return
	}
	for {
		fd, err := unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		say(err)
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
	}
}

// Gated calls work while the gate is open, and never after it is closed. This also holds on kernels without seccomp
// notifications, but the test does not need such a kernel.
func TestTraceGate(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", tracedArg)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	heard := func() string {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	next := func() {
		t.Helper()
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	tid, err := strconv.Atoi(heard())
	if err != nil {
		t.Fatal(err)
	}
	gate, err := lockdown.OpenTraceGate(cmd.Process.Pid, tid)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next()
		if got := heard(); got != "<nil>" {
			t.Fatalf("while the gate is open: %s", got)
		}
	}
	if err := gate.Close(); err != nil {
		t.Fatal(err)
	}
	next()
	if got, want := heard(), unix.ENOSYS.Error(); got != want {
		t.Fatalf("once it is shut: %s, not %s", got, want)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("it does not end as it would: %v", err)
	}

	// A process that ends before its gate is closed must not leave a caller waiting.
	cmd = exec.CommandContext(t.Context(), "/proc/self/exe", tracedArg)
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewReader(out)
	if tid, err = strconv.Atoi(heard()); err != nil {
		t.Fatal(err)
	}
	if gate, err = lockdown.OpenTraceGate(cmd.Process.Pid, tid); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_, _ = lines.ReadString('\n')
	if err := gate.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// Where tracing is forbidden, as a process may not trace its own threads, the error says what to do.
func TestTraceGateForbidden(t *testing.T) {
	_, err := lockdown.OpenTraceGate(os.Getpid(), os.Getpid())
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "kernel.yama.ptrace_scope") {
		t.Fatalf("%v", err)
	}
}
