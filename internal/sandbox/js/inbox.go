//go:build linux && (amd64 || arm64)

package js

import (
	"encoding/binary"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// The manager's frames wait here until the engine reads them. Code may request much and read nothing, so the bytes
// that wait are limited to the memory that the code may use. A reply that could never fit is not even read.

// largeFrame is the minimum size of a frame with its own mapping, which is freed as soon as the frame was used.
const largeFrame = 64 << 10

type frame struct {
	typ     protocol.Type
	content []byte
	large   bool // whether content is a mapping
	charged int64
}

// read receives the manager's frames. A Terminate acts at once, whatever the engine is doing.
func (m *machine) read() {
	for {
		f, err := m.next()
		if err != nil {
			m.stop("the sandbox's connection ended")
			return
		}
		if f.typ == protocol.TypeTerminate {
			m.stop(protocol.ParseText(f.content))
			return
		}
		select {
		case m.in <- f:
		case <-m.stopped:
			return
		}
	}
}

// next reads one frame, once there is room for it.
func (m *machine) next() (frame, error) {
	h, err := m.conn.ReadHeader()
	if err != nil {
		return frame{}, err
	}
	f := frame{typ: h.Type}
	if h.Size < largeFrame {
		f.content, err = m.conn.ReadContent(h)
		return f, err
	}
	if most := m.vm.MemoryLimit(); most > 0 && int64(h.Size) > most && h.Type == protocol.TypeReply {
		return m.refuse(h)
	}
	if m.room != nil {
		f.charged = min(int64(h.Size), m.vm.MemoryLimit())
		if err := m.room.Acquire(m.life, f.charged); err != nil {
			return f, err
		}
	}
	if f.content, err = unix.Mmap(-1, 0, h.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return f, err
	}
	f.large = true
	return f, m.conn.ReadInto(f.content)
}

// refuse skips a reply and returns an errorReply in its place.
func (m *machine) refuse(h protocol.Header) (frame, error) {
	start := make([]byte, binary.MaxVarintLen64)
	if err := m.conn.ReadInto(start); err != nil {
		return frame{}, err
	}
	id, n := binary.Uvarint(start)
	if n <= 0 {
		return frame{}, protocol.Violation("a reply to nothing")
	}
	if err := m.conn.Skip(int64(h.Size - len(start))); err != nil {
		return frame{}, err
	}
	return frame{typ: errorReply, content: binary.AppendUvarint(nil, id)}, nil
}

// errorReply is an internal type: the reply with that id was too large.
const errorReply protocol.Type = 0

// used frees what a frame used.
func (m *machine) used(f frame) {
	if f.large {
		_ = unix.Munmap(f.content)
	}
	if f.charged > 0 {
		m.room.Release(f.charged)
	}
}

// ownMemory is what the process may use besides the engine's heap before it collects garbage more often.
const ownMemory = 10 << 20

// boundGarbage keeps the uncollected garbage of this process far below the memory of the code.
func boundGarbage(memory int64) { debug.SetMemoryLimit(ownMemory + memory/8) }
