package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
)

// beat begins a line that says what is still running.
const beat = "     … "

// screen prints the output of one tier as it comes, and buffers the output of others until that one has ended, so
// that the output of a tier stays together. Only lines that say what is still running are printed for all tiers at
// once. mu guards its fields and those of its views.
type screen struct {
	out io.Writer

	mu    sync.Mutex
	live  *view
	views []*view // those that are not over, or not printed yet
}

// view receives the output of one tier.
type view struct {
	screen     *screen
	name, what string
	line       []byte // the last line, until it is complete
	kept       bytes.Buffer
	ended      bool
}

// begin returns a new view for a tier. It is live unless another one is.
func (s *screen) begin(name, what string) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &view{screen: s, name: name, what: what}
	s.views = append(s.views, v)
	if s.live == nil {
		s.show(v)
	}
	return v
}

// show makes a view live: it prints its heading and its output so far.
func (s *screen) show(v *view) {
	s.live = v
	fmt.Fprintf(s.out, "\n=== %s: %s\n", v.name, v.what)
	_, _ = s.out.Write(v.kept.Bytes())
	v.kept.Reset()
}

// Write takes the output of a tier. Lines are printed when they are complete.
func (v *view) Write(p []byte) (int, error) {
	v.screen.mu.Lock()
	defer v.screen.mu.Unlock()
	v.line = append(v.line, p...)
	end := bytes.LastIndexByte(v.line, '\n') + 1
	for line := range bytes.Lines(v.line[:end]) {
		v.say(line)
	}
	v.line = append(v.line[:0], v.line[end:]...)
	return len(p), nil
}

func (v *view) say(line []byte) {
	if v.screen.live == v || bytes.HasPrefix(line, []byte(beat)) {
		_, _ = v.screen.out.Write(line)
		return
	}
	v.kept.Write(line)
}

// end marks the tier as over, with its result. If it was live, the output of tiers that ended meanwhile is printed.
// If no other tier of its lane follows, another view becomes live.
func (v *view) end(verdict string, last bool) {
	s := v.screen
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(v.line) > 0 {
		v.say(append(v.line, '\n'))
		v.line = nil
	}
	v.ended = true
	if s.live != nil && s.live != v {
		fmt.Fprintf(s.out, "%s%s; what it said follows %s\n", beat, verdict, s.live.name)
		return
	}
	if s.live == v {
		s.live = nil
		s.views = slices.DeleteFunc(s.views, func(o *view) bool { return o == v })
	}
	s.views = slices.DeleteFunc(s.views, func(o *view) bool {
		if o.ended {
			s.show(o)
			s.live = nil
		}
		return o.ended
	})
	if last && len(s.views) > 0 {
		s.show(s.views[0])
	}
}
