//go:build linux && (amd64 || arm64)

package v8

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watchPeriod is how often the memory of the engine is looked at. A program that fills memory as fast as it can
// gets a few megabytes further in that time.
const watchPeriod = 2 * time.Millisecond

// memory watches what an engine's process takes beyond what it took when it was ready.
type memory struct {
	file *os.File // /proc/PID/statm, opened before the keeper is locked down
	most int64    // bytes beyond the start at which it is too much
	base int64
	peak atomic.Int64
	// message is the size of the largest message so far: until it is read, it is there besides what it says.
	message atomic.Int64
}

func openMemory(pid int, most int64) (*memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return nil, fmt.Errorf("watching the engine's memory: %w", err)
	}
	m := &memory{file: f, most: most}
	if m.base, err = m.read(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("watching the engine's memory: %w", err)
	}
	return m, nil
}

// read gives the resident memory of the process that is its own, in bytes.
func (m *memory) read() (int64, error) {
	var raw [128]byte
	n, err := unix.Pread(int(m.file.Fd()), raw[:], 0)
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(raw[:n])
	if len(fields) < 3 {
		return 0, fmt.Errorf("statm says %q", raw[:n])
	}
	resident, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, err
	}
	shared, err := strconv.ParseInt(string(fields[2]), 10, 64)
	if err != nil {
		return 0, err
	}
	return (resident - shared) * int64(os.Getpagesize()), nil
}

func (m *memory) close() { _ = m.file.Close() }

// look takes a reading and says whether it is too much.
func (m *memory) look() (over bool) {
	now, err := m.read()
	if err != nil {
		return false // it has ended
	}
	used := now - m.base
	if used > m.peak.Load() {
		m.peak.Store(used)
	}
	return used > m.most+m.message.Load()
}

// sent says that a message of so many bytes went to the engine.
func (m *memory) sent(n int) {
	if int64(n) > m.message.Load() {
		m.message.Store(int64(n))
	}
}

// used is the highest reading so far, in bytes.
func (m *memory) used() int64 { return max(m.peak.Load(), 0) }

// guard calls over once when the memory is too much. It returns when ended is closed.
func (m *memory) guard(ended <-chan struct{}, over func()) {
	t := time.NewTicker(watchPeriod)
	defer t.Stop()
	for {
		select {
		case <-ended:
			return
		case <-t.C:
			if m.look() {
				over()
				return
			}
		}
	}
}
