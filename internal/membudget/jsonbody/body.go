// Package jsonbody reads JSON of others, such as answers of models and MCP servers, and draws the memory that it takes from the
// account of the work that it is for.
package jsonbody

import (
	"context"
	"errors"
	"io"

	"github.com/skein-dev/skein/internal/membudget"
)

// Body is the body of an answer that is JSON, or server-sent events with JSON in them. Reading it draws what it takes: the text, and
// what the text becomes when it is decoded. Events are decoded one by one, so what an event has taken is returned when the
// one behind it is whole. The last one stays drawn, and so does a body that is not events, until the account is closed.
type Body struct {
	io.ReadCloser
	// Context bounds how long a draw waits.
	Context context.Context
	Account *membudget.Account
	// Events says that the body is server-sent events.
	Events bool
	// Lines says that the body is lines of JSON. They count as events do.
	Lines bool
	// Keep reports whether the reader keeps the text of events. Then the text stays drawn until the account is closed.
	Keep bool
	// OnWait is called before a draw that waits. It may be nil.
	OnWait func()
	// OnRefused is called once, with why there is no memory. It may be nil.
	OnRefused func(error)
	// OnClose is called when the body is closed. It may be nil.
	OnClose func()

	meter         membudget.JSONMeter
	begun         bool  // the present line has some bytes
	event, before int64 // what is returned of the present event, and of the one before it
	largest       int64
	refused       error
}

// Read implements io.Reader. It returns the error of the draw when there is no memory.
func (b *Body) Read(p []byte) (int, error) {
	if b.refused != nil {
		return 0, b.refused
	}
	n, err := b.ReadCloser.Read(p)
	if b.Account == nil || n == 0 {
		return n, err
	}
	if refused := b.draw(p[:n]); refused != nil {
		b.refused = refused
		if b.OnRefused != nil {
			b.OnRefused(refused)
		}
		return 0, refused
	}
	return n, err
}

// draw draws what the reader makes of text: the bytes, and the values that they decode to. When an event ends, it returns what it
// drew for the event before. The reader may still use the one that has just ended.
func (b *Body) draw(text []byte) error {
	for len(text) > 0 {
		piece, ends := text, false
		if b.Events || b.Lines {
			piece, ends = b.upToEnd(text)
		}
		cost := b.meter.Cost(piece)
		if err := b.take(int64(len(piece)) + cost); err != nil {
			return err
		}
		b.event += cost
		if !b.Keep {
			b.event += int64(len(piece))
		}
		b.largest = max(b.largest, b.event)
		if ends {
			b.Account.Return(b.before)
			b.before, b.event, b.meter = b.event, 0, membudget.JSONMeter{}
		}
		text = text[len(piece):]
	}
	return nil
}

// take draws n bytes. If there is no memory at once, it says so with OnWait and waits. It returns nil when the work has ended, whose rest of
// the body is not read.
func (b *Body) take(n int64) error {
	err := b.Account.TryDraw(n)
	var busy *membudget.BusyError
	if errors.As(err, &busy) {
		if b.OnWait != nil {
			b.OnWait()
		}
		err = b.Account.Draw(b.Context, n)
	}
	if errors.Is(err, membudget.ErrClosed) {
		return nil // the work has ended: the reader discards the rest of the body
	}
	return err
}

// Largest returns how many bytes of memory the largest event or line has taken so far.
func (b *Body) Largest() int64 { return b.largest }

// upToEnd returns the text up to the end of the present event or, with Lines, of the present line, and whether the text has that end. An
// event ends with an empty line.
func (b *Body) upToEnd(text []byte) (piece []byte, ends bool) {
	for i, c := range text {
		switch c {
		case '\n':
			if !b.begun || b.Lines {
				return text[:i+1], true
			}
			b.begun = false
		case '\r':
		default:
			b.begun = true
		}
	}
	return text, false
}

// Close implements io.Closer.
func (b *Body) Close() error {
	if b.OnClose != nil {
		b.OnClose()
	}
	return b.ReadCloser.Close()
}
