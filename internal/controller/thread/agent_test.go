package thread_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("An agent with many threads that is not ready for a while", Label("K8S-02", "K8S-07"), func() {
	It("costs few status writes, spread over half a minute, and delays no run that ends", func(ctx SpecContext) {
		const many, atOnce = 115, 100
		e, r, _ := newController(ctx)
		agent := e.ReadyAgent(ctx, "a")
		var threads []*skeinv1.Thread
		for i := range many {
			t := newThread(ctx, e, fmt.Sprint("t-", i))
			Reconcile(ctx, r, t)
			threads = append(threads, t)
		}
		e.Clock.Step(time.Minute)
		e.Writes()
		// look reconciles all, and returns how many statuses it writes, and when the others are looked at again.
		look := func() (written int, again map[time.Duration]int) {
			GinkgoHelper()
			again = map[time.Duration]int{}
			for _, t := range threads {
				result := Reconcile(ctx, r, t)
				if result.RequeueAfter > 0 {
					Expect(result.Priority).To(HaveValue(Equal(watches.DependentPriority)))
					Expect(result.RequeueAfter).To(BeNumerically("<=", 30*time.Second))
					again[result.RequeueAfter]++
				}
			}
			return e.Writes()["status Thread"], again
		}

		e.SetReady(ctx, agent, &agent.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotReady, "Model gone")
		e.Writes()
		written, again := look()
		Expect(written).To(Equal(atOnce))
		Expect(len(again)).To(BeNumerically(">", (many-atOnce)/2), "not all at one time")

		By("a run that ends meanwhile")
		busy := threads[many-1]
		at := e.Clock.Now().UnixMicro()
		putRun(ctx, e, busy, store.Run{ID: "sess_1", Agent: "a", Status: store.RunFailed, Reason: "Refused", StartedAt: at, EndedAt: at})
		Reconcile(ctx, r, busy)
		Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
		Expect(Get(ctx, e, busy).Status.LastRun).To(HaveValue(HaveField("ID", "sess_1")))
		Expect(ready(busy)).To(HaveValue(HaveField("Status", metav1.ConditionFalse)))

		By("the agent's return before the rest was written")
		e.SetReady(ctx, agent, &agent.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		e.Writes()
		written, again = look()
		Expect(written).To(BeZero())
		Expect(again).NotTo(BeEmpty())
		e.Clock.Step(30 * time.Second)
		written, again = look()
		Expect(written).To(Equal(atOnce+1), "those that were shown as not ready")
		Expect(again).To(BeEmpty())
		for _, t := range threads {
			Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		}
	})
})

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
		Expect(result.Priority).To(HaveValue(Equal(watches.NormalPriority)), "the first status of a thread whose run may end soon")
	})
})
