package client

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// freeFrame is the largest frame that is read without drawing its memory. A stream holds one at a time.
const freeFrame = 64 << 10

// frame is a frame as it was read. Its content is drawn from the account of the stream, and must be returned.
type frame struct {
	kind    protocol.Type
	content []byte
	drawn   int64
}

// next reads a frame. The memory of a large one is drawn while it is read. While there is none, the stream is not read, so
// that the sandbox has to wait.
func (s *stream) next() (f frame, err error) {
	h, err := s.ReadHeader()
	if err != nil {
		return f, err
	}
	f.kind = h.Type
	if h.Size <= freeFrame {
		f.content, err = s.ReadContent(h)
		return f, err
	}
	a := membudget.From(s.ctx)
	f.content, err = s.ReadDrawn(h, func(n int) error {
		err := a.Draw(s.ctx, int64(n))
		if err == nil {
			f.drawn += int64(n)
		}
		return err
	})
	if err != nil {
		s.release(f)
	}
	return f, err
}

// release returns the memory of a frame.
func (s *stream) release(f frame) { membudget.From(s.ctx).Return(f.drawn) }

// decode decodes a value that does not take too much memory. What it takes is drawn from the account of ctx, and stays
// drawn until that is closed.
func decode(ctx context.Context, b []byte) (any, error) {
	cost, err := value.CheckCost(b)
	if err != nil {
		return nil, err
	}
	a := membudget.From(ctx)
	if err := a.Draw(ctx, cost); err != nil {
		return nil, err
	}
	v, err := value.Decode(b)
	if err != nil {
		a.Return(cost)
	}
	return v, err
}

// answers draws the memory of what a function of the host returns, from the account of a call. Small buffers are free.
type answers struct{ ctx context.Context }

// Draw implements value.Memory.
func (a answers) Draw(n int64) error {
	if n <= freeFrame {
		return nil
	}
	return membudget.From(a.ctx).Draw(a.ctx, n)
}

// Return implements value.Memory.
func (a answers) Return(n int64) {
	if n > freeFrame {
		membudget.From(a.ctx).Return(n)
	}
}

// short returns what code sees of an error that says that there is no memory for a value, or nil for other errors.
func short(err error) *sandbox.Error {
	var busy *membudget.BusyError
	var large *membudget.TooLargeError
	switch {
	case errors.Is(err, value.ErrTooLarge), errors.As(err, &large):
		return &sandbox.Error{Name: "RangeError", Message: err.Error()}
	case errors.As(err, &busy):
		return &sandbox.Error{Name: "RangeError", Message: "the program's values need more memory than there is: " + err.Error()}
	}
	return nil
}
