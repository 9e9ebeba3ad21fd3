// Package fairpool runs work of many groups on a bounded number of workers, so that no group holds up another.
package fairpool

import "sync"

// reserved is the part of the workers that is reserved for groups of which nothing runs: one worker in this many.
const reserved = 5

// Pool runs work of groups. Groups with waiting work take turns, no matter how much each of them has. Within a group the
// oldest work comes first. A fifth of the workers takes work only from groups of which nothing runs, so that a group that
// comes late need not wait until long work of other groups has ended. A pool of fewer than five workers reserves none.
// Pool is safe for concurrent use.
type Pool struct {
	workers  int
	perGroup int
	running  sync.WaitGroup

	mu     sync.Mutex
	groups map[string]*group // groups with work, under way or waiting
	turns  []*group          // groups with waiting work that are below their own limit, in the order of their turns
	busy   int               // pieces of work under way
	queued int               // pieces of work that wait
}

// group is the work of one group. The lock of the Pool guards it.
type group struct {
	name    string
	busy    int
	waiting []func()
	inTurn  bool // it is in Pool.turns
}

// New returns a pool with a number of workers, of which a group uses at most perGroup at once. If perGroup is 0, a group may
// use all of them.
func New(workers, perGroup int) *Pool {
	if perGroup <= 0 || perGroup > workers {
		perGroup = workers
	}
	return &Pool{workers: workers, perGroup: perGroup, groups: map[string]*group{}}
}

// Go runs fn on a goroutine of its own when the group's turn comes. It returns at once.
func (p *Pool) Go(name string, fn func()) {
	p.running.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[name]
	if g == nil {
		g = &group{name: name}
		p.groups[name] = g
	}
	g.waiting = append(g.waiting, fn)
	p.queued++
	p.enter(g)
	p.begin()
}

// Wait returns when all work has ended. Once it was called, only work that runs may call Go.
func (p *Pool) Wait() { p.running.Wait() }

// Load returns how many pieces of work are under way, and how many wait.
func (p *Pool) Load() (running, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy, p.queued
}

// Loads returns how many pieces of work of each group are under way or wait.
func (p *Pool) Loads() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	loads := make(map[string]int, len(p.groups))
	for name, g := range p.groups {
		loads[name] = g.busy + len(g.waiting)
	}
	return loads
}

// enter adds a group to the end of the turns, if it may begin work. The caller holds mu.
func (p *Pool) enter(g *group) {
	if !g.inTurn && len(g.waiting) > 0 && g.busy < p.perGroup {
		g.inTurn = true
		p.turns = append(p.turns, g)
	}
}

// begin starts all work that may begin. The caller holds mu.
func (p *Pool) begin() {
	for p.busy < p.workers {
		g := p.next()
		if g == nil {
			return
		}
		fn := g.waiting[0]
		g.waiting[0] = nil
		if g.waiting = g.waiting[1:]; len(g.waiting) == 0 {
			g.waiting = nil // frees the array, which may have grown large
		}
		p.queued--
		g.busy++
		p.busy++
		p.enter(g)
		go p.run(g, fn)
	}
}

// next removes the group whose turn it is from the turns and returns it. It returns nil if no group may begin work. The
// caller holds mu.
func (p *Pool) next() *group {
	scarce := p.workers-p.busy <= p.workers/reserved
	for i, g := range p.turns {
		if scarce && g.busy > 0 {
			continue // the group keeps its place in the turns
		}
		copy(p.turns[i:], p.turns[i+1:])
		p.turns[len(p.turns)-1] = nil
		p.turns = p.turns[:len(p.turns)-1]
		g.inTurn = false
		return g
	}
	return nil
}

// run runs fn, then begins the work that may begin now.
func (p *Pool) run(g *group, fn func()) {
	defer p.running.Done()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		g.busy--
		p.busy--
		if g.busy == 0 && len(g.waiting) == 0 {
			delete(p.groups, g.name)
		}
		p.enter(g)
		p.begin()
	}()
	fn()
}
