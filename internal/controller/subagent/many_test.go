package subagent_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Many children that complete at the same time", Label("SUB-01", "K8S-07"), func() {
	It("are shown within ten seconds, the first hundred and all that fail or are terminated at once", func(ctx SpecContext) {
		e, r, parent := newController(ctx)
		createThread(ctx, e, parent)
		ends := func(name, status string, ops ...store.Op) *skeinv1.Subagent {
			GinkgoHelper()
			s := declareSubagent(ctx, e, func(s *skeinv1.Subagent) { s.Name = name })
			Reconcile(ctx, r, s)
			t := childThread(ctx, e, s)
			storeThread(ctx, e, t, childRow(parent, s))
			Expect(e.Store.Apply(ctx, string(t.UID), nil, append(ops, &store.UpdateThread{RegistryStatus: ptr.To(status)})...)).To(Succeed())
			Reconcile(ctx, r, s)
			return Get(ctx, e, s)
		}
		sessionEnded := &store.Terminate{Reason: skeinv1.ReasonSessionEnded}
		for i := range 100 {
			Expect(ends(fmt.Sprint("early-", i), "completed", sessionEnded).Status.Entry).To(HaveValue(HaveField("Status", "completed")))
		}
		late := []*skeinv1.Subagent{ends("late", "completed", sessionEnded), ends("resumable", "completed")}
		for _, s := range late {
			Expect(s.Status.Entry).To(BeNil())
		}
		Expect(ends("failed", "failed").Status.Entry).To(HaveValue(HaveField("Status", "failed")))
		Expect(ends("terminated", "terminated", &store.Terminate{}).Status.Entry).To(HaveValue(HaveField("Status", "terminated")))

		for _, s := range late {
			Expect(Reconcile(ctx, r, s).RequeueAfter).To(Equal(10 * time.Second))
		}
		e.Clock.Step(10 * time.Second)
		for _, s := range late {
			Reconcile(ctx, r, s)
			Expect(Get(ctx, e, s).Status.Entry).To(HaveValue(HaveField("Status", "completed")))
		}
		Expect(ends("next", "completed").Status.Entry).To(HaveValue(HaveField("Status", "completed")), "much time has passed")
	})
})
