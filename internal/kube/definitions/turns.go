package definitions

import "sync"

// turns lets one caller of each namespace work at a time.
type turns struct {
	mu    sync.Mutex
	locks map[string]*turn
}

type turn struct {
	sync.Mutex
	users int // those that hold it or wait for it; turns.mu guards it
}

func newTurns() *turns { return &turns{locks: map[string]*turn{}} }

// take waits for the namespace's turn, and returns what ends it.
func (t *turns) take(namespace string) (done func()) {
	t.mu.Lock()
	l := t.locks[namespace]
	if l == nil {
		l = &turn{}
		t.locks[namespace] = l
	}
	l.users++
	t.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(t.locks, namespace)
		}
	}
}
