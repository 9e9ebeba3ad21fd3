package conformance

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// checkSelected expects that each due time fired once for each thread that the selector matches, and queued one message. It returns how often.
func (s *storm) checkSelected(ctx context.Context) (fired int) {
	GinkgoHelper()
	list := s.firings(ctx, s.selects, true)
	punctual(s.selects, list)
	for _, t := range s.chosen {
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		var own runtimev1.FiringList
		for _, f := range list.Firings {
			if f.ThreadID == o.Status.ThreadID {
				Expect(f.Status).To(Equal("succeeded"), "%s: %+v", t.Name, f)
				own.Firings = append(own.Firings, f)
			}
		}
		n := consecutive(s.selects, &own)
		Expect(ticks(ctx, t)["tick"]).To(Equal(n), "%s: each firing queued one message", t.Name)
		fired += n
	}
	return fired
}

// checkMade expects that each due time made one Thread, whose run succeeded. It returns how often.
func (s *storm) checkMade(ctx context.Context) int {
	GinkgoHelper()
	list := s.firings(ctx, s.makes, true)
	punctual(s.makes, list)
	var names []string
	for _, f := range list.Firings {
		Expect(f.Status).To(Equal("succeeded"), "%+v", f)
		names = append(names, f.Thread)
	}
	fired := consecutive(s.makes, list)
	counted(ctx, s.makes, fired)
	var made []string
	var threads skeinv1.ThreadList
	Expect(cluster.Client.List(ctx, &threads, client.InNamespace(s.ns))).To(Succeed())
	for i := range threads.Items {
		t := &threads.Items[i]
		if len(t.OwnerReferences) == 0 {
			continue
		}
		made = append(made, t.Name)
		Expect(t.Status.Messages).To(BeEquivalentTo(2), "%s: it was asked once, and answered once", t.Name)
	}
	Expect(made).To(ConsistOf(names), "each firing made one Thread")
	return fired
}
