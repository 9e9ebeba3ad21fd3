// Package protocol is the protocol between manager, supervisor and child: frames over one HTTP/2 stream between
// manager and supervisor, and the same frames over two pipes between supervisor and child.
//
// A frame has four bytes of length (big endian, of everything that follows), one byte of type, and the content. The
// supervisor passes frames on. It reads only their type, and of an Open the limits and the sources of a run. Everything that comes from a child
// is hostile: each type has a direction and a size, and the parsers limit every count and text.
package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Type is the type of a frame.
type Type byte

// Frames from the manager to the child.
const (
	TypeOpen      Type = 1 // first frame of a stream: what to run
	TypeReply     Type = 2 // the result of a host call
	TypeTerminate Type = 3 // end the code, with a reason
	TypeDescribe  Type = 4 // isolate: describe what a module declares
	TypeInvoke    Type = 5 // isolate: run a module's definition
	TypeCall      Type = 6 // isolate: call a function that the code passed to the host
)

// Frames from the child to the manager. Ready is for the supervisor.
const (
	TypeReady    Type = 16 // the child is locked down and waits
	TypeStarted  Type = 17 // code of the request is about to run
	TypeHostCall Type = 18 // call a function of the host
	TypeReport   Type = 19 // report(value)
	TypeLog      Type = 20 // console
	TypeSettled  Type = 21 // isolate: the result of Describe, Invoke or Call
	TypeDone     Type = 22 // the last frame of a child
)

// TypeGone is the supervisor's last frame when the child ended without Done.
const TypeGone Type = 32

// Sizes. MaxFrame has room for the largest value and what is sent with it.
const (
	MaxFrame      = value.MaxBytes + 8<<20
	maxSmallFrame = 512 << 10
	headerSize    = 5
)

// FromManager reports whether a manager may send this type.
func (t Type) FromManager() bool { return t >= TypeOpen && t <= TypeCall }

// FromChild reports whether a child may send this type to its manager.
func (t Type) FromChild() bool { return t >= TypeStarted && t <= TypeDone }

// maxSize returns the size of the largest frame of a type, including the type byte.
func (t Type) maxSize() int {
	switch t {
	case TypeTerminate, TypeDescribe, TypeReady, TypeStarted, TypeLog, TypeGone:
		return maxSmallFrame
	}
	return MaxFrame
}

// ErrProtocol is wrapped by every error about a peer that breaks the protocol.
var ErrProtocol = errors.New("sandbox protocol violation")

// Violation returns an error that wraps ErrProtocol.
func Violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Header is the beginning of a frame.
type Header struct {
	Type Type
	Size int // of the content
}

// ReadHeader reads a header and checks its size. io.EOF means that the stream ended between frames.
func ReadHeader(r io.Reader) (Header, error) {
	var raw [headerSize]byte
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return Header{}, err
	}
	h := Header{Type: Type(raw[4])}
	size := binary.BigEndian.Uint32(raw[:4])
	if size < 1 || int64(size) > int64(h.Type.maxSize()) {
		return Header{}, Violation("frame of type %d with %d bytes", h.Type, size)
	}
	h.Size = int(size) - 1
	return h, nil
}

// ReadContent reads the content of a frame. Its memory grows with what arrives, not with the announced size.
func ReadContent(r io.Reader, h Header) ([]byte, error) { return readContent(r, h, nil) }

// readContent is ReadContent that calls draw, unless that is nil, before it allocates so many more bytes.
func readContent(r io.Reader, h Header, draw func(n int) error) ([]byte, error) {
	if draw != nil {
		if err := draw(min(h.Size, maxSmallFrame)); err != nil {
			return nil, err
		}
	}
	if h.Size <= maxSmallFrame {
		b := make([]byte, h.Size)
		_, err := io.ReadFull(r, b)
		return b, noEOF(err)
	}
	b := make([]byte, 0, maxSmallFrame)
	for len(b) < h.Size {
		if len(b) == cap(b) {
			grown := min(2*cap(b), h.Size)
			if draw != nil {
				if err := draw(grown - cap(b)); err != nil {
					return nil, err
				}
			}
			b = append(make([]byte, 0, grown), b...)
		}
		n, err := io.ReadFull(r, b[len(b):min(cap(b), h.Size)])
		b = b[:len(b)+n]
		if err != nil {
			return nil, noEOF(err)
		}
	}
	return b, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadBuffer is the size of the buffer of what reads frames. Most frames are much smaller, and the contents of larger ones are read past the
// buffer. Each execution takes a few buffers, which are most of its garbage. With a quarter of this size, 9,000 reports took a fifth more of a
// processor (ADR 87).
const ReadBuffer = 16 << 10

// Conn reads and writes frames. One goroutine may read; any number may write.
type Conn struct {
	r     *bufio.Reader
	mu    sync.Mutex
	w     io.Writer
	flush func() error
}

// NewConn returns a Conn. r is nil for a Conn that only writes, and flush may be nil.
func NewConn(r io.Reader, w io.Writer, flush func() error) *Conn {
	c := &Conn{w: w, flush: flush}
	if r != nil {
		c.r = bufio.NewReaderSize(r, ReadBuffer)
	}
	return c
}

// Read reads a frame.
func (c *Conn) Read() (Type, []byte, error) {
	h, err := ReadHeader(c.r)
	if err != nil {
		return 0, nil, err
	}
	b, err := ReadContent(c.r, h)
	return h.Type, b, err
}

// ReadHeader reads the header of a frame. The caller must read the content next.
func (c *Conn) ReadHeader() (Header, error) { return ReadHeader(c.r) }

// ReadContent reads the content of the frame with header h.
func (c *Conn) ReadContent(h Header) ([]byte, error) { return ReadContent(c.r, h) }

// ReadDrawn is ReadContent that calls draw before it allocates so many more bytes, and returns its error.
func (c *Conn) ReadDrawn(h Header, draw func(n int) error) ([]byte, error) {
	return readContent(c.r, h, draw)
}

// ReadInto fills b with the content, or with a part of it.
func (c *Conn) ReadInto(b []byte) error {
	_, err := io.ReadFull(c.r, b)
	return noEOF(err)
}

// Skip skips n bytes of the content.
func (c *Conn) Skip(n int64) error {
	_, err := io.CopyN(io.Discard, c.r, n)
	return noEOF(err)
}

// Write writes a frame. It does not keep the content.
func (c *Conn) Write(t Type, content []byte) error { return c.WriteParts(t, content, nil) }

// WriteParts writes a frame whose content is head followed by body, without copying a large body.
func (c *Conn) WriteParts(t Type, head, body []byte) error {
	if err := t.checkSize(len(head) + len(body)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeFrame(c.w, t, head, body, c.flush)
}

// NewFrame returns a reader of one frame. It does not copy a large content. The content must not change until it has been read.
func NewFrame(t Type, content []byte) (io.Reader, error) {
	if err := t.checkSize(len(content)); err != nil {
		return nil, err
	}
	first, rest := parts(t, nil, content)
	if rest == nil {
		return bytes.NewReader(first), nil
	}
	return io.MultiReader(bytes.NewReader(first), bytes.NewReader(rest)), nil
}

// checkSize returns an error when the content of a frame is too large for the type of the frame.
func (t Type) checkSize(size int) error {
	if size+1 > t.maxSize() {
		return fmt.Errorf("a sandbox message of %d bytes is too large: at most %d MiB cross at once", size, MaxFrame>>20)
	}
	return nil
}

func writeFrame(w io.Writer, t Type, head, body []byte, flush func() error) error {
	first, rest := parts(t, head, body)
	if _, err := w.Write(first); err != nil {
		return err
	}
	if rest != nil {
		if _, err := w.Write(rest); err != nil {
			return err
		}
	}
	if flush == nil {
		return nil
	}
	return flush()
}

// parts returns a frame in the pieces in which it is written. A small frame is one piece: one system call on a pipe, one DATA frame on HTTP/2.
// rest is nil then.
func parts(t Type, head, body []byte) (first, rest []byte) {
	if len(head) > maxSmallFrame {
		head, body = nil, append(head, body...)
	}
	small := len(head)+len(body) <= maxSmallFrame
	room := headerSize + len(head)
	if small {
		room += len(body)
	}
	first = make([]byte, headerSize, room)
	binary.BigEndian.PutUint32(first, uint32(len(head)+len(body)+1))
	first[4] = byte(t)
	first = append(first, head...)
	if small {
		return append(first, body...), nil
	}
	return first, body
}

// Copy passes on a frame whose header was read from r, without holding it in memory.
func Copy(w io.Writer, r io.Reader, h Header) error {
	if h.Size <= maxSmallFrame {
		b, err := ReadContent(r, h)
		if err != nil {
			return err
		}
		return writeFrame(w, h.Type, nil, b, nil)
	}
	var raw [headerSize]byte
	binary.BigEndian.PutUint32(raw[:], uint32(h.Size+1))
	raw[4] = byte(h.Type)
	if _, err := w.Write(raw[:]); err != nil {
		return err
	}
	_, err := io.CopyN(w, r, int64(h.Size))
	return noEOF(err)
}
