package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// tie makes the kernel interrupt the command when this process is killed, so that a compiler does not continue
// without a parent.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT} }

// runTied is cmd.Run on a thread that lives as long as the command. For the kernel, the end of the thread that
// started a command counts as the end of the process.
func runTied(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// outputTied is cmd.Output on such a thread.
func outputTied(cmd *exec.Cmd) ([]byte, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Output()
}

// availableMemory returns how many bytes programs can still use: those of the machine, or of the cgroup when it has fewer.
func availableMemory() int64 {
	return min(machineMemory(), cgroupMemory("/sys/fs/cgroup"))
}

// cgroupMemory returns how many bytes the cgroup in a folder leaves, or the largest number when it has no limit.
func cgroupMemory(dir string) int64 {
	read := func(name string) (int64, error) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // "max" is no number
	}
	limit, err := read("memory.max")
	if err != nil {
		return math.MaxInt64
	}
	used, err := read("memory.current")
	if err != nil {
		return math.MaxInt64
	}
	return max(limit-used, 0)
}

func machineMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
