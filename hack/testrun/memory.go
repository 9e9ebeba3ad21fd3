package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/skein-dev/skein/internal/scratch"
)

const (
	// shm is the file system in memory on Linux.
	shm = "/dev/shm"
	// The bytes that must be free for a folder there: in the file system, and in the machine, because the tests need
	// memory too.
	shmFree    = 4 << 30
	memoryFree = 8 << 30
)

// memoryFolder creates the folder in memory for test files that need not survive the machine, and returns a function
// that removes it. When there is no room for it, tests write to the disk.
func memoryFolder() (remove func(), err error) {
	keep := func() {}
	if os.Getenv(scratch.EnvMemory) != "" || !roomInMemory() {
		return keep, nil
	}
	dir, err := os.MkdirTemp(shm, "skein-test-")
	if err != nil {
		return keep, nil // others use it too
	}
	remove = func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "testrun:", err)
		}
	}
	// Test servers that run as other users must be able to enter it.
	if err := os.Chmod(dir, 0o711); err != nil {
		remove()
		return nil, err
	}
	if err := os.Setenv(scratch.EnvMemory, dir); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

func roomInMemory() bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || uint64(fs.Bavail)*uint64(fs.Bsize) < shmFree {
		return false
	}
	return availableMemory() >= memoryFree
}

// availableMemory returns how many bytes programs can still use, or 0 where that is unknown.
func availableMemory() uint64 {
	info, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer info.Close()
	for lines := bufio.NewScanner(info); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
