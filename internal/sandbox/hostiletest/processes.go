//go:build linux && (amd64 || arm64)

package hostiletest

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Children returns the ids of a process's children that have not ended.
func Children(pid int) []int {
	var out []int
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(field)
			// gVisor also lists threads of children, and all of them for each thread of the process.
			if !slices.Contains(out, child) && status(child, "Tgid:") == field && status(child, "State:") != "Z" {
				out = append(out, child)
			}
		}
	}
	return out
}

// status returns the first word of a line of /proc/<pid>/status, or "" when the process is gone.
func status(pid int, key string) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	_, rest, found := bytes.Cut(b, []byte(key))
	if fields := bytes.Fields(rest); found && len(fields) > 0 {
		return string(fields[0])
	}
	return ""
}

func command(pid int) string {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return string(b)
}

// Resident returns the resident memory of a process in bytes. For this process it first returns unused memory of the
// Go heap to the system.
func Resident(pid int) int64 {
	if pid == os.Getpid() {
		debug.FreeOSMemory()
	}
	kib, _ := strconv.ParseInt(status(pid, "VmRSS:"), 10, 64)
	return kib << 10
}

// Watcher follows the resident memory of a process's children, including the processes that each has started.
type Watcher struct {
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
	peak int64
}

// Watch starts to follow the children of a process. It omits those that have used more than idle bytes already: they
// ran an earlier program and, on a busy machine, are still ending.
func Watch(parent int, idle int64) *Watcher {
	w := &Watcher{stop: make(chan struct{})}
	own := command(parent)
	before := map[int]bool{}
	for _, pid := range Children(parent) {
		before[pid] = highest(pid, own) > idle
	}
	w.done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, pid := range Children(parent) {
				if !before[pid] {
					w.peak = max(w.peak, highest(pid, own))
				}
			}
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

// highest returns the peak resident memory of a process and the processes that it started, in bytes. The kernel
// records the peak, so that none between two readings is missed while they live. parent is the command of its parent.
func highest(pid int, parent string) int64 {
	own := command(pid)
	if own == parent {
		return 0 // between fork and exec it still shows its parent's memory
	}
	kib, _ := strconv.ParseInt(status(pid, "VmHWM:"), 10, 64)
	sum := kib << 10
	for _, child := range Children(pid) {
		sum += highest(child, own)
	}
	return sum
}

// Stop stops following and returns the peak resident memory of any child, in bytes.
func (w *Watcher) Stop() int64 {
	w.once.Do(func() { close(w.stop) })
	w.done.Wait()
	return w.peak
}
