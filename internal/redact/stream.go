package redact

import (
	"strings"
	"unicode/utf8"
)

// Stream redacts a text that arrives in pieces. The zero value is the beginning of a text of a namespace without secrets; Open
// returns one of another.
//
// It always holds back the last bytes of what has arrived, and not only when they begin like a secret. Otherwise a reader who can
// have a text written and sees when it is shown could find out a secret letter by letter.
type Stream struct {
	registry  *Registry
	namespace string
	lines     bool
	held      string // what has arrived and is not decided about
	skip      int    // how many of the next bytes belong to a secret whose beginning was seen
	skipped   bool   // what belongs to a character that skip cut goes too
}

// Open begins a text of a namespace.
func (r *Registry) Open(namespace string) *Stream { return &Stream{registry: r, namespace: namespace} }

// OpenLines begins a text whose lines are to arrive when they are whole, such as events. It holds back what follows the last
// line break, as far as no secret of the namespace has a line break. That does not depend on the text's other bytes.
func (r *Registry) OpenLines(namespace string) *Stream {
	return &Stream{registry: r, namespace: namespace, lines: true}
}

// Next takes the next piece, and returns what can be shown.
func (s *Stream) Next(piece string) string {
	text := s.held + piece
	if s.registry == nil || s.registry.known.Load() == 0 {
		s.held = ""
		return text
	}
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	ix := s.registry.namespaces[s.namespace]
	if ix == nil {
		s.held = ""
		return text
	}
	return s.decide(ix, text)
}

// decide shows what lies before the last window bytes. About each of its bytes it decides with the window bytes that follow.
func (s *Stream) decide(ix *index, text string) string {
	end := len(text) - window
	if s.lines && ix.broken == 0 {
		// A line break is looked for in all that arrived: nothing that spans it is a secret.
		end = max(end, strings.LastIndexByte(text, '\n')+1)
	}
	for n := 0; n < utf8.UTFMax-1 && end > 0 && end < len(text) && !utf8.RuneStart(text[end]); n++ {
		end--
	}
	var out strings.Builder
	i := 0
	for i < len(text) {
		if s.skip > 0 {
			n := min(s.skip, len(text)-i)
			i, s.skip, s.skipped = i+n, s.skip-n, true
			continue
		}
		if s.skipped {
			s.skipped = false
			i = wholeRune(text, i)
			continue
		}
		if i >= end {
			break
		}
		if i+MinLength <= len(text) {
			if n, rest := ix.matchAt(text, i, headOf(text[i:])); n > 0 {
				out.WriteString(Mark)
				if rest > 0 {
					// What follows goes whether or not it is the rest of the secret, so that nothing tells.
					n, s.skip = window, rest
				}
				i += n
				continue
			}
		}
		out.WriteByte(text[i])
		i++
	}
	s.held = text[i:]
	return out.String()
}

// End returns the rest of a text that has ended.
func (s *Stream) End() string {
	rest := s.held
	s.held, s.skip, s.skipped = "", 0, false
	return s.registry.Text(s.namespace, rest)
}
