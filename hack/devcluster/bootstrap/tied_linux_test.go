package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowCompiler is a go command that never ends by itself. It records its pid, and that it was interrupted.
const slowCompiler = `#!/bin/sh
echo $$ >"$SLOW/pid.new" && mv "$SLOW/pid.new" "$SLOW/pid"
trap 'echo >"$SLOW/interrupted"; exit 1' INT
while :; do sleep 0.1; done
`

// TestBuildForKilled is the process that TestACompilerEndsWithItsBuild kills.
func TestBuildForKilled(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		return // nothing to test when run directly
	}
	b := &builder{out: io.Discard}
	p := newProgress(io.Discard)
	t.Log(b.compile(context.Background(), command{dir: t.TempDir()}, "x", nil, p.feed()))
}

// Also when the build is killed and cannot tell its compiler.
func TestACompilerEndsWithItsBuild(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(slowCompiler), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestBuildForKilled$")
	cmd.Env = append(os.Environ(), "SLOW="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := await(t, "the compiler to start", func() (int, bool) {
		b, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			return 0, false
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		return n, err == nil
	})
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "the compiler to be interrupted", func() (int, bool) {
		_, err := os.Stat(filepath.Join(dir, "interrupted"))
		return 0, err == nil
	})
}

func await(t *testing.T, what string, done func() (int, bool)) int {
	t.Helper()
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(20 * time.Millisecond) {
		if n, ok := done(); ok {
			return n
		}
	}
	t.Fatalf("waited in vain for %s", what)
	return 0
}
