package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxes"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
)

var _ = Describe("A thread's way to its sandbox", func() {
	DescribeTable("names the field that names a missing pool", Label("COD-08", "K8S-02"), func(ctx SpecContext, threadless bool, kind, field string) {
		p := newPods(interceptor.Funcs{}, running)
		of := thread(1)
		of.Threadless, of.Kind = threadless, kind
		_, _, err := p.port.Acquire(ctx, of, "none")
		Expect(err).To(MatchError(`SandboxPool "none" does not exist in namespace "` + kubetest.Namespace + `": create it, or correct ` + field))
	},
		Entry("of a thread", false, "", "spec.sandboxPoolRef of the agent"),
		Entry("of an effect without a thread", true, "", "spec.sandboxPool of the ScheduledEffect"),
		Entry("of an id provider", true, "ThreadGateway", "spec.idProvider.code.sandboxPoolRef of the ThreadGateway"),
	)

	It("dials a warm pod while the API server takes the claim", Label("COD-09"), func(ctx SpecContext) {
		dialling := make(chan struct{})
		p := newPods(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
			select {
			case <-dialling: // otherwise the claim would end first
			case <-ctx.Done():
				return ctx.Err()
			}
			return c.Patch(ctx, o, pa, opts...)
		}}, running)
		p.warm(ctx, 1)
		p.port.Dial = func(_ context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
			close(dialling)
			return &connection{endpoint: e}, nil
		}
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(kubetest.Patience))

	It("closes its connection to a pod that another claim took first", Label("COD-08"), func(ctx SpecContext) {
		lost := 0
		p := newPods(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
			if lost++; lost == 1 {
				return apierrors.NewConflict(corev1.Resource("pods"), o.GetName(), errors.New("changed"))
			}
			return c.Patch(ctx, o, pa, opts...)
		}}, running)
		p.warm(ctx, 2)
		var dialled []*connection
		p.port.Dial = func(_ context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
			dialled = append(dialled, &connection{endpoint: e})
			return dialled[len(dialled)-1], nil
		}
		sbx, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(dialled).To(HaveLen(2))
		Expect(dialled[0].closed).To(BeTrue())
		Expect(dialled[1].closed).To(BeFalse())
		Expect(sbx).To(BeIdenticalTo(dialled[1]))
	})

	It("leaves a pod that it dialled and did not claim to the next thread", Label("COD-08"), func(ctx SpecContext) {
		dialled, dead := make(chan *connection, 1), make(chan struct{})
		p := newPods(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
			select {
			case <-dead:
				return c.Patch(ctx, o, pa, opts...)
			default: // the claim never leaves this manager
				<-ctx.Done()
				return ctx.Err()
			}
		}}, running)
		p.warm(ctx, 1)
		p.dialled = func(c *connection) {
			select {
			case dialled <- c:
			default:
			}
		}
		life, dies := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() {
			_, _, err := p.port.Acquire(life, thread(1), "")
			over <- err
		}()
		var first *connection
		Eventually(ctx, dialled).Should(Receive(&first))
		dies()
		Eventually(ctx, over).Should(Receive(HaveOccurred()))
		Expect(first.closed).To(BeTrue())
		Expect(p.all(ctx)).To(ConsistOf(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, "warm"))), "a connection takes nothing")

		close(dead)
		next := sandboxes.NewPods(p.port.PodsOptions)
		_, _, err := next.Acquire(ctx, thread(2), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.all(ctx)).To(ConsistOf(ownedBy(thread(2))), "the very pod")
	}, NodeTimeout(kubetest.Patience))

	It("uses no connection made ahead after a sandbox has failed: the next may be on the same lost node", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.warm(ctx, 3)
		var names []string
		fails := 0
		p.port.Dial = func(_ context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
			names = append(names, e.ConnectionName)
			if fails--; fails >= 0 {
				return nil, errors.New("no route to host")
			}
			return &connection{endpoint: e}, nil
		}
		sbx, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		p.port.Discard(ctx, thread(1), sbx)
		_, _, err = p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		_, _, err = p.port.Acquire(ctx, thread(2), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(names).To(HaveExactElements(Not(BeEmpty()), BeEmpty(), Not(BeEmpty())), "that is of the one thread")

		names, fails = nil, 1
		p.port.Forget(thread(1).ID)
		p.warm(ctx, 2)
		_, _, err = p.port.Acquire(ctx, thread(3), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(names).To(HaveExactElements(Not(BeEmpty()), BeEmpty()))
	})

	It("asks a starting pod itself rather than wait for the kubelet's beat", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"})
		p.port.StartTimeout = kubetest.Patience
		var knocks atomic.Int32
		began := time.Now()
		p.port.Dial = func(ctx context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
			defer GinkgoRecover()
			deadline, _ := ctx.Deadline()
			Expect(deadline).To(BeTemporally(">=", began.Add(kubetest.Patience/2)), "its handshake has time")
			Expect(e.DialTimeout).To(And(BeNumerically(">", 0), BeNumerically("<", time.Second)), "an address that leads nowhere has little")
			if knocks.Add(1) < 3 {
				return nil, errors.New("connection refused")
			}
			return &connection{endpoint: e}, nil
		}
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(knocks.Load()).To(BeEquivalentTo(3))
		Expect(p.writes).To(Equal(map[string]int{"create": 1}))
	}, NodeTimeout(kubetest.Patience))

	It("takes a pod that runs before an older one that is still being made", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, corev1.PodStatus{Phase: corev1.PodPending})
		p.port.StartTimeout = kubetest.Patience
		var pod *corev1.Pod
		for _, age := range []time.Duration{2 * time.Second, time.Second, 0} {
			pod = sandboxpod.New(p.pool, settings)
			pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-age).Truncate(time.Second))
			Expect(p.client.Create(ctx, pod)).To(Succeed())
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"}
		Expect(p.client.Status().Update(ctx, pod)).To(Succeed())
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.client.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(*pod).To(ownedBy(thread(1)))
		Expect(p.all(ctx)).To(HaveLen(3))
	}, NodeTimeout(kubetest.Patience))

	It("gives up at once on a pod whose certificate cannot be trusted, and takes another", Label("COD-08"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"})
		p.port.StartTimeout = kubetest.Patience
		p.port.Dial = func(context.Context, sandboxes.Endpoint) (sandbox.Sandbox, error) {
			return nil, fmt.Errorf("%w: it belongs to another pool or namespace", sandbox.ErrNotTrusted)
		}
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).To(MatchError(And(ContainSubstring("sandbox-default"), ContainSubstring("another pool or namespace"))))
		Expect(p.writes).To(Equal(map[string]int{"create": 3, "delete": 3}))
		Expect(p.all(ctx)).To(BeEmpty())
	}, NodeTimeout(kubetest.Patience))
})

var _ = Describe("A pool that is full and takes long to give up a sandbox", Label("COD-09"), func() {
	It("holds up neither the threads of another pool nor those that do not wait any longer", func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.pool.Spec.Max = 1
		Expect(p.client.Update(ctx, p.pool)).To(Succeed())
		asked, answer := make(chan struct{}), make(chan struct{})
		p.dialled = func(c *connection) {
			c.retire = func(time.Duration, time.Duration) time.Duration {
				close(asked)
				<-answer
				return time.Hour
			}
		}
		_, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		release()
		p.dialled = nil

		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer close(answer)
		waiting.Go(func() {
			defer GinkgoRecover()
			_, _, err := p.port.Acquire(ctx, thread(2), "")
			Expect(err).NotTo(HaveOccurred())
		})
		Eventually(asked).Should(BeClosed())

		other := p.pool.DeepCopy()
		other.Name, other.UID, other.ResourceVersion = "other", "other", ""
		Expect(p.client.Create(ctx, other)).To(Succeed())
		Expect(p.client.Create(ctx, policyOf(other))).To(Succeed())
		acquired := make(chan error, 2)
		go func() {
			_, _, err := p.port.Acquire(ctx, thread(3), "other")
			acquired <- err
		}()
		Eventually(acquired).Should(Receive(BeNil()))

		impatient, leave := context.WithCancel(ctx)
		leave()
		go func() {
			_, _, err := p.port.Acquire(impatient, thread(4), "")
			acquired <- err
		}()
		Eventually(acquired).Should(Receive(MatchError(context.Canceled)))
	})
})
