//go:build unix

package flock

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestMain lets this program be its own other process: with HOLD it takes that lock, reports it and waits to be
// killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("HOLD"); path != "" {
		l, err := Try(path)
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("held\n")
		_, _ = io.Copy(io.Discard, os.Stdin) // with an empty select, the Go runtime would end the process as deadlocked
		runtime.KeepAlive(l)                 // the garbage collector closes files that are unreachable
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestALockEndsWithItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLD="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // stays open until the process has ended
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); !errors.Is(err, ErrHeld) {
		t.Errorf("a held lock gives %v", err)
	}
	if got := Holder(path); got != cmd.Process.Pid {
		t.Errorf("the holder is %d, want %d", got, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if Held(path) || Holder(path) != 0 {
		t.Error("held by a dead process")
	}
	l, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}

func TestWaitEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	said := 0
	if _, err := Wait(ctx, path, func(int) { said++ }); !errors.Is(err, context.DeadlineExceeded) || said != 1 {
		t.Errorf("%v, said %d times", err, said)
	}
}
