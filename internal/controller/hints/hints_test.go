package hints_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/skein-dev/skein/internal/controller/hints"
	"github.com/skein-dev/skein/internal/store"
)

// subscriber sends notifications on request.
type subscriber struct {
	fn      func(store.Hint)
	stopped chan struct{}
}

func (s *subscriber) Subscribe(fn func(store.Hint)) func() {
	s.fn = fn
	return func() { close(s.stopped) }
}

func TestSource(t *testing.T) {
	g := NewWithT(t)
	sub := &subscriber{stopped: make(chan struct{})}
	s := hints.NewSource(sub, store.ChangedThread)
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
	hint := func(id string, c store.Change) { sub.fn(store.Hint{ThreadID: id, Changed: c}) }

	hint("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "nobody tracks it")
	s.Track("t", a)
	s.Track("t", b)
	hint("t", store.ChangedLog)
	g.Expect(drain()).To(Equal(0), "another kind of change")
	hint("t", store.ChangedThread|store.ChangedLog)
	g.Expect(drain()).To(Equal(2))
	hint("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "both wait to be reconciled")
	s.Begin(a)
	hint("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(1))
	s.Begin(a)
	s.Hold(a)
	hint("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "held")
	s.Begin(a)
	s.Track("other", a)
	hint("t", store.ChangedThread)
	g.Expect(drain()).To(Equal(0), "tracked with another thread now")
	hint("other", store.ChangedThread)
	g.Expect(drain()).To(Equal(1))
	s.Begin(a)
	s.Forget(a)
	hint("other", store.ChangedThread)
	g.Expect(drain()).To(Equal(0))
	cancel()
	g.Eventually(sub.stopped).Should(BeClosed())
}
