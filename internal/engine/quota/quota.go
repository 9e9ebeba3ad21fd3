// Package quota holds the runs of a namespace to its quotas (K8S-11): how many threads run at once, and what their model
// calls use on a day. No run begins once the messages of the namespace take all bytes that they may. Threads that find no room wait, and are
// woken when there is some.
package quota

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
)

const (
	// lookEvery is how often room is looked for while threads wait. A thread of this replica that rests makes it look at
	// once.
	lookEvery = time.Second
	// spentFor is how long a reading of what was used on a day counts as current. Model calls that begin within it are
	// not refused, although other replicas have used up the quota meanwhile.
	spentFor = time.Second
)

// Options of Quotas.
type Options struct {
	Store store.Store
	// Limits returns the quotas of a namespace; nil means that there are none.
	Limits func(namespace string) store.Quotas
	Clock  clock.WithTicker
	Log    logr.Logger
	// Wake queues a thread for which there may be room.
	Wake func(threadID string)
}

// Quotas admits runs, and keeps the threads that wait. It is safe for concurrent use.
type Quotas struct {
	Options

	mu      sync.Mutex
	waiting map[queueKey]*waitQueue
	spent   map[string]reading
	look    chan struct{}
}

// queueKey names a waitQueue. Threads that wait for a running thread to end have a queue of their own. They go on even if other quotas are
// used up, because their runs may have begun.
type queueKey struct {
	namespace  string
	forRunning bool
}

// waitQueue has threads of a namespace that wait, in the order in which they came.
type waitQueue struct {
	ids   []string
	known map[string]bool
}

// reading is what a namespace used, as it was read.
type reading struct {
	use map[store.QuotaResource]int64
	at  time.Time
}

// WaitError says that a thread waits until there is room in a quota of its namespace.
type WaitError struct{ *store.NamespaceQuotaError }

// Unwrap returns the quota that is used up.
func (e *WaitError) Unwrap() error { return e.NamespaceQuotaError }

// New returns Quotas without waiting threads.
func New(o Options) *Quotas {
	return &Quotas{Options: o, waiting: map[queueKey]*waitQueue{}, spent: map[string]reading{}, look: make(chan struct{}, 1)}
}

func (q *Quotas) limits(namespace string) store.Quotas {
	if q.Limits == nil {
		return nil
	}
	return q.Limits(namespace)
}

// Begin counts the holder of a lease as a running thread. resumed is for a run that has begun: it ends with a reason when
// the tokens or the cost of the day are used up, instead of waiting. The error is a *store.NamespaceQuotaError when the
// thread has to wait.
func (q *Quotas) Begin(ctx context.Context, namespace string, f *store.Fence, resumed bool) error {
	limits := q.limits(namespace)
	if len(limits) == 0 {
		return nil
	}
	if !resumed {
		if err := q.CheckSpent(ctx, namespace, toBegin); err != nil {
			return err
		}
	}
	if _, ok := limits[store.QuotaRunningThreads]; ok {
		return q.Store.CountRunning(ctx, f)
	}
	return nil
}

var (
	// toBegin is what a namespace must have left for a run to begin.
	toBegin = []store.QuotaResource{store.QuotaTokens, store.QuotaCost, store.QuotaMessageBytes}
	// toGoOn is what it must have left for a run to call a model. A run may finish when the bytes of messages are used up. Otherwise a run
	// whose own first message took the last bytes would end before its first call.
	toGoOn = []store.QuotaResource{store.QuotaTokens, store.QuotaCost}
)

// CheckSpent returns a *store.NamespaceQuotaError when the namespace has used up one of some resources.
func (q *Quotas) CheckSpent(ctx context.Context, namespace string, of []store.QuotaResource) error {
	limits := q.limits(namespace)
	of = slices.DeleteFunc(slices.Clone(of), func(r store.QuotaResource) bool { _, ok := limits[r]; return !ok })
	if len(of) == 0 {
		return nil
	}
	var use map[store.QuotaResource]int64
	var err error
	if slices.Contains(of, store.QuotaMessageBytes) { // CountUsed does not count messages
		use, err = q.Store.QuotaUse(ctx, namespace, of...)
	} else {
		use, err = q.read(ctx, namespace)
	}
	if err != nil {
		return err
	}
	return overSpent(namespace, limits, use, of)
}

// CheckMessageRoom returns a *store.NamespaceQuotaError when the namespace takes no more messages from outside. The store checks again when
// a message comes. This check comes first, so that nothing is prepared for a message without room.
func (q *Quotas) CheckMessageRoom(ctx context.Context, namespace string) error {
	return q.CheckSpent(ctx, namespace, []store.QuotaResource{store.QuotaMessageBytes})
}

func overSpent(namespace string, limits store.Quotas, use map[store.QuotaResource]int64, of []store.QuotaResource) error {
	for _, r := range of {
		if limit, ok := limits[r]; ok && use[r] >= limit.Hard {
			return &store.NamespaceQuotaError{Namespace: namespace, Resource: r, QuotaLimit: limit}
		}
	}
	return nil
}

// read returns what the namespace uses, as it was within the last second.
func (q *Quotas) read(ctx context.Context, namespace string) (map[store.QuotaResource]int64, error) {
	now := q.Clock.Now()
	q.mu.Lock()
	last, ok := q.spent[namespace]
	q.mu.Unlock()
	if age := now.Sub(last.at); ok && age >= 0 && age < spentFor {
		return last.use, nil
	}
	use, err := q.Store.QuotaUse(ctx, namespace, toGoOn...)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spent[namespace] = reading{use, now}
	return use, nil
}

// CountUsed counts what a model call of this replica used, so that the next one knows it without a read.
func (q *Quotas) CountUsed(namespace string, tokens, cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	last, ok := q.spent[namespace]
	if !ok {
		return
	}
	last.use = maps.Clone(last.use) // others may read it
	last.use[store.QuotaTokens] += tokens
	last.use[store.QuotaCost] += cost
	q.spent[namespace] = last
}

// AddWaiting notes that a thread waits for room in its namespace. It does not block. Run wakes the thread when there may be room.
func (q *Quotas) AddWaiting(wait *WaitError, threadID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := queueKey{wait.Namespace, wait.Resource == store.QuotaRunningThreads}
	w := q.waiting[key]
	if w == nil {
		w = &waitQueue{known: map[string]bool{}}
		q.waiting[key] = w
	}
	if !w.known[threadID] {
		w.known[threadID] = true
		w.ids = append(w.ids, threadID)
	}
}

// End says that a thread of this replica does not run any more.
func (q *Quotas) End(namespace string) {
	q.mu.Lock()
	waits := q.waiting[queueKey{namespace, true}] != nil || q.waiting[queueKey{namespace, false}] != nil
	q.mu.Unlock()
	if waits {
		select {
		case q.look <- struct{}{}:
		default:
		}
	}
}

// Run looks for room until ctx ends.
func (q *Quotas) Run(ctx context.Context) {
	ticker := q.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-q.look:
		}
		q.mu.Lock()
		keys := slices.Collect(maps.Keys(q.waiting))
		q.mu.Unlock()
		for _, key := range keys {
			n, err := q.capacity(ctx, key)
			if err != nil {
				if ctx.Err() == nil {
					q.Log.Error(err, "cannot check whether the quotas of a namespace have room for threads that wait", "namespace", key.namespace)
				}
				continue
			}
			for _, id := range q.take(key, n) {
				q.Wake(id)
			}
		}
	}
}

// many is more threads than wait at once.
const many = int64(1) << 40

// capacity returns how many threads of a queue may run. Whether a run may begin is asked again when one of them does.
func (q *Quotas) capacity(ctx context.Context, key queueKey) (int64, error) {
	limits := q.limits(key.namespace)
	if len(limits) == 0 {
		return many, nil
	}
	use, err := q.Store.QuotaUse(ctx, key.namespace)
	if err != nil {
		return 0, err
	}
	if !key.forRunning && overSpent(key.namespace, limits, use, toBegin) != nil {
		return 0, nil
	}
	if limit, ok := limits[store.QuotaRunningThreads]; ok {
		return max(limit.Hard-use[store.QuotaRunningThreads], 0), nil
	}
	return many, nil
}

// take removes the first n threads of a queue.
func (q *Quotas) take(key queueKey, n int64) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.waiting[key]
	n = min(n, int64(len(w.ids)))
	out := w.ids[:n:n]
	w.ids = w.ids[n:]
	for _, id := range out {
		delete(w.known, id)
	}
	if len(w.ids) == 0 {
		delete(q.waiting, key)
	}
	return out
}
