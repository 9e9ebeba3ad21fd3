package statuslimit

import (
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
)

// Budget bounds how many changes of one kind, over all objects, are written without a wait. It is for changes that show a success. When many
// things succeed at the same time, the API server then has time for the creation of others. It is safe for concurrent use.
type Budget struct{ limit *rate.Limiter }

// NewBudget returns a Budget from which nothing has been taken.
func NewBudget() *Budget { return &Budget{rate.NewLimiter(atOncePerSecond, atOnce)} }

// Gather takes a change of an object from the budget, and returns how long it may wait for others, for Limiter.Decide: 0 means that it is written
// at once. An earlier change that waits to be written waits as long.
func (b *Budget) Gather(p *Limiter, req ctrl.Request, at time.Time) time.Duration {
	if b.limit.AllowN(at, 1) {
		return 0
	}
	p.postpone(req, at.Add(beyondBudget), at)
	return beyondBudget
}
