// Package fair runs work of many groups on a bounded number of workers, so that no group holds up another.
package fair

import "sync"

// reserved is which part of the workers is kept for groups of which nothing runs: one in so many.
const reserved = 5

// Pool runs work of groups. Groups with work that waits take turns, whatever each of them has; within a group the
// oldest comes first. A fifth of the workers (of fewer than five: none) begins only what is a group's one piece of
// work under way, so that one that comes late need not wait until long work of the others has ended. It is safe
// for concurrent use.
type Pool struct {
	workers  int
	perGroup int
	running  sync.WaitGroup

	mu     sync.Mutex
	groups map[string]*group // those with work, under way or waiting
	turns  []*group          // those with work that waits and may begin as far as their own bound goes, in turn
	busy   int
	queued int
}

// group is the work of one group.
type group struct {
	name    string
	busy    int
	waiting []func()
	inTurn  bool
}

// New makes a pool of so many workers, of which no group has more than perGroup at once: as many as there are when 0.
func New(workers, perGroup int) *Pool {
	if perGroup <= 0 || perGroup > workers {
		perGroup = workers
	}
	return &Pool{workers: workers, perGroup: perGroup, groups: map[string]*group{}}
}

// Go runs fn on a goroutine of its own once it is its turn. It does not wait for that.
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

// Wait returns when all that was given to Go has ended. Nothing may be given to it from then on, but by what runs.
func (p *Pool) Wait() { p.running.Wait() }

// Load tells how many pieces of work are under way, and how many wait.
func (p *Pool) Load() (running, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy, p.queued
}

// enter puts a group in turn, behind the others.
func (p *Pool) enter(g *group) {
	if !g.inTurn && len(g.waiting) > 0 && g.busy < p.perGroup {
		g.inTurn = true
		p.turns = append(p.turns, g)
	}
}

// begin starts what may begin.
func (p *Pool) begin() {
	for p.busy < p.workers {
		g := p.next()
		if g == nil {
			return
		}
		fn := g.waiting[0]
		g.waiting[0] = nil
		if g.waiting = g.waiting[1:]; len(g.waiting) == 0 {
			g.waiting = nil // what it has grown to is not kept
		}
		p.queued--
		g.busy++
		p.busy++
		p.enter(g)
		go p.run(g, fn)
	}
}

// next takes the group out whose turn it is; nil when none may begin anything.
func (p *Pool) next() *group {
	scarce := p.workers-p.busy <= p.workers/reserved
	for i, g := range p.turns {
		if scarce && g.busy > 0 {
			continue // it keeps its place
		}
		copy(p.turns[i:], p.turns[i+1:])
		p.turns[len(p.turns)-1] = nil
		p.turns = p.turns[:len(p.turns)-1]
		g.inTurn = false
		return g
	}
	return nil
}

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
