//go:build linux && (amd64 || arm64)

package v8

import (
	"context"
	"runtime/debug"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// What crosses the keeper takes its memory, which the watch of the engine does not see and no limit of V8 bounds.
// Code may ask for much and look at nothing: so at most maxWaiting bytes of the manager's frames wait for an engine
// that is busy, what comes after them waits at the manager, and one frame at a time is on its way out.

const (
	// largeFrame is the least size of a frame that has a mapping of its own, which is gone as soon as it was used.
	largeFrame = 64 << 10
	// maxFrames is how many frames may wait, large or not: more than code can have asked for, so that a Terminate is
	// read however many answers to calls, which nobody looks at, came before it.
	maxFrames = 2048
	// maxSmall bounds the bytes of the frames below largeFrame that wait, with what each takes besides its content.
	maxSmall   = 4 << 20
	frameBytes = 128
	// maxWaiting bounds the bytes of large frames that wait, where the code's own limit is not below it. One that is
	// larger than that waits alone.
	maxWaiting = 16 << 20
)

type frame struct {
	typ     protocol.Type
	content []byte
	large   bool  // content is a mapping
	charged int64 // of the room for frames like it
}

// readFrame reads the content that h announces.
func readFrame(c *protocol.Conn, h protocol.Header) (frame, error) {
	f := frame{typ: h.Type}
	var err error
	if h.Size < largeFrame {
		f.content, err = c.ReadContent(h)
		return f, err
	}
	// Pages are taken as they fill: one that announces more than it sends takes what it sends.
	if f.content, err = unix.Mmap(-1, 0, h.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return f, err
	}
	f.large = true
	if err = c.ReadInto(f.content); err != nil {
		f.free()
	}
	return f, err
}

// free gives back what the content took. It must not be looked at any more.
func (f *frame) free() {
	if f.large {
		_ = unix.Munmap(f.content)
	}
	f.large, f.content = false, nil
}

// inbox is where the manager's frames wait.
type inbox struct {
	frames chan frame
	room   *semaphore.Weighted // bytes of large frames
	small  *semaphore.Weighted // bytes of the others
	size   int64
	life   context.Context // ends with the keeper
	die    context.CancelFunc
}

// newInbox makes one for code with a limit in bytes, 0 for none.
func newInbox(memory int64) *inbox {
	in := &inbox{frames: make(chan frame, maxFrames), size: maxWaiting, small: semaphore.NewWeighted(maxSmall)}
	if memory > 0 {
		in.size = min(memory, maxWaiting)
	}
	in.room = semaphore.NewWeighted(in.size)
	in.life, in.die = context.WithCancel(context.Background())
	return in
}

// untilTerminate takes the manager's frames until its Terminate, whose reason it gives, and does not wait for those
// that came before it to be looked at. An error is that the manager went away, or that the keeper ended.
func (in *inbox) untilTerminate(c *protocol.Conn) (reason string, err error) {
	for {
		f, err := in.read(c)
		if err != nil {
			return "", err
		}
		if f.typ == protocol.TypeTerminate {
			return protocol.ParseText(f.content), nil
		}
		select {
		case in.frames <- f:
		case <-in.life.Done():
			return "", in.life.Err()
		}
	}
}

// read reads the manager's next frame, once there is room for it. There always is for a Terminate.
func (in *inbox) read(c *protocol.Conn) (frame, error) {
	h, err := c.ReadHeader()
	if err != nil {
		return frame{}, err
	}
	room, charged := in.small, int64(h.Size+frameBytes)
	switch {
	case h.Type == protocol.TypeTerminate:
		return readFrame(c, h)
	case h.Size >= largeFrame:
		room, charged = in.room, min(int64(h.Size), in.size)
	}
	if err := room.Acquire(in.life, charged); err != nil {
		return frame{}, err
	}
	f, err := readFrame(c, h)
	f.charged = charged
	return f, err
}

// used gives back what a frame of the manager took.
func (in *inbox) used(f frame) {
	room := in.small
	if f.large {
		room = in.room
	}
	f.free()
	if f.charged > 0 {
		room.Release(f.charged)
	}
}

// ownMemory is what the keeper may use for itself before it collects its garbage more often.
const ownMemory = 10 << 20

// boundGarbage keeps what the keeper leaves uncollected far below what the code may have.
func boundGarbage(memory int64) {
	if memory > 0 {
		debug.SetMemoryLimit(ownMemory + memory/8)
	}
}
