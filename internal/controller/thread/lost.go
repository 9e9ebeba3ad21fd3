package thread

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/store"
)

// lostCalls remembers which waiting threads were checked for calls that wait for a child which does not exist: its Subagent
// was deleted before there was a Thread that could tell the parent. A thread is checked once, and again after one of its
// Subagents was deleted. It is safe for concurrent use.
type lostCalls struct {
	mu      sync.Mutex
	checked map[ctrl.Request]bool
}

// uncheck has threads checked again, by forgetting that they were.
func (l *lostCalls) uncheck(reqs ...ctrl.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, req := range reqs {
		delete(l.checked, req)
	}
}

// startCheck reports whether a thread is to be checked now, and then records that it was.
func (l *lostCalls) startCheck(req ctrl.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.checked[req] {
		return false
	}
	if l.checked == nil {
		l.checked = map[ctrl.Request]bool{}
	}
	l.checked[req] = true
	return true
}

// answerForLost answers calls of a waiting run whose children do not exist. A run that has not come to wait yet is checked
// when it does.
func (r *Reconciler) answerForLost(ctx context.Context, s *scope, run *store.Run) error {
	if s.row == nil || run == nil || run.Status.Ended() {
		r.lost.uncheck(s.req)
		return nil
	}
	if run.Status != store.RunWaiting || !r.lost.startCheck(s.req) {
		return nil
	}
	if err := r.Engine.AnswerForLost(ctx, s.row, run); err != nil {
		r.lost.uncheck(s.req)
		return fmt.Errorf("answer for children that do not exist: %w", err)
	}
	return nil
}

// lostChildren has the UIDs of children whose deletion waits and whose parents know of it. A repeat would change nothing for a while, but it
// would come again in a conversation of the parent that was destroyed in between. It is safe for concurrent use.
type lostChildren struct {
	mu sync.Mutex
	of map[ctrl.Request]types.UID
}

func (l *lostChildren) reported(child ctrl.Request, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[child] == uid
}

func (l *lostChildren) report(child ctrl.Request, uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[ctrl.Request]types.UID{}
	}
	l.of[child] = uid
}

func (l *lostChildren) forget(child ctrl.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, child)
}
