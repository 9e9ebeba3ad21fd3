package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tellFile names the variable with the pipe into which slowCompiler writes a line for each thing that happens to it.
const tellFile = "SLOW"

// TestMain makes this program a go command that never ends by itself, when it is called under that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "go" {
		os.Exit(slowCompiler(os.Getenv(tellFile)))
	}
	os.Setenv(envHugePages, "0") // tests leave the machine as it is
	os.Exit(m.Run())
}

// slowCompiler says its pid once it can be interrupted, and then that it was.
func slowCompiler(to string) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	pipe, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Fprintf(pipe, "pid %d\n", os.Getpid())
	<-interrupted
	fmt.Fprintln(pipe, "interrupted")
	return 1
}

// TestBuildForKilled is the process that TestACompilerEndsWithItsBuild kills.
func TestBuildForKilled(t *testing.T) {
	if os.Getenv(tellFile) == "" {
		return // nothing to test when run directly
	}
	b := &builder{out: io.Discard}
	p := newProgress(io.Discard)
	t.Log(b.compile(context.Background(), command{dir: t.TempDir()}, "x", nil, p.feed()))
}

// Also when the build is killed and cannot tell its compiler.
func TestACompilerEndsWithItsBuild(t *testing.T) {
	dir := t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	said := newPipe(t, filepath.Join(dir, "said"))
	cmd := exec.Command(own, "-test.run=TestBuildForKilled$")
	cmd.Env = append(os.Environ(), tellFile+"="+said.name, "PATH="+dir+":"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var pid int
	if _, err := fmt.Sscanf(said.next(t, "the compiler to start"), "pid %d", &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if line := said.next(t, "the compiler to be interrupted"); line != "interrupted" {
		t.Fatal(line)
	}
}

// pipe is a named pipe that other processes write lines to.
type pipe struct {
	name  string
	lines *bufio.Reader
}

func newPipe(t *testing.T, name string) *pipe {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0) // opened for writing too, so that a read without another writer does not end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &pipe{name, bufio.NewReader(f)}
}

// next waits for the next line.
func (p *pipe) next(t *testing.T, what string) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("waited in vain for %s: %v", what, err)
	}
	return strings.TrimSpace(line)
}

func TestMemoryOfACgroup(t *testing.T) {
	dir := t.TempDir()
	if got := cgroupMemory(dir); got != math.MaxInt64 {
		t.Errorf("without a cgroup: %d", got)
	}
	for name, text := range map[string]string{"memory.max": "1000\n", "memory.current": "400\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := cgroupMemory(dir); got != 600 {
		t.Errorf("%d, want 600", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte("max\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cgroupMemory(dir); got != math.MaxInt64 {
		t.Errorf("without a limit: %d", got)
	}
}
