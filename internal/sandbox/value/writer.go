package value

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// Writer appends encoded values to a buffer. A container is announced with its count, and the caller must then append
// that many values.
type Writer struct {
	Buf []byte
	// Grow, if not nil, returns a buffer with the same content and room for n more bytes, for buffers that are
	// counted. Once it returns false, nothing more is written.
	Grow func(buf []byte, n int) ([]byte, bool)
	full bool
}

// Full reports whether Grow has failed, so that Buf is incomplete.
func (w *Writer) Full() bool { return w.full }

// makeRoom makes room for n more bytes, a tag and a length. It calls Grow when the buffer is too small. It returns false from the
// first failure of Grow on.
func (w *Writer) makeRoom(n int) bool {
	n += 2 * binary.MaxVarintLen64
	if w.Grow == nil || w.full || cap(w.Buf)-len(w.Buf) >= n {
		return !w.full
	}
	buf, ok := w.Grow(w.Buf, n)
	w.Buf, w.full = buf, !ok
	return ok
}

// Tag appends a bare tag: undefined, null, false or true.
func (w *Writer) Tag(t Tag) {
	if w.makeRoom(0) {
		w.Buf = append(w.Buf, byte(t))
	}
}

// Number appends a number.
func (w *Writer) Number(f float64) {
	if n := int64(f); float64(n) == f && n >= -maxSafe && n <= maxSafe && (n != 0 || !math.Signbit(f)) {
		w.Int(n)
		return
	}
	if w.makeRoom(8) {
		w.Buf = binary.BigEndian.AppendUint64(append(w.Buf, byte(TagFloat)), math.Float64bits(f))
	}
}

// Int appends a number that is an integer of at most 2^53 in either direction.
func (w *Writer) Int(n int64) {
	if w.makeRoom(0) {
		w.Buf = binary.AppendVarint(append(w.Buf, byte(TagInt)), n)
	}
}

// String appends a string. Bytes that are not UTF-8 become U+FFFD.
func (w *Writer) String(s string) {
	w.Tag(TagString)
	w.text(s)
}

func (w *Writer) text(s string) {
	s = WellFormed(s)
	if w.makeRoom(len(s)) {
		w.Buf = append(binary.AppendUvarint(w.Buf, uint64(len(s))), s...)
	}
}

// Name appends a property name of an object.
func (w *Writer) Name(s string) { w.text(s) }

// Bytes appends bytes.
func (w *Writer) Bytes(b []byte) {
	if w.makeRoom(len(b)) {
		w.Buf = append(binary.AppendUvarint(append(w.Buf, byte(TagBytes)), uint64(len(b))), b...)
	}
}

// BigInt appends a bigint.
func (w *Writer) BigInt(negative bool, magnitude []byte) {
	sign := byte(0)
	if negative {
		sign = 1
	}
	if w.makeRoom(len(magnitude)) {
		w.Buf = append(binary.AppendUvarint(append(w.Buf, byte(TagBigInt), sign), uint64(len(magnitude))), magnitude...)
	}
}

// Date appends a Date.
func (w *Writer) Date(ms int64) {
	if w.makeRoom(0) {
		w.Buf = binary.AppendVarint(append(w.Buf, byte(TagDate)), ms)
	}
}

// Open announces a container with n members (entries, for objects and maps).
func (w *Writer) Open(t Tag, n int) {
	if w.makeRoom(0) {
		w.Buf = binary.AppendUvarint(append(w.Buf, byte(t)), uint64(n))
	}
}

// Func appends a reference to a function.
func (w *Writer) Func(ref FuncRef) {
	if w.makeRoom(0) {
		w.Buf = binary.AppendUvarint(append(w.Buf, byte(TagFunc)), uint64(ref))
	}
}

// WellFormed replaces each byte sequence that is not UTF-8 by U+FFFD. The three bytes of a lone surrogate (the
// engine's form of one) become a single U+FFFD.
func WellFormed(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			if s[i] == 0xED && i+2 < len(s) && s[i+1]&0xC0 == 0x80 && s[i+2]&0xC0 == 0x80 {
				n = 3
			}
			out = utf8.AppendRune(out, utf8.RuneError)
		} else {
			out = append(out, s[i:i+n]...)
		}
		i += n
	}
	return string(out)
}
