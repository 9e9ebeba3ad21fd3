package notifications_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/skein-dev/skein/internal/controller/notifications"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/store"
)

// subscriber sends notifications on request.
type subscriber struct {
	fn      func(store.Notification)
	stopped chan struct{}
}

func (s *subscriber) Subscribe(fn func(store.Notification)) func() {
	s.fn = fn
	return func() { close(s.stopped) }
}

func TestSource(t *testing.T) {
	g := NewWithT(t)
	sub := &subscriber{stopped: make(chan struct{})}
	s := notifications.NewSource(sub, store.ChangedThread)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	ctx, cancel := context.WithCancel(context.Background())
	g.Expect(s.Start(ctx, queue)).To(Succeed())
	a := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "a"}}
	b := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "b"}}
	drain := func() (n int) {
		for queue.Len() > 0 {
			r, _ := queue.Get()
			queue.Done(r)
			n++
		}
		return n
	}
	notify := func(id string, c store.Change) { sub.fn(store.Notification{ThreadID: id, Changed: c}) }

	notify("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "nobody tracks it")
	s.Track("t", a)
	s.Track("t", b)
	notify("t", store.ChangedLog)
	g.Expect(drain()).To(Equal(0), "another kind of change")
	notify("t", store.ChangedThread|store.ChangedLog)
	g.Expect(drain()).To(Equal(2))
	notify("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "both wait to be reconciled")
	s.Begin(a)
	notify("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(1))
	s.Begin(a)
	s.Suppress(a)
	notify("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "held")
	s.Begin(a)
	s.Track("other", a)
	notify("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "tracked with another thread now")
	notify("other", store.ChangedThread)
	g.Expect(drain()).To(Equal(1))
	s.Begin(a)
	s.Forget(a)
	notify("other", store.ChangedThread)
	g.Expect(drain()).To(Equal(0))
	cancel()
	g.Eventually(sub.stopped).Should(BeClosed())
}

// later is a queue that records what is to be added later.
type later struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	requests []reconcile.Request
}

func (l *later) AddAfter(r reconcile.Request, _ time.Duration) { l.requests = append(l.requests, r) }

// A short run ends before its request is due, and costs one reconcile.
func TestWorkIsGatheredWithItsEnd(t *testing.T) {
	g := NewWithT(t)
	sub := &subscriber{stopped: make(chan struct{})}
	s := notifications.NewSource(sub, store.ChangedThread)
	queue := &later{TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	defer queue.ShutDown()
	g.Expect(s.Start(t.Context(), queue)).To(Succeed())
	a := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "a"}}
	s.Track("t", a)
	// after returns how many requests are enqueued at once, and how many for later.
	after := func(changes ...store.Change) [2]int {
		for _, c := range changes {
			sub.fn(store.Notification{ThreadID: "t", Changed: c})
		}
		atOnce := 0
		for ; queue.Len() > 0; atOnce++ {
			r, _ := queue.Get()
			queue.Done(r)
		}
		afterwards := len(queue.requests)
		queue.requests = nil
		return [2]int{atOnce, afterwards}
	}
	const work, end = store.ChangedAtWork | store.ChangedInbox | store.ChangedLog, store.ChangedThread | store.ChangedLog
	for _, c := range []struct {
		changes []store.Change
		want    [2]int
	}{
		{[]store.Change{work, work}, [2]int{0, 1}},
		{[]store.Change{end, work}, [2]int{1, 0}},
		{[]store.Change{work, work, end, work, end}, [2]int{1, 1}},
		{[]store.Change{store.ChangedInbox}, [2]int{0, 0}},
	} {
		s.Begin(a)
		g.Expect(after(c.changes...)).To(Equal(c.want), "%v", c.changes)
	}
	s.Begin(a)
	g.Expect(after(work)).To(Equal([2]int{0, 1}))
	g.Expect(after(end)).To(Equal([2]int{1, 0}), "what has ended does not wait")
	s.Begin(a)
	s.Suppress(a)
	g.Expect(after(work, end)).To(Equal([2]int{0, 0}), "held")
}

// noted is a queue that notes with which priorities, and for when, requests are added.
type noted struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	added []priorityqueue.AddOpts
	n     int
}

func (q *noted) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	q.added = append(q.added, o)
	q.n += len(requests)
	q.PriorityQueue.AddWithOpts(o, requests...)
}

// started returns a source that has begun, with its queue.
func started(t *testing.T) (*subscriber, *notifications.Source, *noted) {
	sub := &subscriber{stopped: make(chan struct{})}
	s := notifications.NewSource(sub, store.ChangedThread)
	q := &noted{PriorityQueue: priorityqueue.New[reconcile.Request](t.Name())}
	t.Cleanup(q.ShutDown)
	NewWithT(t).Expect(s.Start(t.Context(), q)).To(Succeed())
	return sub, s, q
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: name}}
}

// take returns the names of what is in a queue in the order in which workers get it.
func take(q *noted, s *notifications.Source) (names []string) {
	for q.Len() > 0 {
		r, _ := q.Get()
		s.Begin(r)
		q.Done(r)
		names = append(names, r.Name)
	}
	return names
}

func TestAnEndPassesNewObjects(t *testing.T) {
	g := NewWithT(t)
	sub, s, q := started(t)
	s.Track("t", request("ended"))
	for n := range 500 {
		q.Add(request(fmt.Sprint("new-", n)))
	}
	sub.fn(store.Notification{ThreadID: "t", Changed: store.ChangedThread})
	names := take(q, s)
	g.Expect(names).To(HaveLen(501))
	g.Expect(names[0]).To(Equal("ended"))
}

// When notifications may have been lost, every request is looked at, but what is known to have changed, and what is new, comes first.
func TestTheSearchForLostNotificationsComesLast(t *testing.T) {
	g := NewWithT(t)
	sub, s, q := started(t)
	for _, name := range []string{"a", "b", "c"} {
		s.Track(name, request(name))
	}
	lost := store.Notification{Changed: store.ChangedThread, Remote: true}
	sub.fn(lost)
	q.Add(request("new"))
	sub.fn(store.Notification{ThreadID: "b", Changed: store.ChangedThread})
	names := take(q, s)
	g.Expect(names).To(HaveLen(4))
	g.Expect(names[:2]).To(Equal([]string{"b", "new"}))
	g.Expect(names[2:]).To(ConsistOf("a", "c"))

	sub.fn(lost)
	sub.fn(lost)
	sub.fn(store.Notification{ThreadID: "b", Changed: store.ChangedThread})
	sub.fn(lost)
	g.Expect(take(q, s)).To(HaveExactElements(Equal("b"), Or(Equal("a"), Equal("c")), Or(Equal("a"), Equal("c"))), "each is in the queue once")
}

func TestTheSearchForLostNotificationsIsPaced(t *testing.T) {
	g := NewWithT(t)
	sub, s, q := started(t)
	for n := range 2500 {
		s.Track(fmt.Sprint(n), request(fmt.Sprint(n)))
	}
	lost := store.Notification{Changed: store.ChangedThread, Remote: true}
	sub.fn(lost)
	sub.fn(lost) // they wait already
	g.Expect(q.n).To(Equal(2500))
	low := ptr.To(watches.MissedPriority)
	g.Expect(q.added).To(Equal([]priorityqueue.AddOpts{{Priority: low}, {Priority: low, After: time.Second}, {Priority: low, After: 2 * time.Second}}))
}

func TestEffectSource(t *testing.T) {
	g := NewWithT(t)
	sub := &subscriber{stopped: make(chan struct{})}
	s := notifications.NewEffectSource(sub)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	g.Expect(s.Start(t.Context(), queue)).To(Succeed())
	a := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "a"}}
	b := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "n", Name: "b"}}
	s.Track("effect-a", a)
	s.Track("effect-b", b)
	enqueued := func(h store.Notification) (names []string) {
		sub.fn(h)
		for queue.Len() > 0 {
			r, _ := queue.Get()
			queue.Done(r)
			s.Begin(r)
			names = append(names, r.Name)
		}
		return names
	}
	g.Expect(enqueued(store.Notification{EffectID: "effect-a", Changed: store.ChangedFiring})).To(ConsistOf("a"))
	g.Expect(enqueued(store.Notification{EffectID: "effect-b", ThreadID: "t", Changed: store.ChangedFiring})).To(ConsistOf("b"))
	g.Expect(enqueued(store.Notification{EffectID: "effect-c", Changed: store.ChangedFiring})).To(BeEmpty(), "another effect")
	g.Expect(enqueued(store.Notification{EffectID: store.AnyEffect, Changed: store.ChangedFiring})).To(BeEmpty(), "claims were given up")
	g.Expect(enqueued(store.Notification{ThreadID: "effect-a", Changed: store.ChangedFiring})).To(BeEmpty(), "a thread of that id")
	g.Expect(enqueued(store.Notification{EffectID: "effect-a", Changed: store.ChangedThread})).To(BeEmpty(), "another kind of change")
	g.Expect(enqueued(store.Notification{Changed: store.ChangedFiring, Remote: true})).To(ConsistOf("a", "b"), "anything may have changed")
}
