package sandboxes_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/kube/sandboxes"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
)

// untilClaimed returns a context that ends once a pod is claimed, and the API server that ends it.
func untilClaimed(ctx context.Context) (context.Context, interceptor.Funcs) {
	impatient, leave := context.WithCancel(ctx)
	return impatient, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
		defer leave()
		return c.Patch(context.WithoutCancel(ctx), o, pa, opts...)
	}}
}

var _ = Describe("Sandboxes as pods that are not used", func() {
	It("are deleted after the pool's idle time, counted from the last use", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		sbx, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		p.clock.Step(time.Hour)
		Expect(p.all(ctx)).To(HaveLen(1), "it is in use")
		release()
		release() // a repeat does nothing
		p.clock.Step(59 * time.Second)
		Expect(p.all(ctx)).To(HaveLen(1))
		_, release, err = p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		release()
		p.clock.Step(59 * time.Second)
		Expect(p.all(ctx)).To(HaveLen(1))
		p.clock.Step(time.Second)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
		Expect(sbx.(*connection).closed).To(BeTrue())
	})

	It("stay while another replica of the manager runs something in them", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		var idle atomic.Int64 // what the sandbox reports
		p.dialled = func(c *connection) { c.idle = func() (time.Duration, error) { return time.Duration(idle.Load()), nil } }
		_, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		release()
		p.clock.Step(time.Minute)
		Eventually(p.clock.HasWaiters).Should(BeTrue(), "it is busy, and is looked at again after a whole idle time")
		Expect(p.all(ctx)).To(HaveLen(1))
		idle.Store(int64(40 * time.Second))
		p.clock.Step(time.Minute)
		Eventually(p.clock.HasWaiters).Should(BeTrue(), "it has idled for 40 seconds, and is looked at after the rest")
		Expect(p.all(ctx)).To(HaveLen(1))
		p.clock.Step(19 * time.Second)
		Consistently(func() []corev1.Pod { return p.all(ctx) }, 50*time.Millisecond).Should(HaveLen(1))
		idle.Store(int64(time.Minute))
		p.clock.Step(time.Second)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("make no room where another replica runs something in them", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.dialled = func(c *connection) { c.idle = func() (time.Duration, error) { return 0, nil } }
		for i := range 3 {
			_, release, err := p.port.Acquire(ctx, thread(i), "")
			Expect(err).NotTo(HaveOccurred())
			release()
		}
		_, _, err := p.port.Acquire(ctx, thread(9), "")
		Expect(err).To(MatchError(ContainSubstring("is full")))
		Expect(p.all(ctx)).To(HaveLen(3))
	})

	It("are given up when their claimer gave up waiting for them", Label("COD-09"), func(ctx SpecContext) {
		impatient, claimed := untilClaimed(ctx)
		p := newPods(claimed, corev1.PodStatus{Phase: corev1.PodPending})
		p.warm(ctx, 1)
		_, _, err := p.port.Acquire(impatient, thread(1), "")
		Expect(err).To(MatchError(context.Canceled))
		Expect(p.all(ctx)).To(ConsistOf(ownedBy(thread(1))))
		Eventually(p.clock.HasWaiters).Should(BeTrue(), "no event of the pod is needed")
		p.clock.Step(time.Minute)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("are given up when their claimer gave up while it dialled them", Label("COD-09"), func(ctx SpecContext) {
		impatient, claimed := untilClaimed(ctx)
		p := newPods(claimed, running)
		p.warm(ctx, 1)
		var dials atomic.Int32
		p.port.Dial = func(ctx context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
			if dials.Add(1) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return &connection{endpoint: e}, nil
		}
		_, _, err := p.port.Acquire(impatient, thread(1), "")
		Expect(err).To(MatchError(context.Canceled))
		Expect(p.all(ctx)).To(ConsistOf(ownedBy(thread(1))))
		Eventually(p.clock.HasWaiters).Should(BeTrue(), "no event of the pod is needed")
		p.clock.Step(time.Minute)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("are given up when their claimer did not hear that it has them", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
			Expect(c.Patch(ctx, o, pa, opts...)).To(Succeed())
			return errors.New("the connection to the API server was lost")
		}}, running)
		p.warm(ctx, 1)
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).To(MatchError(ContainSubstring("was lost")))
		Eventually(p.clock.HasWaiters).Should(BeTrue())
		p.clock.Step(time.Minute)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("are deleted later when the API server was away at their time", Label("COD-09"), func(ctx SpecContext) {
		var tries atomic.Int32
		p := newPods(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if tries.Add(1) == 1 {
				return errors.New("connection refused")
			}
			return c.Delete(ctx, o, opts...)
		}}, running)
		_, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		release()
		p.clock.Step(time.Minute)
		Eventually(tries.Load).Should(BeEquivalentTo(1))
		Eventually(p.clock.HasWaiters).Should(BeTrue())
		p.clock.Step(time.Minute)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("are kept while they may yet start, for a claimer that comes back", Label("COD-09"), func(ctx SpecContext) {
		impatient, claimed := untilClaimed(ctx)
		p := newPods(claimed, corev1.PodStatus{Phase: corev1.PodPending})
		p.port.StartTimeout = 2 * time.Minute
		p.port.Dial = func(context.Context, sandboxes.Endpoint) (sandbox.Sandbox, error) {
			return nil, errors.New("nobody listens yet")
		}
		pod := sandboxpod.New(p.pool, settings)
		pod.CreationTimestamp = metav1.NewTime(p.clock.Now())
		Expect(p.client.Create(ctx, pod)).To(Succeed())
		_, _, err := p.port.Acquire(impatient, thread(1), "")
		Expect(err).To(MatchError(context.Canceled))
		Eventually(p.clock.HasWaiters).Should(BeTrue())
		p.clock.Step(time.Minute)
		Eventually(p.clock.HasWaiters).Should(BeTrue(), "the pool's idle time is over, but not that of the start")
		Expect(p.all(ctx)).To(ConsistOf(ownedBy(thread(1))))
		p.clock.Step(time.Minute)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("are deleted in their time when that failed after their thread had another", Label("COD-09"), func(ctx SpecContext) {
		var tries atomic.Int32
		asked, fail, discarded := make(chan struct{}), make(chan struct{}), make(chan struct{})
		p := newPods(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if tries.Add(1) == 1 {
				close(asked)
				<-fail
				return errors.New("the request timed out")
			}
			return c.Delete(ctx, o, opts...)
		}}, running)
		first, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		go func() {
			defer close(discarded)
			p.port.Discard(ctx, thread(1), first)
		}()
		Eventually(asked).Should(BeClosed())
		_, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.all(ctx)).To(HaveLen(2))
		close(fail)
		Eventually(discarded).Should(BeClosed())
		release()
		p.clock.Step(time.Minute)
		Eventually(p.clock.HasWaiters).Should(BeTrue(), "the first one is known again")
		p.clock.Step(time.Minute)
		Eventually(func() []corev1.Pod { return p.all(ctx) }).Should(BeEmpty())
	})

	It("stay with another replica when a caller gives up", Label("COD-09"), func(ctx SpecContext) {
		impatient, leave := context.WithCancel(ctx)
		p := newPods(interceptor.Funcs{}, running)
		var dialled []*connection
		p.dialled = func(c *connection) {
			dialled = append(dialled, c)
			c.idle = func() (time.Duration, error) { leave(); return 0, impatient.Err() }
		}
		for i := range 3 {
			_, release, err := p.port.Acquire(ctx, thread(i), "")
			Expect(err).NotTo(HaveOccurred())
			release()
		}
		_, _, err := p.port.Acquire(impatient, thread(9), "")
		Expect(err).To(HaveOccurred())
		Expect(p.all(ctx)).To(HaveLen(3))
		for _, c := range dialled {
			Expect(c.closed).To(BeFalse())
		}
	})
})
