package scheduledeffect

import (
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
)

// manyUnderWay is the number of one-time effects under way beyond which the end of one is not shown at once. The API server then has time
// for its status when there are fewer handlers to run. The ends of the firings of one schedule are gathered for a second, too.
const manyUnderWay = 100

// underWay holds the one-time effects whose firings are under way, as far as this controller knows.
type underWay struct {
	mu  sync.Mutex
	all map[ctrl.Request]struct{}
}

func (u *underWay) set(req ctrl.Request, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !is:
		delete(u.all, req)
	case u.all == nil:
		u.all = map[ctrl.Request]struct{}{req: {}}
	default:
		u.all[req] = struct{}{}
	}
}

// areMany reports whether so many effects are under way that their statuses wait.
func (u *underWay) areMany() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.all) > manyUnderWay
}
