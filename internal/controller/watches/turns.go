package watches

import (
	"container/list"

	ctrl "sigs.k8s.io/controller-runtime"
)

// promotedPriority is that of requests whose turn has come although others pass them.
const promotedPriority = ChangedPriority + 1

// passers is after how many requests that pass those with NormalPriority the oldest of these has its turn.
const passers = 4

// turns sees to it that new and changed objects do not wait for ever behind requests that pass them. It knows the requests with NormalPriority
// that wait to begin at once, and not those that are to begin later. Each time that passers of a higher priority have begun, the oldest has its turn.
type turns struct {
	order  *list.List                     // of requests, the oldest first
	waits  map[ctrl.Request]*list.Element // in order
	had    map[ctrl.Request]struct{}      // had their turn, and have not begun yet
	passed int
}

func newTurns() turns {
	return turns{order: list.New(), waits: map[ctrl.Request]*list.Element{}, had: map[ctrl.Request]struct{}{}}
}

// add notes a request that is added to the queue with a priority, to begin at once.
func (t *turns) add(r ctrl.Request, priority int) {
	if _, had := t.had[r]; had {
		return
	}
	e := t.waits[r]
	switch {
	case priority > NormalPriority && e != nil: // it passes others now
		t.remove(r, e)
	case priority == NormalPriority && e == nil:
		t.waits[r] = t.order.PushBack(r)
	}
}

func (t *turns) remove(r ctrl.Request, e *list.Element) {
	t.order.Remove(e)
	delete(t.waits, r)
}

// begin notes that a request begins. It returns the priority with which the request was added. If another request has its turn now, begin returns
// that as well, with some = true.
func (t *turns) begin(r ctrl.Request, priority int) (added int, next ctrl.Request, some bool) {
	if e := t.waits[r]; e != nil {
		t.remove(r, e)
	}
	delete(t.had, r)
	if priority == promotedPriority {
		priority = NormalPriority
	}
	if priority <= NormalPriority {
		return priority, next, false
	}
	t.passed++
	e := t.order.Front()
	if t.passed < passers || e == nil {
		return priority, next, false
	}
	t.passed = 0
	next = e.Value.(ctrl.Request)
	t.remove(next, e)
	t.had[next] = struct{}{}
	return priority, next, true
}
