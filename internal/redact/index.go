package redact

import (
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// Mark stands in the place of every secret. It does not say which one it was: its reader may not know what secrets
	// there are.
	Mark = "[redacted]"
	// window is how much of a text is looked at to decide about its first byte. Of a longer form the first window bytes count
	// as the whole.
	window = 64
)

// index finds many texts in another text. Values come and go while texts are searched, so nothing is compiled. Every
// form is found by its first bytes, and a bit filter skips nearly all places where none begins. A search costs about
// the same for one value as for a thousand. The Registry's lock guards an index.
type index struct {
	bits   uint
	filter []uint64
	heads  map[uint64][]string // by the first MinLength bytes, longest first
	forms  map[string]int      // how often each form was added
	broken int                 // how many of the forms have a line break
}

func newIndex(bits uint) *index {
	return &index{bits: bits, filter: make([]uint64, 1<<bits/64), heads: map[uint64][]string{}, forms: map[string]int{}}
}

func headOf(s string) (h uint64) {
	for i := range MinLength {
		h |= uint64(s[i]) << (8 * i)
	}
	return h
}

func (ix *index) slot(head uint64) uint64 { return head * 0x9E3779B97F4A7C15 >> (64 - ix.bits) }

func (ix *index) add(form string) {
	if ix.forms[form]++; ix.forms[form] > 1 {
		return
	}
	head := headOf(form)
	list := append(slices.Clone(ix.heads[head]), form)
	slices.SortStableFunc(list, func(a, b string) int { return len(b) - len(a) })
	ix.heads[head] = list
	slot := ix.slot(head)
	ix.filter[slot/64] |= 1 << (slot % 64)
	if strings.Contains(form, "\n") {
		ix.broken++
	}
}

// remove does not clear bits of the filter: an extra bit only costs a lookup.
func (ix *index) remove(form string) {
	if ix.forms[form]--; ix.forms[form] > 0 {
		return
	}
	delete(ix.forms, form)
	head := headOf(form)
	ix.heads[head] = slices.DeleteFunc(slices.Clone(ix.heads[head]), func(f string) bool { return f == form })
	if len(ix.heads[head]) == 0 {
		delete(ix.heads, head)
	}
	if strings.Contains(form, "\n") {
		ix.broken--
	}
}

// replace replaces all forms with the mark. The leftmost form wins, and at one place the longest.
func (ix *index) replace(s string) string {
	if len(s) < MinLength {
		return s
	}
	var out strings.Builder
	done := 0
	head := headOf(s)
	for i := 0; ; {
		if n, _ := ix.matchAt(s, i, head); n > 0 {
			out.WriteString(s[done:i])
			out.WriteString(Mark)
			i = wholeRune(s, i+n)
			done = i
			if i+MinLength > len(s) {
				break
			}
			head = headOf(s[i:])
			continue
		}
		if i+MinLength >= len(s) {
			break
		}
		head = head>>8 | uint64(s[i+MinLength])<<(8*(MinLength-1))
		i++
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// wholeRune returns the first place from i on at which a character begins: a form that was cut can end within one.
func wholeRune(s string, i int) int {
	for n := 0; n < utf8.UTFMax-1 && i < len(s) && !utf8.RuneStart(s[i]); n++ {
		i++
	}
	return i
}

// matchAt returns how many bytes at s[i:] are a secret, 0 for none. Where several forms match, the longest counts. A form longer
// than window already matches with its first window bytes, because a stream may not have the rest yet. rest is how much of the
// longest such form follows these.
func (ix *index) matchAt(s string, i int, head uint64) (n, rest int) {
	slot := ix.slot(head)
	if ix.filter[slot/64]&(1<<(slot%64)) == 0 {
		return 0, 0
	}
	for _, form := range ix.heads[head] {
		if len(form) > window && strings.HasPrefix(s[i:], form[:window]) {
			rest = max(rest, len(form)-window)
			n = max(n, window)
		}
		if len(form) > n && strings.HasPrefix(s[i:], form) {
			n = len(form)
		}
	}
	return n, rest
}
