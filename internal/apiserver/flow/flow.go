// Package flow shares the runtime API among users and namespaces, however a request reaches it (K8S-12): the requests of
// one caller do not keep those of others from being answered. A request beyond a limit is answered with 429 and a time
// after which to try again. The limits hold for each replica.
package flow

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Limits bound the use of the runtime API. 0 is without limit.
type Limits struct {
	UserRate      int // requests of a user, or of the service accounts of a namespace, in a second; three times as many at once
	UserOpen      int // requests of a user that are under way, apart from those that last
	NamespaceOpen int // the same of a namespace
	// UserLasting and NamespaceLasting bound requests that last: streams, files, and code.
	UserLasting, NamespaceLasting int
	// UserSearches are the searches of a user in a minute, and SearchesOpen those of all users that are under way, of which one user has a
	// quarter at most. A search asks the API server about each namespace.
	UserSearches, SearchesOpen int
}

// Defaults returns the limits that hold unless others are set.
func Defaults() Limits {
	return Limits{UserRate: 500, UserOpen: 100, NamespaceOpen: 200, UserLasting: 1000, NamespaceLasting: 2000, UserSearches: 60, SearchesOpen: 16}
}

// Fields returns the limits by their names.
func (l *Limits) Fields() map[string]*int {
	return map[string]*int{
		"userRate": &l.UserRate, "userOpen": &l.UserOpen, "namespaceOpen": &l.NamespaceOpen, "userLasting": &l.UserLasting, "namespaceLasting": &l.NamespaceLasting,
		"userSearches": &l.UserSearches, "searchesOpen": &l.SearchesOpen,
	}
}

// Control holds requests to limits. It is safe for concurrent use.
type Control struct {
	limits  Limits
	clock   clock.PassiveClock
	lasting func(r *http.Request, info *apirequest.RequestInfo) bool
	refuse  func(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError)

	mu    sync.Mutex
	open  map[key]int
	rates *lru.Cache // key → *rate.Limiter
}

// key names what is counted: of whom, and which requests.
type key struct{ kind, name string }

// New returns a Control. lasting reports whether a request has no deadline, and refuse answers with an error.
func New(l Limits, c clock.PassiveClock, lasting func(r *http.Request, info *apirequest.RequestInfo) bool, refuse func(w http.ResponseWriter, r *http.Request, err *apierrors.StatusError)) *Control {
	return &Control{limits: l, clock: c, lasting: lasting, refuse: refuse, open: map[key]int{}, rates: lru.New(maxRates)}
}

// Wrap returns a handler that holds authorized requests to the limits. Requests of system:masters, health checks and
// discovery have none.
func (c *Control) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		info, ok := apirequest.RequestInfoFrom(ctx)
		who, known := apirequest.UserFrom(ctx)
		if !ok || !info.IsResourceRequest || !known || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
			next.ServeHTTP(w, r)
			return
		}
		done, err := c.admit(r, info, who.GetName())
		if err != nil {
			c.refuse(w, r, err)
			return
		}
		defer done()
		next.ServeHTTP(w, r)
	})
}

// counter counts requests that are under way, and has the most that may be.
type counter struct {
	key
	most int
	what string
}

// Distinguisher returns the name under which the requests of a user are counted. All service accounts of a namespace have the same one,
// because a user who may edit the namespace can create, or impersonate, any number of them.
func Distinguisher(user string) string {
	if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return user
}

// admit counts a request as under way, until done is called.
func (c *Control) admit(r *http.Request, info *apirequest.RequestInfo, name string) (done func(), refused *apierrors.StatusError) {
	search := info.Resource == string(runtimev1.ViewSearches)
	distinguisher := Distinguisher(name)
	if account, _, err := serviceaccount.SplitUsername(name); err == nil && account != info.Namespace {
		name = distinguisher // the limits of its own namespace do not bound the request
	}
	counters := []counter{
		{key{"open", name}, c.limits.UserOpen, "requests of the user %q are under way"},
		{key{"openIn", info.Namespace}, c.limits.NamespaceOpen, "requests to the namespace %q are under way"},
	}
	if c.lasting(r, info) {
		counters = []counter{
			{key{"lasting", name}, c.limits.UserLasting, "streams, files and executions of the user %q are open"},
			{key{"lastingIn", info.Namespace}, c.limits.NamespaceLasting, "streams, files and executions of the namespace %q are open"},
		}
	}
	if info.Namespace == "" {
		counters = counters[:1]
	}
	if search {
		counters = append(counters,
			counter{key{"searchesOf", distinguisher}, (c.limits.SearchesOpen + searchers - 1) / searchers, "searches of the user %q are under way"},
			counter{key{"searches", "all"}, c.limits.SearchesOpen, "searches of %s users are under way"})
	}
	return c.enter(distinguisher, search, counters)
}

// searchers is the least number of users who share all searches that may be under way.
const searchers = 4

// Enter counts a request that does not come through the runtime API, such as one to a gateway. who names where it comes from,
// and counts as a user. lasting reports that the request may last. The request is under way until done is called. The error is
// a *StatusError with 429.
func (c *Control) Enter(who, namespace string, lasting bool) (done func(), err error) {
	counters := []counter{
		{key{"open", who}, c.limits.UserOpen, "requests of %q are under way"},
		{key{"openIn", namespace}, c.limits.NamespaceOpen, "requests to the namespace %q are under way"},
	}
	if lasting {
		counters = []counter{
			{key{"lasting", who}, c.limits.UserLasting, "requests of %q wait for answers"},
			{key{"lastingIn", namespace}, c.limits.NamespaceLasting, "streams, files and executions of the namespace %q are open"},
		}
	}
	done, refused := c.enter(who, false, counters)
	if refused != nil {
		return nil, refused
	}
	return done, nil
}

// enter counts a request in each counter until done is called. It refuses the request, and counts nothing, if a counter is at its limit
// or the user exceeds a rate.
func (c *Control) enter(name string, search bool, counters []counter) (done func(), refused *apierrors.StatusError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range counters {
		if u.most > 0 && c.open[u.key] >= u.most {
			return nil, tooMany(fmt.Sprintf("%d "+u.what, u.most, u.name))
		}
	}
	if !c.allow(key{"rate", name}, rate.Limit(c.limits.UserRate), 3*c.limits.UserRate) {
		return nil, tooMany(fmt.Sprintf("the user %q makes more than %d requests a second", name, c.limits.UserRate))
	}
	if search && !c.allow(key{"search", name}, rate.Limit(c.limits.UserSearches)/60, max(c.limits.UserSearches/6, 1)) {
		return nil, tooMany(fmt.Sprintf("the user %q makes more than %d searches a minute", name, c.limits.UserSearches))
	}
	for _, u := range counters {
		c.open[u.key]++
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, u := range counters {
			if c.open[u.key]--; c.open[u.key] == 0 {
				delete(c.open, u.key)
			}
		}
	}, nil
}

// maxRates bounds how many limiters are kept. Beyond it, the one that was used least recently is dropped, which is most likely full again.
const maxRates = 10_000

// allow takes a token of a limiter. The caller holds the lock.
func (c *Control) allow(k key, limit rate.Limit, burst int) bool {
	if limit <= 0 {
		return true
	}
	l, ok := c.rates.Get(k)
	if !ok {
		l = rate.NewLimiter(limit, burst)
		c.rates.Add(k, l)
	}
	return l.(*rate.Limiter).AllowN(c.clock.Now(), 1)
}

// retryAfter is the time after which to try again, in seconds.
const retryAfter = 1

// tooMany returns a 429.
func tooMany(why string) *apierrors.StatusError {
	refusals.Inc()
	e := apierrors.NewTooManyRequests(why+": try again later, or make fewer requests at once", retryAfter)
	e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseFlowControl, Message: why}}
	return e
}
