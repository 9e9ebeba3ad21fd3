package notifications_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/skein-dev/skein/internal/controller/notifications"
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
	s.Hold(a)
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
