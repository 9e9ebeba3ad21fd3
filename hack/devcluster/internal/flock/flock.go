//go:build unix

// Package flock implements file locks that the kernel releases with their process. They distinguish a living cluster
// from a dead one, even if pids were reused.
package flock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ErrHeld is returned when another process holds the lock.
var ErrHeld = errors.New("held by another process")

// Lock is a lock that this process holds.
type Lock struct{ f *os.File }

// Try takes the lock on path, creating the file, or returns ErrHeld. The file then contains this process's pid.
func Try(path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, ErrHeld
			}
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !same(f, path) { // the previous holder removed it with its folder
			f.Close()
			continue
		}
		if err := f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
			if err != nil {
				f.Close()
				return nil, err
			}
		}
		return &Lock{f}, nil
	}
}

func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Wait takes the lock, waiting for its holder until ctx ends. It calls waiting once if it has to wait.
func Wait(ctx context.Context, path string, waiting func(pid int)) (*Lock, error) {
	said := false
	for {
		l, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		if !said && waiting != nil {
			waiting(pidIn(path))
			said = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Unlock releases the lock.
func (l *Lock) Unlock() { l.f.Close() }

// Held reports whether a process holds the lock on path.
func Held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// Holder returns the pid of the process that holds the lock on path, or 0 when none does. It is the pid that the
// holder sees, which differs from what others see when the holder is in a pid namespace.
func Holder(path string) int {
	for Held(path) {
		if pid := pidIn(path); pid != 0 {
			return pid
		}
		time.Sleep(time.Millisecond) // taken, but the pid is not written yet
	}
	return 0
}

func pidIn(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0
	}
	return pid
}
