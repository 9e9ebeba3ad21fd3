package gateway

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/flow"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// How many rates are remembered. Those that were used longest ago go first, and begin anew.
const (
	maxGateways  = 1000
	maxThreads   = 20_000
	maxAddresses = 20_000
)

// limiters holds what counts towards the limits of all gateways. Its size is bounded.
type limiters struct {
	mu  sync.Mutex
	all *lru.Cache // namespace/name → *limiter
}

func newLimiters() *limiters { return &limiters{all: lru.New(maxGateways)} }

// limiterOf returns what counts towards the limits of a gateway. It begins anew when they change.
func (ls *limiters) limiterOf(g *definitions.Gateway) *limiter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	key := g.Namespace + "/" + g.Name
	if l, ok := ls.all.Get(key); ok && l.(*limiter).limits == g.Limits {
		return l.(*limiter)
	}
	l := &limiter{
		limits: g.Limits, threads: lru.New(maxThreads), addresses: lru.New(maxAddresses),
		total: perMinute(g.Limits.Total), begun: perMinute(g.Limits.NewThreads), open: make(chan struct{}, g.Limits.Open),
		sockets: make(chan struct{}, g.Limits.Open), asking: make(chan struct{}, maxAsking), bodies: newBudget(maxGatewayBodies),
	}
	ls.all.Add(key, l)
	return l
}

// limiter counts towards the limits of one gateway.
type limiter struct {
	limits       skeinv1.GatewayLimits
	total, begun *rate.Limiter
	open         chan struct{} // one for each request that waits for an answer
	sockets      chan struct{} // one for each WebSocket that is open
	asking       chan struct{} // one for each that waits for its id
	bodies       *budget

	mu                 sync.Mutex
	threads, addresses *lru.Cache // → *rate.Limiter
}

// perMinute returns a limiter of n in a minute, of which a sixth may come at once.
func perMinute(n int32) *rate.Limiter {
	return rate.NewLimiter(rate.Every(time.Minute/time.Duration(n)), max(int(n)/6, min(int(n), 10)))
}

// request counts a request. It returns which limit it is beyond, or "". Those of one client come first, so that what is
// refused to one client is not taken from the others. threadID is "" while it is not known.
func (l *limiter) request(threadID string, from netip.Addr) string {
	switch {
	case !l.allow(l.addresses, flow.Network(from), l.limits.PerAddress):
		return "this address"
	case threadID != "" && !l.conversation(threadID):
		return thisConversation
	case !l.total.Allow():
		return "all clients together"
	}
	return ""
}

const thisConversation = "this conversation"

// conversation reports whether a conversation may have one more request.
func (l *limiter) conversation(threadID string) bool {
	return l.allow(l.threads, threadID, l.limits.PerThread)
}

func (l *limiter) allow(in *lru.Cache, key any, n int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := in.Get(key)
	if !ok {
		r = perMinute(n)
		in.Add(key, r)
	}
	return r.(*rate.Limiter).Allow()
}

// enter takes a place among the requests that wait for answers. It returns nil when there is none.
func (l *limiter) enter() (leave func()) {
	select {
	case l.open <- struct{}{}:
		return func() { <-l.open }
	default:
		return nil
	}
}
