// Package statuslimit limits how often a status is written (K8S-07, docs/adr/0003-thread-status-writes.md). It gathers
// changes that no client waits for, and no object is written more than once a second in the long run.
package statuslimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// writesPerSecond and burst limit the writes of one object. The burst makes the end of a short turn visible at
	// once although the object was written a moment ago.
	writesPerSecond = 1
	burst           = 2
	// sweepAt is the number of remembered objects at which those at rest are forgotten.
	sweepAt = 1024
)

// Limiter remembers when objects were written and how long a change of them has waited. It only remembers objects with
// recent writes or a waiting change. It is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	objects map[ctrl.Request]*object
}

type object struct {
	limit    *rate.Limiter
	deadline time.Time // of the waiting change; zero when there is none
	// postponed says that the deadline was put off, which happens once.
	postponed bool
}

// New returns a Limiter.
func New() *Limiter { return &Limiter{objects: map[ctrl.Request]*object{}} }

// Wait says when to check an object again.
type Wait struct {
	After time.Duration
	// Throttled means that no event until then can make the write happen sooner.
	Throttled bool
}

// Decide reports whether a change may be written at this time, and otherwise when to check again. gather is how long
// the change may wait for others. It counts from when this change, or an earlier waiting one, was first seen. 0 means
// that it does not wait.
func (p *Limiter) Decide(req ctrl.Request, gather time.Duration, at time.Time) (Wait, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.get(req, at)
	if until := at.Add(gather); o.deadline.IsZero() || until.Before(o.deadline) {
		o.deadline = until
	}
	if rest := o.deadline.Sub(at); rest > 0 {
		return Wait{After: rest}, false
	}
	if !o.limit.AllowN(at, 1) {
		missing := 1 - o.limit.TokensAt(at)
		return Wait{After: time.Duration(missing / writesPerSecond * float64(time.Second)), Throttled: true}, false
	}
	return Wait{}, true
}

// postpone has a change wait until a time, unless the object has been put off already.
func (p *Limiter) postpone(req ctrl.Request, until, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.get(req, at); !o.postponed {
		o.deadline, o.postponed = until, true
	}
}

// Done records that no change waits any more.
func (p *Limiter) Done(req ctrl.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.objects[req]; o != nil {
		o.deadline, o.postponed = time.Time{}, false
	}
}

// Forget drops everything remembered about an object.
func (p *Limiter) Forget(req ctrl.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.objects, req)
}

func (p *Limiter) get(req ctrl.Request, at time.Time) *object {
	if o := p.objects[req]; o != nil {
		return o
	}
	if n := len(p.objects); n >= sweepAt && n&(n-1) == 0 {
		p.sweep(at)
	}
	o := &object{limit: rate.NewLimiter(writesPerSecond, burst)}
	p.objects[req] = o
	return o
}

// sweep forgets objects without a waiting change that may be written freely. Forgetting them changes nothing.
func (p *Limiter) sweep(at time.Time) {
	for req, o := range p.objects {
		if o.deadline.IsZero() && o.limit.TokensAt(at) >= burst {
			delete(p.objects, req)
		}
	}
}
