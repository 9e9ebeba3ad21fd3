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

// watchPeriod is the interval at which the memory of the engine is checked. A program that fills memory as fast as it
// can gets a few megabytes further in that time.
const watchPeriod = 2 * time.Millisecond

// memory watches how much an engine's process uses beyond what it used when it was ready.
type memory struct {
	file *os.File // /proc/PID/statm, opened before the keeper is locked down
	most int64    // the maximum of bytes beyond the start
	base int64
	peak atomic.Int64
	// message is the size of the largest message so far. Until the message is read, it uses memory besides the values
	// in it.
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

// read returns the private resident memory of the process, in bytes.
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

// look takes a reading and reports whether it is too high.
func (m *memory) look() (over bool) {
	now, err := m.read()
	if err != nil {
		return false // the process has ended
	}
	used := now - m.base
	if used > m.peak.Load() {
		m.peak.Store(used)
	}
	return used > m.most+m.message.Load()
}

// sent records that a message of n bytes went to the engine.
func (m *memory) sent(n int) {
	if int64(n) > m.message.Load() {
		m.message.Store(int64(n))
	}
}

// used returns the highest reading so far, in bytes.
func (m *memory) used() int64 { return max(m.peak.Load(), 0) }

// guard calls over once when the memory is too high. It returns when ended is closed.
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
