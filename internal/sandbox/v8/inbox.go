//go:build linux && (amd64 || arm64)

package v8

import (
	"context"
	"runtime/debug"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// Frames that pass through the keeper use its memory, which the watch of the engine does not see and no limit of V8
// covers. Code may request much and read nothing. So at most maxWaiting bytes of the manager's frames wait for a busy
// engine, further frames wait at the manager, and one frame at a time is on its way out.

const (
	// largeFrame is the minimum size of a frame with its own mapping, which is freed as soon as the frame was used.
	largeFrame = 64 << 10
	// maxFrames is how many frames may wait, large or small. It is more than code can have requested, so that a
	// Terminate is read however many unread answers came before it.
	maxFrames = 2048
	// maxSmall limits the waiting bytes of frames below largeFrame, including what each uses besides its content.
	maxSmall   = 4 << 20
	frameBytes = 128
	// maxWaiting limits the waiting bytes of large frames, unless the code's own limit is lower. A frame that is
	// larger waits alone.
	maxWaiting = 16 << 20
)

type frame struct {
	typ     protocol.Type
	content []byte
	large   bool  // whether content is a mapping
	charged int64 // what it takes of the room for such frames
}

// readFrame reads the content that h announces.
func readFrame(c *protocol.Conn, h protocol.Header) (frame, error) {
	f := frame{typ: h.Type}
	var err error
	if h.Size < largeFrame {
		f.content, err = c.ReadContent(h)
		return f, err
	}
	// Pages are allocated as they fill, so that a frame that announces more than it sends uses only what it sends.
	if f.content, err = unix.Mmap(-1, 0, h.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return f, err
	}
	f.large = true
	if err = c.ReadInto(f.content); err != nil {
		f.free()
	}
	return f, err
}

// free frees the content, which must not be read any more.
func (f *frame) free() {
	if f.large {
		_ = unix.Munmap(f.content)
	}
	f.large, f.content = false, nil
}

// inbox holds the manager's waiting frames.
type inbox struct {
	frames chan frame
	room   *semaphore.Weighted // bytes of large frames
	small  *semaphore.Weighted // bytes of the others
	size   int64
	life   context.Context // ends with the keeper
	die    context.CancelFunc
}

// newInbox returns an inbox for code with a memory limit in bytes. 0 means no limit.
func newInbox(memory int64) *inbox {
	in := &inbox{frames: make(chan frame, maxFrames), size: maxWaiting, small: semaphore.NewWeighted(maxSmall)}
	if memory > 0 {
		in.size = min(memory, maxWaiting)
	}
	in.room = semaphore.NewWeighted(in.size)
	in.life, in.die = context.WithCancel(context.Background())
	return in
}

// untilTerminate receives the manager's frames until its Terminate, and returns the reason. It does not wait until
// earlier frames are read. An error means that the manager disappeared, or that the keeper ended.
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

// read reads the manager's next frame, once there is room for it. A Terminate always has room.
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

// used frees the room of a frame.
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

// ownMemory is what the keeper itself may use before it collects garbage more often.
const ownMemory = 10 << 20

// boundGarbage keeps the uncollected garbage of the keeper far below the memory of the code.
func boundGarbage(memory int64) {
	if memory > 0 {
		debug.SetMemoryLimit(ownMemory + memory/8)
	}
}
