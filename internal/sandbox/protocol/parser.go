package protocol

import (
	"encoding/binary"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendSpan(b, span []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(span)))
	return append(b, span...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// parser reads the fields of a message one after the other and keeps the first error, so that a message can be parsed
// in one composite literal.
type parser struct {
	r   *value.Reader
	err error
}

func field[T any](p *parser, read func() (T, error)) T {
	var zero T
	if p.err != nil {
		return zero
	}
	v, err := read()
	if err != nil {
		p.err = err
		return zero
	}
	return v
}

func (p *parser) uint() uint64 { return field(p, p.r.Uint) }
func (p *parser) int() int64   { return field(p, p.r.Int) }
func (p *parser) text() string { return field(p, p.r.Text) }
func (p *parser) span() []byte { return field(p, p.r.Span) }

func (p *parser) cut(n int) string { return Cut(p.text(), n) }

func (p *parser) byte() byte {
	return field(p, func() (byte, error) {
		t, err := p.r.Tag()
		return byte(t), err
	})
}

func (p *parser) bool() bool { return p.byte() == 1 }

func (p *parser) number(most uint64) int { return int(min(p.uint(), most)) }

func (p *parser) count(most int) int {
	n := field(p, func() (int, error) { return p.r.Count(1) })
	if n > most {
		p.err = Violation("%d entries", n)
		return 0
	}
	return n
}

// more reports whether there are further fields, which older releases do not send.
func (p *parser) more() bool { return p.err == nil && p.r.Left() > 0 }

// end returns the first error. What follows the fields that this release knows is of a newer one, and is skipped.
func (p *parser) end(what string) error {
	if p.err != nil {
		return Violation("bad %s: %v", what, p.err)
	}
	return nil
}
