package sandboxes_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/sandboxes"
)

var _ = Describe("The metrics of sandboxes", Label("K8S-06", "COD-09"), func() {
	// acquired returns how many threads came by their pods in a way, as skein_sandbox_acquire_seconds has it.
	acquired := func(found string) uint64 {
		GinkgoHelper()
		families, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "skein_sandbox_acquire_seconds" && m.GetLabel()[0].GetValue() == found {
					return m.GetHistogram().GetSampleCount()
				}
			}
		}
		return 0
	}

	It("count how threads acquired their pods", func(ctx SpecContext) {
		p := newPods(interceptor.Funcs{}, running)
		counts := func() []uint64 { return []uint64{acquired("cold"), acquired("own"), acquired("warm")} }
		before := counts()
		since := func() []uint64 {
			now := counts()
			for i := range now {
				now[i] -= before[i]
			}
			return now
		}
		_, _, err := p.port.Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(since()).To(Equal([]uint64{1, 0, 0}), "a pod is made for it")
		_, _, err = sandboxes.NewPods(p.port.PodsOptions).Acquire(ctx, thread(1), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(since()).To(Equal([]uint64{1, 1, 0}), "another manager finds the pod that the thread has")
		p.warm(ctx, 1)
		_, _, err = p.port.Acquire(ctx, thread(2), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(since()).To(Equal([]uint64{1, 1, 1}), "a pod waits for it")
	}, NodeTimeout(kubetest.Patience))
})
