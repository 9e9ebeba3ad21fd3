package thread

import (
	"context"
	"sync"
)

// pins keeps contents from being removed between their writing and the row that refers to them. Removal
// and reference exclude each other by digest within this process, which is the only one over SQLite.
type pins struct {
	remove func(ctx context.Context, digest string) error

	mu   sync.Mutex
	free *sync.Cond
	held map[string]*pin
}

type pin struct {
	count    int
	removing bool
	// wanted: somebody asked to remove it meanwhile, so the last holder looks again.
	wanted bool
}

func newPins(remove func(ctx context.Context, digest string) error) *pins {
	p := &pins{remove: remove, held: map[string]*pin{}}
	p.free = sync.NewCond(&p.mu)
	return p
}

func (p *pins) entry(digest string) *pin {
	e := p.held[digest]
	if e == nil {
		e = &pin{}
		p.held[digest] = e
	}
	return e
}

// pin waits for a removal under way to end. The returned function may be called more than once.
func (p *pins) pin(digest string) (unpin func()) {
	p.mu.Lock()
	for {
		e := p.entry(digest)
		if !e.removing {
			e.count++
			break
		}
		p.free.Wait()
	}
	p.mu.Unlock()
	var once sync.Once
	return func() { once.Do(func() { p.unpin(digest) }) }
}

func (p *pins) unpin(digest string) {
	p.mu.Lock()
	e := p.held[digest]
	e.count--
	again := e.count == 0 && e.wanted
	if e.count == 0 && !again {
		delete(p.held, digest)
	}
	p.mu.Unlock()
	if again {
		// What cannot be removed now is swept later.
		_ = p.collect(context.Background(), digest)
	}
}

// collect removes contents unless they are pinned; then the last holder does.
func (p *pins) collect(ctx context.Context, digest string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(digest)
	if e.count > 0 || e.removing {
		e.wanted = true
		return nil
	}
	e.removing, e.wanted = true, true
	var err error
	for e.wanted && err == nil { // asked for again while it was looked at: look again
		e.wanted = false
		p.mu.Unlock()
		err = p.remove(ctx, digest)
		p.mu.Lock()
	}
	delete(p.held, digest)
	p.free.Broadcast()
	return err
}
