package modellimit

import (
	"sync"

	"github.com/skein-dev/skein/internal/model"
)

// longest is how many calls of a Model wait for their turn in this process while others, which may come later, are turned
// away: enough to have one ready whenever a permit is given back.
const longest = 32

// line of the calls of one Model in this process.
type line struct {
	door  chan struct{} // whoever is first holds it; Go lets waiting senders in by their order
	freed chan struct{} // something was given back

	mu     sync.Mutex
	inside int // calls that wait for their turn
	away   []*model.Later
	places map[string]bool // of whom is away
}

func newLine() *line {
	return &line{door: make(chan struct{}, 1), freed: make(chan struct{}, 1), places: map[string]bool{}}
}

// enter takes a place in the line; false when the call was turned away, which has one among those that are away then.
func (l *line) enter(later *model.Later, longest int) bool {
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

func (l *line) full(longest int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inside >= longest
}

// leave gives the place up, and calls in those who are away: one, or two where the line has become short, since those who
// are called in need not come.
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
		l.away = nil // what it has grown to is not kept
	}
	for _, c := range called {
		delete(l.places, c.Key)
	}
	l.mu.Unlock()
	for _, c := range called {
		c.Again()
	}
}
