package sandboxes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxes"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
)

// connection is a dialled sandbox. The specs here run nothing in it.
type connection struct {
	sandbox.Sandbox
	endpoint sandboxes.Endpoint
	closed   bool
	idle     func() (time.Duration, error)
	retire   func(atLeast, hold time.Duration) time.Duration
}

func (c *connection) Retire(_ context.Context, atLeast, hold time.Duration) (time.Duration, error) {
	if c.retire != nil {
		return c.retire(atLeast, hold), nil
	}
	if c.idle == nil {
		return time.Hour, nil
	}
	return c.idle()
}

func (c *connection) Close() error { c.closed = true; return nil }

// pods is a pool with the port over it. The fake API server does what a kubelet would: a pod is ready as soon as it
// is created, unless the spec says otherwise.
type pods struct {
	client client.WithWatch
	clock  *testingclock.FakeClock
	port   *sandboxes.Pods
	pool   *skeinv1.SandboxPool
	mu     sync.Mutex
	writes map[string]int
	names  int
	// dialled is called with new connections, when set.
	dialled func(*connection)
}

var settings = sandboxpod.Settings{Image: "sandbox:dev", ImagePullPolicy: corev1.PullNever}

func newPods(funcs interceptor.Funcs, status corev1.PodStatus) *pods {
	p := &pods{
		clock:  testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		writes: map[string]int{},
		pool: &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace, Name: "default", UID: "pool"},
			Spec: skeinv1.SandboxPoolSpec{Warm: 1, Max: 3, IdleTimeout: &metav1.Duration{Duration: time.Minute}, MaxWallTime: &metav1.Duration{Duration: 9 * time.Second}}},
	}
	count := func(verb string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.writes[verb]++
	}
	patch := funcs.Patch
	p.client = kubetest.Cluster(interceptor.Funcs{
		Get:  funcs.Get,
		List: funcs.List,
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count("create")
			if funcs.Create != nil {
				return funcs.Create(ctx, c, o, opts...)
			}
			pod, isPod := o.(*corev1.Pod)
			if !isPod {
				return c.Create(ctx, o, opts...)
			}
			p.names++
			pod.Name, pod.UID = fmt.Sprintf("%s%d", pod.GenerateName, p.names), types.UID(fmt.Sprintf("pod-%d", p.names))
			if err := c.Create(ctx, pod, opts...); err != nil {
				return err
			}
			pod.Status = status
			return c.Status().Update(ctx, pod)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
			count("patch")
			if patch != nil {
				return patch(ctx, c, o, pa, opts...)
			}
			return c.Patch(ctx, o, pa, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count("delete")
			if funcs.Delete != nil {
				return funcs.Delete(ctx, c, o, opts...)
			}
			return c.Delete(ctx, o, opts...)
		},
	}, p.pool, policyOf(p.pool))
	p.port = sandboxes.NewPods(sandboxes.PodsOptions{
		Client: p.client, Settings: settings, Clock: p.clock, Logger: logr.Discard(), StartTimeout: 50 * time.Millisecond,
		PlaceTimeout: 50 * time.Millisecond,
		Dial: func(_ context.Context, e sandboxes.Endpoint) (sandbox.Sandbox, error) {
			c := &connection{endpoint: e}
			if p.dialled != nil {
				p.dialled(c)
			}
			return c, nil
		},
	})
	return p
}

// policyOf is the NetworkPolicy that the controller makes for a pool.
func policyOf(pool *skeinv1.SandboxPool) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: sandboxpod.PolicyName(pool.Name),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, skeinv1.GroupVersion.WithKind("SandboxPool"))}},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{skeinv1.LabelPool: pool.Name}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

var running = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}

// warm creates a warm pod as the pool's controller does, and does not count those writes.
func (p *pods) warm(ctx context.Context, n int) {
	GinkgoHelper()
	for range n {
		Expect(p.client.Create(ctx, sandboxpod.New(p.pool, settings))).To(Succeed())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes = map[string]int{}
}

func (p *pods) all(ctx context.Context) []corev1.Pod {
	GinkgoHelper()
	var l corev1.PodList
	Expect(p.client.List(ctx, &l)).To(Succeed())
	return l.Items
}

func thread(n int) *store.Thread {
	return &store.Thread{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Namespace: kubetest.Namespace, Name: fmt.Sprintf("thread-%d", n)}
}

var _ = Describe("Sandboxes as pods", func() {
	It("claim a warm pod by one conditional patch, and keep it for the thread", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.warm(ctx, 2)
		sbx, release, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.writes).To(Equal(map[string]int{"patch": 1}))
		endpoint := sbx.(*connection).endpoint
		Expect(endpoint.Answered).NotTo(BeNil())
		endpoint.Answered = nil
		Expect(endpoint).To(Equal(sandboxes.Endpoint{
			Address: "10.0.0.7:8443", ServerName: "sandbox.default.demo.skein.dev", ConnectionName: endpoint.ConnectionName, ThreadID: thread(1).ID, MaxWallTime: 9 * time.Second}))
		again, releaseAgain, err := p.port.Acquire(ctx, thread(1), "default")
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeIdenticalTo(sbx))
		Expect(p.writes).To(Equal(map[string]int{"patch": 1}))
		release()
		releaseAgain()

		Expect(p.all(ctx)).To(ConsistOf(
			And(HaveField("Labels", And(HaveKeyWithValue(skeinv1.LabelSandboxState, "claimed"), HaveKeyWithValue(skeinv1.LabelThreadID, thread(1).ID))),
				HaveField("OwnerReferences", HaveExactElements(And(HaveField("Kind", "Thread"), HaveField("UID", BeEquivalentTo(thread(1).ID)))))),
			And(HaveField("Labels", HaveKeyWithValue(skeinv1.LabelSandboxState, "warm")), HaveField("OwnerReferences", HaveExactElements(HaveField("Kind", "SandboxPool"))))))
	})

	It("never give two threads the same pod, however many come at once", Label("COD-08"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.pool.Spec.Max = 50
		Expect(p.client.Update(ctx, p.pool)).To(Succeed())
		p.warm(ctx, 6)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				defer GinkgoRecover()
				_, _, err := p.port.Acquire(ctx, thread(i), "")
				Expect(err).NotTo(HaveOccurred())
			})
		}
		wg.Wait()
		owners := map[string]int{}
		for _, pod := range p.all(ctx) {
			Expect(pod.Labels).To(HaveKeyWithValue(skeinv1.LabelSandboxState, "claimed"))
			owners[pod.Labels[skeinv1.LabelThreadID]]++
		}
		Expect(owners).To(HaveLen(20))
		Expect(owners).To(HaveEach(1))
		Expect(p.writes).To(Equal(map[string]int{"patch": 6, "create": 14}), "no two of them tried the same pod")
	})

	It("try the next pod when another claim was faster", Label("COD-09"), func(ctx SpecContext) {
		lost := 0
		p := newPods(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, pa client.Patch, opts ...client.PatchOption) error {
			if lost++; lost == 1 {
				return apierrors.NewConflict(corev1.Resource("pods"), o.GetName(), errors.New("changed"))
			}
			return c.Patch(ctx, o, pa, opts...)
		}}, running)
		p.warm(ctx, 2)
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.writes).To(Equal(map[string]int{"patch": 2}))
	})

	It("start a pod that is the thread's from the start when none is warm", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.writes).To(Equal(map[string]int{"create": 1}))
		Expect(p.all(ctx)).To(ConsistOf(HaveField("Labels", And(HaveKeyWithValue(skeinv1.LabelSandboxState, "claimed"), HaveKeyWithValue(skeinv1.LabelThreadID, thread(1).ID)))))
	})

	It("wait for a warm pod that is starting rather than start another", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, corev1.PodStatus{Phase: corev1.PodPending})
		p.warm(ctx, 1)
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).To(MatchError(ContainSubstring("is not ready: it is still starting")))
		Expect(p.writes).To(Equal(map[string]int{"patch": 1, "delete": 1}), "what does not come up in its time makes way")
		p.warm(ctx, 1)
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err = p.port.Acquire(canceled, thread(1), "")
		Expect(err).To(HaveOccurred())
		Expect(p.all(ctx)).To(HaveLen(1), "a caller that gave up takes nobody's pod away")
	})

	It("say why a pod does not start, and leave none behind", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImageNeverPull", Message: "not there"}}}}})
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).To(MatchError(And(ContainSubstring("ErrImageNeverPull: not there"), ContainSubstring("put the image on the nodes"))))
		Expect(err).NotTo(MatchError(context.DeadlineExceeded), "nobody waits for what cannot come")
		Expect(p.all(ctx)).To(BeEmpty())
	})

	It("say that none may be started, and what to do", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("exceeded quota: small"))
		}}, running)
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).To(MatchError(And(ContainSubstring("exceeded quota: small"), ContainSubstring("raise the namespace's ResourceQuota"))))
	})

	It("say what to do about a pool that is missing or full", func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		_, _, err := p.port.Acquire(ctx, thread(1), "gpu")
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonReferenceNotFound, `SandboxPool "gpu"`, "create it"))
		for i := range 3 {
			_, _, err := p.port.Acquire(ctx, thread(i), "")
			Expect(err).NotTo(HaveOccurred())
		}
		_, _, err = p.port.Acquire(ctx, thread(9), "")
		Expect(err).To(MatchError(And(ContainSubstring("full"), ContainSubstring("spec.max"))))
	})

	It("keep the pool's bound when many come at once", func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() { _, _, _ = p.port.Acquire(ctx, thread(i), "") })
		}
		wg.Wait()
		Expect(p.all(ctx)).To(HaveLen(3))
	})

	It("give up an idle pod where the pool is full", func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		for i := range 3 {
			_, release, err := p.port.Acquire(ctx, thread(i), "")
			Expect(err).NotTo(HaveOccurred())
			if i == 1 {
				release()
			}
		}
		_, _, err := p.port.Acquire(ctx, thread(9), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.all(ctx)).To(ConsistOf(ownedBy(thread(0)), ownedBy(thread(2)), ownedBy(thread(9))))
	})

	It("find the thread's pod again after a restart of the manager", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		p.warm(ctx, 2)
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		next := sandboxes.NewPods(p.port.PodsOptions)
		_, _, err = next.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.writes).To(Equal(map[string]int{"patch": 1}), "the second manager claims nothing")
	})

	It("are replaced after they failed, once for all who saw it", Label("COD-09"), func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		first, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		p.port.Discard(ctx, thread(1), first)
		Expect(p.all(ctx)).To(BeEmpty())
		second, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		p.port.Discard(ctx, thread(1), first)
		Expect(second.(*connection).closed).To(BeFalse())
		Expect(p.all(ctx)).To(HaveLen(1))
		p.port.Forget(thread(1).ID)
		Expect(second.(*connection).closed).To(BeTrue())
		Expect(p.all(ctx)).To(HaveLen(1), "the pod goes with the Thread")
	})

	It("are replaced after they failed, also while the cache still has the pod that was given up", Label("COD-09"), func(ctx SpecContext) {
		var stale []corev1.Pod
		p := newPods(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if pods, ok := l.(*corev1.PodList); ok && o.FieldSelector != nil && strings.Contains(o.FieldSelector.String(), thread(1).ID) {
				pods.Items = append(pods.Items, stale...)
			}
			return err
		}}, running)
		first, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		given := p.all(ctx)
		p.port.Discard(ctx, thread(1), first)
		stale = given
		_, _, err = p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.all(ctx)).To(ConsistOf(HaveField("UID", Not(Equal(given[0].UID)))))
	})
})

func ownedBy(t *store.Thread) OmegaMatcher {
	return HaveField("Labels", HaveKeyWithValue(skeinv1.LabelThreadID, t.ID))
}
