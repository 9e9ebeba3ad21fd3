package redact

import (
	"slices"
	"strings"
)

// index finds many texts in another text. Values come and go while texts are searched, so nothing is compiled. Every
// form is found by its first bytes, and a bit filter skips nearly all places where none begins. A search costs about
// the same for one value as for a thousand. The Registry's lock guards an index.
type index struct {
	bits   uint
	filter []uint64
	heads  map[uint64][]form // by the first MinLength bytes, longest first
	forms  map[string]int    // how often each form was added
	// starts counts the beginnings of forms, shorter than MinLength: a streamed text may end with them.
	starts map[string]int
}

type form struct{ text, mark string }

func newIndex(bits uint) *index {
	return &index{bits: bits, filter: make([]uint64, 1<<bits/64), heads: map[uint64][]form{}, forms: map[string]int{}, starts: map[string]int{}}
}

func headOf(s string) (h uint64) {
	for i := range MinLength {
		h |= uint64(s[i]) << (8 * i)
	}
	return h
}

func (ix *index) slot(head uint64) uint64 { return head * 0x9E3779B97F4A7C15 >> (64 - ix.bits) }

func (ix *index) add(text, mark string) {
	if ix.forms[text]++; ix.forms[text] > 1 {
		return
	}
	head := headOf(text)
	list := append(slices.Clone(ix.heads[head]), form{text, mark})
	slices.SortStableFunc(list, func(a, b form) int { return len(b.text) - len(a.text) })
	ix.heads[head] = list
	slot := ix.slot(head)
	ix.filter[slot/64] |= 1 << (slot % 64)
	for n := 1; n < MinLength; n++ {
		ix.starts[text[:n]]++
	}
}

// remove does not clear bits of the filter: an extra bit only costs a lookup.
func (ix *index) remove(text string) {
	if ix.forms[text]--; ix.forms[text] > 0 {
		return
	}
	delete(ix.forms, text)
	head := headOf(text)
	ix.heads[head] = slices.DeleteFunc(slices.Clone(ix.heads[head]), func(f form) bool { return f.text == text })
	if len(ix.heads[head]) == 0 {
		delete(ix.heads, head)
	}
	for n := 1; n < MinLength; n++ {
		if ix.starts[text[:n]]--; ix.starts[text[:n]] == 0 {
			delete(ix.starts, text[:n])
		}
	}
}

// replace replaces all forms with their marks. The leftmost form wins, and at one place the longest.
func (ix *index) replace(s string) string {
	if len(s) < MinLength {
		return s
	}
	var out strings.Builder
	done := 0
	head := headOf(s)
	for i := 0; ; {
		if f := ix.at(s, i, head); f != nil {
			out.WriteString(s[done:i])
			out.WriteString(f.mark)
			i += len(f.text)
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

// at returns the longest form that begins at a place.
func (ix *index) at(s string, i int, head uint64) *form {
	slot := ix.slot(head)
	if ix.filter[slot/64]&(1<<(slot%64)) == 0 {
		return nil
	}
	list := ix.heads[head]
	for k := range list {
		if strings.HasPrefix(s[i:], list[k].text) {
			return &list[k]
		}
	}
	return nil
}

// stream is replace for a text that continues.
func (ix *index) stream(s string) (ready, held string) {
	s = ix.replace(s)
	for i := range len(s) {
		if ix.begins(s[i:]) {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// begins reports whether a text is the beginning of a form.
func (ix *index) begins(s string) bool {
	if len(s) < MinLength {
		return ix.starts[s] > 0
	}
	for _, f := range ix.heads[headOf(s)] {
		if len(f.text) > len(s) && strings.HasPrefix(f.text, s) {
			return true
		}
	}
	return false
}
