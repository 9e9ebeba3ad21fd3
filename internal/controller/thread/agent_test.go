package thread_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("What is due, and may not be written yet", Label("K8S-07"), func() {
	It("passes new Threads once it may", func(ctx SpecContext) {
		e, r, _ := newController(ctx)
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, e, "t")
		Reconcile(ctx, r, t)
		turn := func(n int) {
			GinkgoHelper()
			at := e.Clock.Now().UnixMicro()
			putRun(ctx, e, t, store.Run{ID: fmt.Sprint("sess_", n), Agent: "a", Status: store.RunSucceeded, StartedAt: at, EndedAt: at})
		}
		turn(1)
		Reconcile(ctx, r, t)
		turn(2)
		result := Reconcile(ctx, r, t)
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		Expect(result.Priority).To(HaveValue(Equal(watches.ChangedPriority)))

		other := newThread(ctx, e, "other", func(t *skeinv1.Thread) { t.Spec.Message = "hello" })
		result = Reconcile(ctx, r, other)
		Expect(result.RequeueAfter).To(BeNumerically(">", 0))
		Expect(result.Priority).To(HaveValue(Equal(watches.ChangedPriority)), "the first status of a thread whose run may end soon")
	})
})
