package modellimit

import (
	"sync"

	"github.com/skein-dev/skein/internal/model"
)

// longest is how many calls of a Model wait for their turn in this process. Beyond that, calls that may come later are
// turned away. It is enough to have a call ready whenever a permit is returned.
const longest = 32

// line has the calls of one Model that wait in this process.
type line struct {
	door  chan struct{} // the first call in the line holds it; Go serves waiting senders in their order
	freed chan struct{} // receives a value when a call of this process has returned its permit

	mu     sync.Mutex
	inside int               // calls that wait for their turn
	away   []*model.Deferral // calls that were turned away, in order
	places map[string]bool   // keys of the calls in away
}

func newLine() *line {
	return &line{door: make(chan struct{}, 1), freed: make(chan struct{}, 1), places: map[string]bool{}}
}

// enter takes a place in the line and returns true. If the line is full and later is not nil, it adds the call to those that
// were turned away and returns false.
func (l *line) enter(later *model.Deferral, longest int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if later != nil && l.inside >= longest {
		later.Full = func() bool { return l.full(longest) }
		if !l.places[later.Key] {
			l.places[later.Key] = true
			l.away = append(l.away, later)
		}
		return false
	}
	l.inside++
	return true
}

// full reports whether the line has as many calls as it may.
func (l *line) full(longest int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inside >= longest
}

// leave gives up a place in the line, and tells the first of the calls that were turned away to come again. If the line has become
// short it tells two, because not every call that is told comes again.
func (l *line) leave(longest int) {
	l.mu.Lock()
	l.inside--
	n := 1
	if l.inside < longest/2 {
		n = 2
	}
	n = min(n, len(l.away))
	called := l.away[:n:n]
	if l.away = l.away[n:]; len(l.away) == 0 {
		l.away = nil // frees the array, which may have grown large
	}
	for _, c := range called {
		delete(l.places, c.Key)
	}
	l.mu.Unlock()
	for _, c := range called {
		c.Again()
	}
}
