package statuslimit

import (
	"hash/maphash"
	"time"

	"golang.org/x/time/rate"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// atOncePerSecond and atOnce bound the changes that are written at once.
	atOncePerSecond = 20
	atOnce          = 100
	// beyondBudget is how long the other changes wait.
	beyondBudget = 10 * time.Second
	// spreadOver is within which time the other changes of a spread Budget are written.
	spreadOver = 30 * time.Second
)

// Budget bounds how many changes of one kind, over all objects, are written without a wait. It is for changes that show a success, or that
// all come from one cause. When there are many at the same time, the API server then has time for others. It is safe for concurrent use.
type Budget struct {
	limit *rate.Limiter
	wait  func(ctrl.Request) time.Duration // of a change beyond the budget; the same for each change of an object
}

// NewBudget returns a Budget from which nothing has been taken. Changes beyond it wait for ten seconds.
func NewBudget() *Budget {
	return newBudget(func(ctrl.Request) time.Duration { return beyondBudget })
}

// NewSpreadBudget returns a Budget from which nothing has been taken. Changes beyond it wait for up to thirty seconds, each object for
// another time, so that they are not all written at once then. A change that is taken back meanwhile is never written.
func NewSpreadBudget() *Budget {
	seed := maphash.MakeSeed()
	return newBudget(func(req ctrl.Request) time.Duration {
		return time.Duration(1 + maphash.Comparable(seed, req)%uint64(spreadOver))
	})
}

func newBudget(wait func(ctrl.Request) time.Duration) *Budget {
	return &Budget{rate.NewLimiter(atOncePerSecond, atOnce), wait}
}

// Gather takes a change of an object from the budget, and returns how long it may wait for others, for Limiter.Decide: 0 means that it is written
// at once. An earlier change that waits to be written waits as long.
func (b *Budget) Gather(p *Limiter, req ctrl.Request, at time.Time) time.Duration {
	if b.limit.AllowN(at, 1) {
		return 0
	}
	wait := b.wait(req)
	p.postpone(req, at.Add(wait), at)
	return wait
}
