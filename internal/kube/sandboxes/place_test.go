package sandboxes_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// fullPool returns a pool with three sandboxes, which three threads use, and how each stops using its sandbox. looked gets an
// entry whenever a thread then looks whether the pool is full.
func fullPool(ctx context.Context) (p *pods, release []func(), looked chan struct{}) {
	looked = make(chan struct{}, 1000)
	var full atomic.Bool
	p = newPods(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		o := (&client.ListOptions{}).ApplyOptions(opts)
		if full.Load() && o.FieldSelector != nil && strings.Contains(o.FieldSelector.String(), objects.SandboxIndex("default", sandboxpod.Claimed)) {
			looked <- struct{}{}
		}
		return c.List(ctx, l, opts...)
	}}, running)
	p.port.PlaceTimeout = kubetest.Patience
	for i := range 3 {
		_, free, err := p.port.Acquire(ctx, thread(i), "")
		Expect(err).NotTo(HaveOccurred())
		release = append(release, free)
	}
	full.Store(true)
	return p, release, looked
}

// begin asks for a sandbox for the i-th thread, and sends the error.
func begin(ctx context.Context, p *pods, i int) <-chan error {
	got := make(chan error, 1)
	go func() {
		_, _, err := p.port.Acquire(ctx, thread(i), "")
		got <- err
	}()
	return got
}

var _ = Describe("Threads that find a pool full", Label("COD-09"), func() {
	It("wait until a sandbox is idle", func(ctx SpecContext) {
		p, release, looked := fullPool(ctx)
		got := begin(ctx, p, 9)
		Eventually(looked).Should(Receive())
		Expect(got).NotTo(Receive())
		release[1]()
		Eventually(got).WithTimeout(kubetest.Patience).Should(Receive(Succeed()))
		Expect(p.all(ctx)).To(ConsistOf(ownedBy(thread(0)), ownedBy(thread(2)), ownedBy(thread(9))))
	})

	It("take a place that another limit adds", func(ctx SpecContext) {
		p, _, looked := fullPool(ctx)
		got := begin(ctx, p, 9)
		Eventually(looked).Should(Receive())
		p.pool.Spec.Max = 4
		Expect(p.client.Update(ctx, p.pool)).To(Succeed())
		Eventually(got).WithTimeout(kubetest.Patience).Should(Receive(Succeed()))
		Expect(p.all(ctx)).To(HaveLen(4))
	})

	It("all get a place in time, twenty of them", func(ctx SpecContext) {
		p, release, _ := fullPool(ctx)
		var wg sync.WaitGroup
		errs := make(chan error, 20)
		for i := range 20 {
			wg.Go(func() {
				_, free, err := p.port.Acquire(ctx, thread(10+i), "")
				if err == nil {
					free()
				}
				errs <- err
			})
		}
		for _, free := range release {
			free()
		}
		wg.Wait()
		for range 20 {
			Expect(<-errs).To(Succeed())
		}
		Expect(len(p.all(ctx))).To(BeNumerically("<=", 3))
	})

	It("tell their callers at once what they wait for, those that wait behind others too", func(ctx SpecContext) {
		p, _, _ := fullPool(ctx)
		calling, cancel := context.WithCancel(ctx)
		got := make([]<-chan error, 2)
		for i := range got {
			told := make(chan error, 100)
			got[i] = begin(ports.WithWaits(calling, func(why error) { told <- why }), p, 8+i)
			Eventually(told).Should(Receive(MatchError(`SandboxPool "default" is full: each of its 3 sandboxes is in use; try again later, or raise spec.max`)))
			Expect(got[i]).NotTo(Receive())
		}
		cancel()
		for i := range got {
			Eventually(got[i]).Should(Receive(MatchError(context.Canceled)))
		}
	})

	It("stop waiting when their call ends, and leave the place to the next", func(ctx SpecContext) {
		p, release, looked := fullPool(ctx)
		calling, cancel := context.WithCancel(ctx)
		first := begin(calling, p, 8)
		Eventually(looked).Should(Receive())
		second := begin(ctx, p, 9)
		cancel()
		Eventually(first).Should(Receive(MatchError(context.Canceled)))
		release[0]()
		Eventually(second).WithTimeout(kubetest.Patience).Should(Receive(Succeed()))
	})

	It("are told after a while what to do, those that wait behind others too", func(ctx SpecContext) {
		p, _, _ := fullPool(ctx)
		p.port.PlaceTimeout = 50
		for _, got := range []<-chan error{begin(ctx, p, 8), begin(ctx, p, 9)} {
			Eventually(got).Should(Receive(MatchError(And(ContainSubstring(`SandboxPool "default" is full`), ContainSubstring("raise spec.max")))))
		}
	})

	It("stop waiting when the manager shuts down", func(ctx SpecContext) {
		p, _, looked := fullPool(ctx)
		got := begin(ctx, p, 9)
		Eventually(looked).Should(Receive())
		Expect(p.port.Close()).To(Succeed())
		Eventually(got).Should(Receive(MatchError(ContainSubstring("shutting down"))))
	})
})
