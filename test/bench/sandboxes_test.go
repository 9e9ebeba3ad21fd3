package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
	"github.com/skein-dev/skein/test/harness"
)

// sandboxBench measures sandboxes on real pods.
type sandboxBench struct {
	cluster *harness.Cluster
	ns      string
	thread  func(ctx SpecContext, name string) *harness.Thread
}

// pool makes the default pool keep so many sandboxes warm, and waits until they are there and nothing else is.
func (b *sandboxBench) pool(ctx SpecContext, warm int32) {
	GinkgoHelper()
	p := b.poolOf(warm)
	err := b.cluster.Client.Patch(ctx, p.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"warm":%d}}`, warm)))
	if apierrors.IsNotFound(err) {
		err = b.cluster.Client.Create(ctx, p)
	}
	Expect(err).NotTo(HaveOccurred())
	b.settle(ctx, int(warm))
}

// poolOf asks for little of the node, which is to hold as many as there may be.
func (b *sandboxBench) poolOf(warm int32) *skeinv1.SandboxPool {
	p := &skeinv1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: skeinv1.DefaultPoolName}, Spec: skeinv1.SandboxPoolSpec{Warm: warm}}
	p.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: harness.Quantity("1m"), corev1.ResourceMemory: harness.Quantity("16Mi")}
	return p
}

// settle waits until so many pods are warm by their own state, and every other sandbox is gone.
func (b *sandboxBench) settle(ctx SpecContext, warm int) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var l corev1.PodList
		g.Expect(b.cluster.Client.List(ctx, &l, client.InNamespace(b.ns), client.HasLabels{skeinv1.LabelPool})).To(Succeed())
		ready := 0
		for i := range l.Items {
			if sandboxpod.IsReady(&l.Items[i]) && l.Items[i].Labels[skeinv1.LabelSandboxState] == sandboxpod.Warm {
				ready++
			}
		}
		g.Expect(ready).To(Equal(warm))
		g.Expect(l.Items).To(HaveLen(warm))
	}).Should(Succeed())
}

// think waits a random while, so that nothing falls into step with the kubelet's beats.
func think(ctx context.Context) {
	select {
	case <-time.After(300*time.Millisecond + rand.N(1200*time.Millisecond)):
	case <-ctx.Done():
	}
}

// run is one call of code over the runtime API.
func (b *sandboxBench) run(ctx SpecContext, t *harness.Thread) time.Duration {
	return timed(func() {
		r, err := t.Code(ctx, runtimev1.CodeRequest{Source: "export default () => 1 + 1"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
	})
}

func (b *sandboxBench) threads(ctx SpecContext, prefix string, n int) []*harness.Thread {
	ts := make([]*harness.Thread, n)
	for i := range ts {
		ts[i] = b.thread(ctx, fmt.Sprintf("%s-%d", prefix, i))
	}
	return ts
}

// warmClaims measures the first call of a thread while sandboxes wait, what it writes, and the calls after it.
func (b *sandboxBench) warmClaims(ctx SpecContext, n int) {
	const warm = 3
	b.pool(ctx, warm)
	ts := b.threads(ctx, "warm", n)
	before := b.histogram(ctx, "first_result", "warm")
	acquired := b.histogram(ctx, "acquire", "warm")
	var first, floor, patch, again []time.Duration
	began := time.Now()
	for i, t := range ts {
		think(ctx) // a claim too comes out of the blue, with caches gone cold
		patch = append(patch, b.patch(ctx))
		think(ctx)
		floor = append(floor, timed(func() { Expect(t.Messages(ctx)).To(BeEmpty()) }))
		first = append(first, b.run(ctx, t))
		if i < n-1 {
			Expect(t.Delete(ctx)).To(Succeed())
			b.settle(ctx, warm)
		}
	}
	figure("runtime API, an empty read (the floor)", "%s", spread(floor))
	figure("a conditional patch of a warm pod (the floor)", "%s", spread(patch))
	p50 := quantile(patch, .5)
	connected, result := b.histogram(ctx, "acquire", "warm").minus(acquired), b.histogram(ctx, "first_result", "warm").minus(before)
	figure("warm claim → connected, at the engine", "%s; p50 %s", connected, multiple(connected.quantile(.5), p50))
	figure("warm claim → first result, at the engine", "%s; p50 %s (budget p50 8 ms over a floor of 3.5 ms: 2.29 times)", result, multiple(result.quantile(.5), p50))
	figure("warm claim → first result, over the API", "%s; p50 %s, its own and the read's together", spread(first), multiple(quantile(first, .5), p50+quantile(floor, .5)))
	last := ts[n-1]
	for range 300 {
		again = append(again, b.run(ctx, last))
	}
	figure("runCode on a claimed pod, over the API", "%s (goal p50 4 ms, p99 8 ms)", spread(again))
	Expect(last.Delete(ctx)).To(Succeed())
	b.settle(ctx, warm)
	b.writes(ctx, began, n)
}

// patch is a write like a claim's that changes a warm pod in a way that has no effect.
func (b *sandboxBench) patch(ctx SpecContext) time.Duration {
	GinkgoHelper()
	var l corev1.PodList
	Expect(b.cluster.Client.List(ctx, &l, client.InNamespace(b.ns), client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Warm})).To(Succeed())
	Expect(l.Items).NotTo(BeEmpty())
	return b.touch(ctx, &l.Items[0])
}

// patches is patch of all warm pods at once.
func (b *sandboxBench) patches(ctx SpecContext) []time.Duration {
	GinkgoHelper()
	var l corev1.PodList
	Expect(b.cluster.Client.List(ctx, &l, client.InNamespace(b.ns), client.MatchingLabels{skeinv1.LabelSandboxState: sandboxpod.Warm})).To(Succeed())
	took := make([]time.Duration, len(l.Items))
	var wg sync.WaitGroup
	for i := range l.Items {
		wg.Go(func() {
			defer GinkgoRecover()
			took[i] = b.touch(ctx, &l.Items[i])
		})
	}
	wg.Wait()
	return took
}

func (b *sandboxBench) touch(ctx SpecContext, p *corev1.Pod) time.Duration {
	GinkgoHelper()
	change := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{"bench":%q}}}`, p.ResourceVersion, time.Now().Format(time.RFC3339Nano))
	return timed(func() {
		Expect(b.cluster.Client.Patch(ctx, p, client.RawPatch(types.MergePatchType, change))).To(Succeed())
	})
}

// writes counts what the operator wrote for so many claims, the refills and the deletions of what was claimed.
func (b *sandboxBench) writes(ctx SpecContext, since time.Time, claims int) {
	GinkgoHelper()
	writes, err := b.cluster.Writes(operator, b.ns, since)
	Expect(err).NotTo(HaveOccurred())
	cycle, threads, pool := apiWrites{}, apiWrites{}, 0
	for _, w := range writes {
		switch {
		case strings.HasPrefix(w.Resource, "threads"): // what a Thread costs without a sandbox, too
			threads[w.Verb+" "+w.Resource]++
		case w.Resource == "sandboxpools/status": // at most one in 30 seconds, however many claims there are
			pool++
		default:
			cycle[w.Verb+" "+w.Resource]++
		}
	}
	figure("API writes of a claim, its refill and its deletion", "%s (goal 3)", cycle.each(claims))
	figure("  besides", "the pool's status %d times in %s; of each Thread itself %s", pool, time.Since(since).Round(time.Second), threads.each(claims))
	figure("  refused writes", "%s (goal 0)", refusedWrites(b.cluster, operator, b.ns, since).each(claims))
}

// bursts measures several threads that need a sandbox at once, with as many warm.
func (b *sandboxBench) bursts(ctx SpecContext, n, size int) {
	b.pool(ctx, int32(size))
	before := b.histogram(ctx, "first_result", "warm")
	var mu sync.Mutex
	var first, floor []time.Duration
	for burst := range n {
		ts := b.threads(ctx, fmt.Sprintf("burst-%d", burst), size)
		think(ctx)
		floor = append(floor, b.patches(ctx)...)
		think(ctx)
		var wg sync.WaitGroup
		for _, t := range ts {
			wg.Go(func() {
				defer GinkgoRecover()
				took := b.run(ctx, t)
				mu.Lock()
				defer mu.Unlock()
				first = append(first, took)
			})
		}
		wg.Wait()
		for _, t := range ts {
			Expect(t.Delete(ctx)).To(Succeed())
		}
		b.settle(ctx, size)
	}
	result := b.histogram(ctx, "first_result", "warm").minus(before)
	figure(fmt.Sprintf("patches of %d warm pods at once (the floor)", size), "%s", spread(floor))
	figure(fmt.Sprintf("burst of %d → first results, at the engine", size), "%s; p50 %s, p99 %s (budget p99 50 ms)", result,
		multiple(result.quantile(.5), quantile(floor, .5)), multiple(result.quantile(.99), quantile(floor, .99)))
	figure(fmt.Sprintf("burst of %d → first results, over the API", size), "%s", spread(first))
}
