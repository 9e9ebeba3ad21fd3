package thread_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The thread controller", func() {
	var (
		e *Env
		r *thread.Reconciler
	)
	BeforeEach(func(ctx SpecContext) { e, r, _ = newController(ctx) })

	Describe("writes status", Label("K8S-07"), func() {
		var t *skeinv1.Thread
		BeforeEach(func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			t = newThread(ctx, e, "t")
			Reconcile(ctx, r, t)
			e.Clock.Step(time.Minute)
			e.Writes()
		})

		Describe("of a new thread", func() {
			fresh := func(ctx context.Context, message string) *skeinv1.Thread {
				GinkgoHelper()
				n := newThread(ctx, e, "new", func(t *skeinv1.Thread) {
					t.Finalizers = []string{skeinv1.Finalizer} // as the policy of config/mutation adds it
					t.Spec.Message = message
				})
				e.Writes()
				return n
			}
			It("at once when it has nothing to do", func(ctx SpecContext) {
				n := fresh(ctx, "")
				Reconcile(ctx, r, n)
				Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			})
			It("with the end of its first run when that is near", func(ctx SpecContext) {
				n := fresh(ctx, "hello")
				Expect(Reconcile(ctx, r, n).RequeueAfter).To(Equal(100 * time.Millisecond))
				started := e.Clock.Now().UnixMicro()
				e.Clock.Step(50 * time.Millisecond)
				putRun(ctx, e, n, store.Run{ID: "sess_1", Agent: "a", Status: store.RunSucceeded, StartedAt: started, EndedAt: e.Clock.Now().UnixMicro()})
				Reconcile(ctx, r, n)
				Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
				Expect(Get(ctx, e, n).Status).To(And(HaveField("Phase", "Idle"), HaveField("LastRun.Outcome", skeinv1.RunSucceeded)))
			})
			It("without the run when that takes longer", func(ctx SpecContext) {
				n := fresh(ctx, "hello")
				Reconcile(ctx, r, n)
				putRun(ctx, e, n, store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning, StartedAt: e.Clock.Now().UnixMicro()})
				e.Clock.Step(60 * time.Millisecond)
				Expect(Reconcile(ctx, r, n).RequeueAfter).To(Equal(40 * time.Millisecond))
				e.Clock.Step(40 * time.Millisecond)
				Reconcile(ctx, r, n)
				Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
				Expect(ready(Get(ctx, e, n))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
			})
		})

		It("once for a turn that is over within a second", func(ctx SpecContext) {
			started := e.Clock.Now().UnixMicro()
			putRun(ctx, e, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning, StartedAt: started})
			result := Reconcile(ctx, r, t)
			Expect(result.RequeueAfter).To(Equal(time.Second))
			Expect(e.Writes()).To(BeEmpty())
			e.Clock.Step(300 * time.Millisecond)
			putRun(ctx, e, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunSucceeded, Steps: 2, StartedAt: started, EndedAt: e.Clock.Now().UnixMicro()})
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			Expect(Get(ctx, e, t).Status.LastRun).To(HaveValue(And(HaveField("ID", "sess_1"), HaveField("Outcome", skeinv1.RunSucceeded), HaveField("Steps", int32(2)))))
		})

		It("that a run is under way when it takes longer, and then only when it ends", func(ctx SpecContext) {
			started := e.Clock.Now().UnixMicro()
			putRun(ctx, e, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning, StartedAt: started})
			Reconcile(ctx, r, t)
			e.Clock.Step(time.Second)
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			Expect(Get(ctx, e, t).Status.Phase).To(Equal("Running"))
			for range 100 {
				e.Clock.Step(time.Second)
				Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleAssistant, Content: ptr.To("x")}})).To(Succeed())
				Reconcile(ctx, r, t)
			}
			Expect(e.Writes()).To(BeEmpty(), "no write for a message")
			putRun(ctx, e, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunFailed, Reason: "ModelUnavailable", Message: "refused", StartedAt: started, EndedAt: e.Clock.Now().UnixMicro()})
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			Expect(Get(ctx, e, t).Status).To(And(HaveField("Phase", "Idle"), HaveField("Messages", int64(100)), HaveField("LastRun.Reason", "ModelUnavailable")))
		})

		It("at most once a second under load, and shows the last state in the end", func(ctx SpecContext) {
			for i := range 100 { // 100 turns in 10 s
				e.Clock.Step(100 * time.Millisecond)
				at := e.Clock.Now().UnixMicro()
				putRun(ctx, e, t, store.Run{ID: "sess_" + time.UnixMicro(at).String(), Agent: "a", Status: store.RunSucceeded, Steps: i, StartedAt: at, EndedAt: at})
				Reconcile(ctx, r, t)
			}
			Expect(e.Writes()["status Thread"]).To(And(BeNumerically("<=", 12), BeNumerically(">=", 9)))
			result := Reconcile(ctx, r, t)
			Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
			e.Clock.Step(result.RequeueAfter)
			Reconcile(ctx, r, t)
			Expect(Get(ctx, e, t).Status.LastRun.Steps).To(BeEquivalentTo(99))
		})

		It("for messages without a run together, later", func(ctx SpecContext) {
			for range 5 {
				Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: ptr.To("x")}})).To(Succeed())
				Reconcile(ctx, r, t)
				e.Clock.Step(time.Second)
			}
			Expect(e.Writes()).To(BeEmpty())
			e.Clock.Step(5 * time.Second)
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			Expect(Get(ctx, e, t).Status.Messages).To(BeEquivalentTo(5))
		})

		It("that a thread was terminated at once", Label("THR-05", "K8S-06"), func(ctx SpecContext) {
			Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.Terminate{Reason: skeinv1.ReasonTerminatedByRequest})).To(Succeed())
			Reconcile(ctx, r, t)
			Get(ctx, e, t)
			Expect(t.Status.Phase).To(Equal("Terminated"))
			Expect(t.Status.TerminatedAt).To(Equal(e.Clock.Now().UnixMicro()))
			Expect(meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionTerminated)).To(HaveValue(
				And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonTerminatedByRequest))))
			Expect(e.Recorder.Events).To(Receive(ContainSubstring("Terminated")))
		})
	})

	DescribeTable("tells of the end of a family by one Event, of the thread above the others whose end is news", Label("THR-05", "SUB-08", "K8S-06"),
		func(ctx SpecContext, reason, teller string) {
			e.ReadyAgent(ctx, "a")
			family := []*skeinv1.Thread{newThread(ctx, e, "root")}
			Reconcile(ctx, r, family[0])
			for i, name := range []string{"child", "grandchild"} {
				t := newOwned(ctx, e, newSubagent(ctx, e, family[i], name), "")
				Reconcile(ctx, r, t)
				family = append(family, t)
			}
			for _, t := range family {
				Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.Terminate{Reason: reason})).To(Succeed())
				reason = skeinv1.ReasonParentTerminated
			}
			e.Clock.Step(time.Minute)
			var told []string
			for _, t := range family {
				Reconcile(ctx, r, t)
				Expect(Get(ctx, e, t).Status.Phase).To(Equal("Terminated"))
				for len(e.Recorder.Events) > 0 {
					Expect(<-e.Recorder.Events).To(HavePrefix("Normal Terminated "))
					told = append(told, t.Name)
				}
			}
			Expect(told).To(Equal([]string{teller}))
		},
		Entry("when it was terminated", skeinv1.ReasonTerminatedByRequest, "root"),
		Entry("when the result of its parent cut off its work", skeinv1.ReasonSessionEnded, "child"),
	)

	It("tells of a run that failed by one Event, and of no other", Label("K8S-06"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, e, "failing")
		Reconcile(ctx, r, t)
		var told []string
		ended := func(id string, status store.RunStatus, reason, message string) {
			GinkgoHelper()
			at := e.Clock.Now().UnixMicro()
			putRun(ctx, e, t, store.Run{ID: id, Agent: "a", Status: status, Reason: reason, Message: message, StartedAt: at, EndedAt: at})
			for range 3 { // the second and third find nothing new
				Reconcile(ctx, r, t)
				e.Clock.Step(time.Minute)
			}
			told = nil
			for len(e.Recorder.Events) > 0 {
				told = append(told, <-e.Recorder.Events)
			}
		}
		ended("sess_1", store.RunSucceeded, "", "")
		Expect(told).To(BeEmpty())
		ended("sess_2", store.RunFailed, "ModelTimeout", "the model took too long")
		Expect(told).To(Equal([]string{"Warning ModelTimeout run sess_2 failed: the model took too long"}))
		ended("sess_3", store.RunStopped, "StoppedByUser", "")
		Expect(told).To(BeEmpty())
		ended("sess_4", store.RunFailed, "", strings.Repeat("é", 1000))
		Expect(told).To(HaveExactElements(And(HavePrefix("Warning RunFailed run sess_4 failed: éé"), HaveSuffix("é…"))))
		Expect(len(told[0])).To(BeNumerically("<=", 1024+len("Warning RunFailed ")))
	})
})
