package flow

import (
	"context"
	"fmt"
	"sync"
)

// Lines lets what must be asked of a server that all share wait in lines of their own, one for each name. Of a line only the first few are
// asked, so whoever asks much waits for himself. A Lines is safe for concurrent use.
type Lines struct {
	atOnce, most int

	mu    sync.Mutex
	lines map[string]*line
}

// line is what one name asks.
type line struct {
	places chan struct{}
	in     int // under way or waiting
}

// NewLines returns lines of which atOnce are under way at once, and most at most are under way or wait.
func NewLines(atOnce, most int) *Lines {
	return &Lines{atOnce: atOnce, most: most, lines: map[string]*line{}}
}

// Enter waits for a place in the line of a name. The place is taken until leave is called.
func (l *Lines) Enter(ctx context.Context, name string) (leave func(), err error) {
	in, err := l.join(name)
	if err != nil {
		return nil, err
	}
	select {
	case in.places <- struct{}{}:
		return func() {
			<-in.places
			l.part(name, in)
		}, nil
	case <-ctx.Done():
		l.part(name, in)
		return nil, ctx.Err()
	}
}

func (l *Lines) join(name string) (*line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.lines[name]
	if in == nil {
		in = &line{places: make(chan struct{}, l.atOnce)}
		l.lines[name] = in
	}
	if in.in >= l.most {
		return nil, fmt.Errorf("%d requests of %q wait until the API server has said who sends them and what they may do: make fewer at once", l.most, name)
	}
	in.in++
	return in, nil
}

func (l *Lines) part(name string, in *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.in--; in.in == 0 {
		delete(l.lines, name)
	}
}
