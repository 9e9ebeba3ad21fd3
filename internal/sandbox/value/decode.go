package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"unicode/utf8"
)

// ErrMalformed is wrapped by every error about bytes that are not an encoded value, or that exceed the limits.
var ErrMalformed = errors.New("malformed value")

// maxDate is the largest Date in either direction, in milliseconds (ECMA-262).
const maxDate = 8_640_000_000_000_000

// Reader reads encoded values. It trusts nothing: a count is accepted only as far as bytes are left.
type Reader struct {
	buf   []byte
	pos   int
	nodes int
	// Funcs says whether references to functions are accepted.
	Funcs bool
}

// NewReader returns a reader of b. Decoded values do not refer to b.
func NewReader(b []byte) *Reader { return &Reader{buf: b} }

// Decode decodes exactly one value, without functions.
func Decode(b []byte) (any, error) { return decode(b, false) }

// DecodeWithFuncs is Decode that also accepts references to functions.
func DecodeWithFuncs(b []byte) (any, error) { return decode(b, true) }

func decode(b []byte, funcs bool) (any, error) {
	r := NewReader(b)
	r.Funcs = funcs
	v, err := r.Value()
	if err != nil {
		return nil, err
	}
	if r.Left() != 0 {
		return nil, fmt.Errorf("%w: %d bytes left over", ErrMalformed, r.Left())
	}
	return v, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Left returns the number of bytes that are not read yet.
func (r *Reader) Left() int { return len(r.buf) - r.pos }

// Tag reads a tag.
func (r *Reader) Tag() (Tag, error) {
	if r.pos >= len(r.buf) {
		return 0, malformed("it ends early")
	}
	if r.nodes++; r.nodes > MaxNodes {
		return 0, malformed("more than %d values", MaxNodes)
	}
	t := Tag(r.buf[r.pos])
	r.pos++
	return t, nil
}

// Uint reads an unsigned integer.
func (r *Reader) Uint() (uint64, error) {
	n, size := binary.Uvarint(r.buf[r.pos:])
	if size <= 0 {
		return 0, malformed("bad integer")
	}
	r.pos += size
	return n, nil
}

// Int reads a signed integer.
func (r *Reader) Int() (int64, error) {
	n, size := binary.Varint(r.buf[r.pos:])
	if size <= 0 {
		return 0, malformed("bad integer")
	}
	r.pos += size
	return n, nil
}

// Integer reads a number that was written as an integer, which both sides can hold exactly.
func (r *Reader) Integer() (int64, error) {
	n, err := r.Int()
	if err == nil && (n > maxSafe || n < -maxSafe) {
		err = malformed("an integer out of range")
	}
	return n, err
}

// Span reads a length and that many bytes, which remain part of the buffer.
func (r *Reader) Span() ([]byte, error) {
	n, err := r.Uint()
	if err != nil {
		return nil, err
	}
	if n > uint64(r.Left()) {
		return nil, malformed("a length beyond the end")
	}
	b := r.buf[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b, nil
}

// Text reads a length and that many bytes of UTF-8.
func (r *Reader) Text() (string, error) {
	b, err := r.Span()
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", malformed("text that is not UTF-8")
	}
	return string(b), nil
}

// Count reads the count of a container whose members use at least size bytes each.
func (r *Reader) Count(size int) (int, error) {
	n, err := r.Uint()
	if err != nil {
		return 0, err
	}
	if n > uint64(r.Left()/size) {
		return 0, malformed("a count beyond the end")
	}
	if n > uint64(MaxNodes-r.nodes) {
		return 0, malformed("more than %d values", MaxNodes)
	}
	return int(n), nil
}

// Float reads eight bytes.
func (r *Reader) Float() (float64, error) {
	if r.Left() < 8 {
		return 0, malformed("it ends early")
	}
	f := math.Float64frombits(binary.BigEndian.Uint64(r.buf[r.pos:]))
	r.pos += 8
	return f, nil
}

// Date reads the milliseconds of a Date.
func (r *Reader) Date() (int64, error) {
	ms, err := r.Int()
	if err == nil && (ms > maxDate || ms < -maxDate) {
		err = malformed("a date out of range")
	}
	return ms, err
}

// BigInt reads the content of a bigint.
func (r *Reader) BigInt() (*big.Int, error) {
	if r.Left() == 0 {
		return nil, malformed("it ends early")
	}
	sign := r.buf[r.pos]
	r.pos++
	b, err := r.Span()
	if err != nil {
		return nil, err
	}
	if sign > 1 || len(b) > MaxBigIntBytes {
		return nil, malformed("a bigint out of bounds")
	}
	n := new(big.Int).SetBytes(b)
	if sign == 1 {
		n.Neg(n)
	}
	return n, nil
}

// Func reads the content of a reference to a function.
func (r *Reader) Func() (FuncRef, error) {
	if !r.Funcs {
		return 0, malformed("a function where none can be called")
	}
	n, err := r.Uint()
	if err == nil && n > math.MaxInt64 {
		err = malformed("bad function")
	}
	return FuncRef(n), err
}

// Value reads one value.
func (r *Reader) Value() (any, error) { return r.value(0) }

func (r *Reader) value(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, malformed("nested deeper than %d levels", MaxDepth)
	}
	t, err := r.Tag()
	if err != nil {
		return nil, err
	}
	switch t {
	case TagUndefined:
		return Undefined{}, nil
	case TagNull:
		return nil, nil
	case TagFalse:
		return false, nil
	case TagTrue:
		return true, nil
	case TagInt:
		n, err := r.Integer()
		return float64(n), err
	case TagFloat:
		return r.Float()
	case TagString:
		return r.Text()
	case TagBigInt:
		return r.BigInt()
	case TagDate:
		ms, err := r.Date()
		return DateOf(ms), err
	case TagBytes:
		b, err := r.Span()
		return append([]byte{}, b...), err
	case TagArray:
		return r.items(depth)
	case TagSet:
		items, err := r.items(depth)
		return &Set{Members: items}, err
	case TagObject:
		return r.object(depth)
	case TagMap:
		return r.mapping(depth)
	case TagFunc:
		return r.Func()
	}
	return nil, malformed("unknown tag %d", t)
}

// ahead is the largest count of members for which room is allocated before they are read. A frame can claim as many as
// it has bytes left, at every level of its nesting, so containers grow as their members come.
const ahead = 256

// grown returns s with room for one more of n members. It doubles a full slice, so that at most as much again is
// allocated on the way.
func grown[T any](s []T, n int) []T {
	if len(s) < cap(s) {
		return s
	}
	return slices.Grow(s, min(max(len(s), 1), n-len(s)))
}

func (r *Reader) items(depth int) ([]any, error) {
	n, err := r.Count(1)
	if err != nil {
		return nil, err
	}
	items := make([]any, 0, min(n, ahead))
	for range n {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(grown(items, n), v)
	}
	return items, nil
}

func (r *Reader) object(depth int) (any, error) {
	n, err := r.Count(2)
	if err != nil {
		return nil, err
	}
	m := make(map[string]any, min(n, ahead))
	for range n {
		name, err := r.Text()
		if err != nil {
			return nil, err
		}
		if m[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (r *Reader) mapping(depth int) (any, error) {
	n, err := r.Count(2)
	if err != nil {
		return nil, err
	}
	m := &Map{Entries: make([][2]any, 0, min(n, ahead))}
	for range n {
		var entry [2]any
		for side := range entry {
			if entry[side], err = r.value(depth + 1); err != nil {
				return nil, err
			}
		}
		m.Entries = append(grown(m.Entries, n), entry)
	}
	return m, nil
}
