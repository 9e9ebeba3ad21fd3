//go:build unix

// Package flock is file locks that the kernel drops with their process: what tells a living cluster from a dead one,
// whatever happened to pids in between.
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

// Try takes the lock on path, which is created, or gives ErrHeld. The file then holds this process's pid.
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
		if !same(f, path) { // the holder before us removed it with its folder
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

// Wait takes the lock, waiting for its holder as long as ctx lasts; waiting is called once if it has to.
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

// Unlock gives the lock up.
func (l *Lock) Unlock() { l.f.Close() }

// Held says whether a process holds the lock on path.
func Held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// Holder gives the pid of the process that holds the lock on path, or 0 when none does. The pid is as its holder
// sees it, which in a pid namespace is not as others do.
func Holder(path string) int {
	for Held(path) {
		if pid := pidIn(path); pid != 0 {
			return pid
		}
		time.Sleep(time.Millisecond) // taken, and not yet written
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
