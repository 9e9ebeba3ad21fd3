// Package eventlimit bounds the Events that this replica writes about each namespace. client-go bounds those about one object at most,
// and a namespace may have any number of objects.
package eventlimit

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The limits of a namespace, in Events per second. Those of one reason have a lower limit, so that many objects with the same problem
// leave room for Events of other reasons, such as who approved a call.
const (
	namespaceRate, namespaceBurst = 5, 300
	reasonRate, reasonBurst       = 1, 100
)

// remembered is how many namespaces, and reasons of namespaces, have a token bucket. One that is used again after it was forgotten begins
// with a full bucket.
const remembered = 10_000

var dropped = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "skein_events_dropped_total",
	Help: "Events that were not written, because there were too many about one namespace.",
})

func init() { metrics.Registry.MustRegister(dropped) }

// Limiter bounds the Events of all recorders that it has wrapped, together. It is safe for concurrent use. A nil Limiter has no limits.
type Limiter struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	namespaces *lru.Cache // namespace → *rate.Limiter
	reasons    *lru.Cache // eventKey → *rate.Limiter
}

// New returns a Limiter.
func New(c clock.PassiveClock) *Limiter {
	return &Limiter{clock: c, namespaces: lru.New(remembered), reasons: lru.New(remembered)}
}

// eventKey is what Events are counted by, beside the namespace alone.
type eventKey struct{ namespace, reason string }

// Recorder returns a recorder that drops the Events beyond the limits.
func (l *Limiter) Recorder(inner events.EventRecorder) events.EventRecorder {
	if l == nil {
		return inner
	}
	return &recorder{EventRecorder: inner, limiter: l}
}

type recorder struct {
	events.EventRecorder
	limiter *Limiter
}

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, why, action, note string, args ...any) {
	if !r.limiter.allow(eventKey{namespaceOf(regarding), why}) {
		dropped.Inc()
		return
	}
	r.EventRecorder.Eventf(regarding, related, kind, why, action, note, args...)
}

// namespaceOf returns the namespace of what an Event is about; "" when it has none.
func namespaceOf(o runtime.Object) string {
	if ref, ok := o.(*corev1.ObjectReference); ok {
		return ref.Namespace
	}
	if about, err := meta.Accessor(o); err == nil {
		return about.GetNamespace()
	}
	return ""
}

// allow takes an Event from both buckets. The one of the reason comes first, so that what is dropped there is not taken from other reasons.
func (l *Limiter) allow(key eventKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	return bucket(l.reasons, key, reasonRate, reasonBurst).AllowN(now, 1) &&
		bucket(l.namespaces, key.namespace, namespaceRate, namespaceBurst).AllowN(now, 1)
}

func bucket(in *lru.Cache, key any, each rate.Limit, burst int) *rate.Limiter {
	if b, ok := in.Get(key); ok {
		return b.(*rate.Limiter)
	}
	b := rate.NewLimiter(each, burst)
	in.Add(key, b)
	return b
}
