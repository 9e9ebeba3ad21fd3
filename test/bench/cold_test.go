package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/test/harness"
)

// start is when a pod came to each stage, as a watch of the API server tells.
type start struct {
	asked time.Time // by a request of code, or by the pod's creation
	made  time.Time // the pod is there
	bound time.Time // it has a node
	runs  time.Time // its node says so
	done  time.Time // code has its first result; a plain pod is Ready
}

// starts are those of one kind of pod.
type starts []start

func (s starts) between(from, to func(start) time.Time) []time.Duration {
	took := make([]time.Duration, len(s))
	for i, one := range s {
		took[i] = to(one).Sub(from(one))
	}
	return took
}

func asked(s start) time.Time { return s.asked }
func made(s start) time.Time  { return s.made }
func bound(s start) time.Time { return s.bound }
func runs(s start) time.Time  { return s.runs }
func done(s start) time.Time  { return s.done }

// ours is what of a cold start is not the node's and the scheduler's: until the pod is there, and from when it runs.
func (s starts) ours() []time.Duration {
	before, after := s.between(asked, made), s.between(runs, done)
	for i := range before {
		before[i] += after[i]
	}
	return before
}

// cold measures threads that find no warm sandbox, each beside a plain pod: the same image and spec, Secret volume
// included, made by this bench and Ready as soon as it runs, for it has no probe. Which of a pair comes first is left
// to chance, as is the time between; each is gone from the node before the next.
//
// A node tells of its containers once a second, so that two pods of one kind differ by up to a second: the medians
// of few say little of the two kinds, and each pod's own stages say it all.
func (b *sandboxBench) cold(ctx SpecContext, n int) {
	b.pool(ctx, 0)
	ts := b.threads(ctx, "cold", n)
	var plain, sandboxes starts
	for i, t := range ts {
		pair := []func(){
			func() { plain = append(plain, b.plainPod(ctx, fmt.Sprintf("plain-%d", i))) },
			func() { sandboxes = append(sandboxes, b.coldSandbox(ctx, t)) },
		}
		rand.Shuffle(len(pair), func(i, j int) { pair[i], pair[j] = pair[j], pair[i] })
		for _, one := range pair {
			think(ctx)
			one()
		}
	}
	p, c := plain.between(asked, done), sandboxes.between(asked, done)
	figure("a plain pod → Ready (the floor)", "%s", spread(p))
	figure("cold → first result, over the API", "%s; p50 %s above the floor", spread(c), round(quantile(c, .5)-quantile(p, .5)))
	figure("  what is ours of it, of the same pods", "%s (budget p50 50 ms)", spread(sandboxes.ours()))
	figure("  need → pod made", "%s; a plain pod's %s", spread(sandboxes.between(asked, made)), spread(plain.between(asked, made)))
	figure("  pod made → on a node", "%s; a plain pod's %s", spread(sandboxes.between(made, bound)), spread(plain.between(made, bound)))
	figure("  on a node → runs", "%s; a plain pod's %s", spread(sandboxes.between(bound, runs)), spread(plain.between(bound, runs)))
	figure("  runs → first result", "%s", spread(sandboxes.between(runs, done)))
}

// coldSandbox is a call of code that has to wait for a pod of its own.
func (b *sandboxBench) coldSandbox(ctx SpecContext, t *harness.Thread) start {
	GinkgoHelper()
	seen, stop := b.follow(ctx, client.HasLabels{skeinv1.LabelPool})
	defer stop()
	asked := time.Now()
	b.run(ctx, t)
	done := time.Now()
	s := <-seen
	s.asked, s.done = asked, done
	Expect(t.Delete(ctx)).To(Succeed())
	b.settle(ctx, 0)
	return s
}

// plainPod is a pod like a sandbox's, without an owner and a probe.
func (b *sandboxBench) plainPod(ctx SpecContext, name string) start {
	GinkgoHelper()
	seen, stop := b.follow(ctx, client.MatchingFields{"metadata.name": name})
	defer stop()
	asked := time.Now()
	p := b.createPlain(ctx, name)
	s := <-seen
	s.asked, s.done = asked, s.runs
	Expect(b.cluster.Client.Delete(ctx, p)).To(Succeed()) // as a thread's: its node confirms that it is gone
	Eventually(ctx, func() error {
		return client.IgnoreNotFound(b.cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), &corev1.Pod{}))
	}).Should(Succeed())
	return s
}

func (b *sandboxBench) createPlain(ctx context.Context, name string) *corev1.Pod {
	GinkgoHelper()
	p := sandboxpod.New(b.poolOf(0), sandboxpod.Settings{Image: "skein.dev/sandbox:dev", ImagePullPolicy: corev1.PullNever})
	p.ObjectMeta = metav1.ObjectMeta{Namespace: b.ns, Name: name}
	p.Spec.Containers[0].ReadinessProbe = nil
	create(ctx, b.cluster, p)
	return p
}

// follow gives the stages of the next pod, once it is reported to run. A pod without a probe is Ready by the same report.
func (b *sandboxBench) follow(ctx context.Context, which ...client.ListOption) (seen <-chan start, stop func()) {
	GinkgoHelper()
	w, err := b.cluster.Client.Watch(ctx, &corev1.PodList{}, append(which, client.InNamespace(b.ns))...)
	Expect(err).NotTo(HaveOccurred())
	out := make(chan start, 1)
	go func() {
		defer close(out)
		var s start
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || !p.DeletionTimestamp.IsZero() {
				continue
			}
			at := time.Now()
			if s.made.IsZero() {
				s.made = at
			}
			if s.bound.IsZero() && p.Spec.NodeName != "" {
				s.bound = at
			}
			if p.Status.Phase == corev1.PodRunning {
				s.runs = at
				out <- s
				return
			}
		}
	}()
	return out, w.Stop
}
