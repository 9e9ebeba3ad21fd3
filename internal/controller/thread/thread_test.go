package thread_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

func TestThread(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "thread controller")
}

// forgotten records the threads whose sandboxes were dropped.
type forgotten []string

func (f *forgotten) Forget(id string) { *f = append(*f, id) }

// aborts records whether the data of a thread was retained when its run was aborted.
type aborts struct {
	thread.Engine
	retained func(id string) bool
	seen     []bool
}

func (a *aborts) Abort(ctx context.Context, id, reason string) {
	a.seen = append(a.seen, a.retained(id))
	a.Engine.Abort(ctx, id, reason)
}

var _ = Describe("The thread controller", func() {
	var (
		e         *Env
		r         *thread.Reconciler
		sandboxes *forgotten
	)
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		sandboxes = &forgotten{}
		r = thread.New(thread.Options{Client: e.Client, Live: e.Client, Threads: e.Threads, Engine: e.Engine, Sandboxes: sandboxes, Recorder: e.Recorder, Clock: e.Clock})
	})

	newThread := func(ctx context.Context, name string, edit ...func(*skeinv1.Thread)) *skeinv1.Thread {
		GinkgoHelper()
		t := &skeinv1.Thread{ObjectMeta: Meta(name), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
		for _, f := range edit {
			f(t)
		}
		e.Create(ctx, t)
		return t
	}
	ready := func(t *skeinv1.Thread) *metav1.Condition {
		return meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionReady)
	}
	run := func(ctx context.Context, t *skeinv1.Thread, run store.Run) {
		GinkgoHelper()
		run.ThreadID = string(t.UID)
		Expect(e.Store.Apply(ctx, run.ThreadID, nil, &store.PutRun{Run: run})).To(Succeed())
	}

	It("leaves a Thread alone until a restore has made the other objects, and gives it its data as it was", Label("K8S-09"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		e.ReadyAgent(ctx, "b")
		const id = "0b0e8f0e-0000-4000-8000-000000000001"
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: id, Namespace: Namespace, Name: "t", Agent: "a", Title: "since found"}, &store.Handoff{Agent: "b", By: store.HandoffByTool}, &store.PutRun{Run: store.Run{ID: "r", Agent: "b", Status: store.RunWaiting}})
		Expect(err).NotTo(HaveOccurred())
		var rows []store.BackupRow
		sum, err := e.Store.Backup(ctx, store.Namespace{Name: Namespace}, func(r store.BackupRow) error { rows = append(rows, r); return nil })
		Expect(err).NotTo(HaveOccurred())
		_, err = e.Store.PurgeThread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		restore := store.Restore{ID: "b1", Namespace: Namespace}
		Expect(e.Store.RestoreRows(ctx, restore, rows)).To(Succeed())
		Expect(e.Store.FinishRestore(ctx, restore, sum.Rows)).To(Succeed())

		t := newThread(ctx, "t", func(t *skeinv1.Thread) {
			t.Spec.ThreadID = id
			t.Annotations = map[string]string{skeinv1.AnnotationRestoring: "b1"}
		})
		Reconcile(ctx, r, t)
		Expect(e.Store.Thread(ctx, id)).To(HaveField("RetainedAt", Not(BeZero())))
		Get(ctx, e, t)
		Expect(t.Status.ThreadID).To(BeEmpty())
		t.Annotations = nil
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		row, err := e.Store.Thread(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(row.BelongsTo(string(t.UID))).To(BeTrue())
		Expect([]string{row.Agent, row.Title}).To(Equal([]string{"b", "since found"}))
		Expect(e.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunWaiting))
	})

	It("stores a new thread with its first message, once, behind a finalizer", Label("THR-03"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		Expect(e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace, UID: "uid-7"}})).To(Succeed())
		t := newThread(ctx, "t", func(t *skeinv1.Thread) {
			t.Spec.Message, t.Spec.Title, t.Spec.UserID, t.Spec.TaskID = "hello", "Greeting", "ada", "task-7"
			t.Spec.Arguments = &runtime.RawExtension{Raw: []byte(`{"n":1}`)}
		})
		Reconcile(ctx, r, t)
		Get(ctx, e, t)
		Expect(t.Finalizers).To(ConsistOf(skeinv1.Finalizer))
		Expect(t.Labels).To(HaveKeyWithValue(skeinv1.LabelThreadID, string(t.UID)))
		row, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(*row).To(And(HaveField("Name", "t"), HaveField("Namespace", Namespace), HaveField("NamespaceUID", "uid-7"), HaveField("Agent", "a"), HaveField("Title", "Greeting"),
			HaveField("UserID", "ada"), HaveField("TaskID", "task-7"), HaveField("Arguments", MatchJSON(`{"n":1}`)), HaveField("Queued", int64(1))))
		e.Clock.Step(100 * time.Millisecond) // the first status waits for a short run
		Reconcile(ctx, r, t)
		Get(ctx, e, t)
		Expect(t.Status).To(And(HaveField("Phase", "Idle"), HaveField("ThreadID", string(t.UID)), HaveField("Agent", "a"), HaveField("QueuedMessages", int64(1)),
			HaveField("ObservedGeneration", int64(1))))
		Expect(ready(t)).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("ObservedGeneration", int64(1)))))
		e.Writes()
		Reconcile(ctx, r, t)
		Expect(e.Writes()).To(BeEmpty(), "nothing has changed")
		inbox, err := e.Store.Inbox(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(inbox).To(HaveLen(1))
	})

	It("says what is wrong with the agent, heals when it appears, and wakes what waited", Label("K8S-02"), func(ctx SpecContext) {
		t := newThread(ctx, "t")
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Agent "a" does not exist`)))))
		a := &skeinv1.Agent{ObjectMeta: Meta("a")}
		e.Create(ctx, a)
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotReady), HaveField("Message", ContainSubstring("not been checked")))))
		e.Clock.Step(5 * time.Second)
		e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Prompt "p" does not exist`)
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Message", `Agent "a" is not ready: Prompt "p" does not exist`)))
		Expect(e.Engine.Woken).To(BeEmpty())
		e.SetReady(ctx, a, &a.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(e.Engine.Woken).To(ConsistOf(string(t.UID)))
	})

	It("says which arguments do not fit what the agent's prompt requires, and heals when that changes", Label("AGT-05", "K8S-02"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		p := &skeinv1.Prompt{ObjectMeta: Meta("p"), Spec: skeinv1.PromptSpec{Text: "x", RequiredSchema: &runtime.RawExtension{
			Raw: []byte(`{"type":"object","required":["topic"],"properties":{"n":{"type":"integer"}}}`),
		}}}
		e.Create(ctx, p)
		t := newThread(ctx, "t", func(t *skeinv1.Thread) { t.Spec.Arguments = &runtime.RawExtension{Raw: []byte(`{"n":"x"}`)} })
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", skeinv1.ReasonInvalidArguments),
			HaveField("Message", And(ContainSubstring("missing property 'topic'"), ContainSubstring("/n: "), ContainSubstring("Create a new Thread"))))))
		p.Spec.RequiredSchema = nil
		Expect(e.Client.Update(ctx, p)).To(Succeed())
		e.Clock.Step(5 * time.Second)
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	It("hands the thread over when the spec names another agent, and only then", Label("AGT-03", "K8S-03"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		e.ReadyAgent(ctx, "b")
		t := newThread(ctx, "t")
		Reconcile(ctx, r, t)
		Get(ctx, e, t)
		t.Spec.AgentRef.Name, t.Generation = "b", 2
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status).To(And(HaveField("Agent", "b"), HaveField("OriginAgent", "a"), HaveField("ObservedGeneration", int64(2))))
		row, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(row.Agent).To(Equal("b"))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.Handoff{Agent: "c", By: store.HandoffByTool})).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status.Agent).To(Equal("c"), "what the conversation changed since is left alone")
		t.Spec.Title, t.Generation = "applied again", 3
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status.Agent).To(Equal("c"), "another change of the spec changes it neither")
		t.Spec.AgentRef.Name, t.Generation = "a", 4
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status.Agent).To(Equal("a"))
	})

	It("keeps the thread with an agent whose policy is never to hand over, and says so", Label("AGT-03"), func(ctx SpecContext) {
		a := e.ReadyAgent(ctx, "a")
		e.ReadyAgent(ctx, "b")
		a.Spec.HandoffPolicy = skeinv1.HandoffNever
		Expect(e.Client.Update(ctx, a)).To(Succeed())
		t := newThread(ctx, "t")
		Reconcile(ctx, r, t)
		Get(ctx, e, t)
		t.Spec.AgentRef.Name, t.Generation = "b", 2
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status.Agent).To(Equal("a"))
		Expect(ready(t)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonHandoffRefused), HaveField("Message", ContainSubstring(`set spec.agentRef back to "a"`)))))
		t.Spec.HandoffPolicy, t.Generation = skeinv1.HandoffAllow, 3
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, t)
		Expect(Get(ctx, e, t).Status.Agent).To(Equal("b"), "the policy of the Thread counts before the agent's")
		Expect(ready(t)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	Describe("writes status", Label("K8S-07"), func() {
		var t *skeinv1.Thread
		BeforeEach(func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			t = newThread(ctx, "t")
			Reconcile(ctx, r, t)
			e.Clock.Step(time.Minute)
			e.Writes()
		})

		Describe("of a new thread", func() {
			fresh := func(ctx context.Context, message string) *skeinv1.Thread {
				GinkgoHelper()
				n := newThread(ctx, "new", func(t *skeinv1.Thread) {
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
				run(ctx, n, store.Run{ID: "sess_1", Agent: "a", Status: store.RunSucceeded, StartedAt: started, EndedAt: e.Clock.Now().UnixMicro()})
				Reconcile(ctx, r, n)
				Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
				Expect(Get(ctx, e, n).Status).To(And(HaveField("Phase", "Idle"), HaveField("LastRun.Outcome", skeinv1.RunSucceeded)))
			})
			It("without the run when that takes longer", func(ctx SpecContext) {
				n := fresh(ctx, "hello")
				Reconcile(ctx, r, n)
				run(ctx, n, store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning, StartedAt: e.Clock.Now().UnixMicro()})
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
			run(ctx, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning, StartedAt: started})
			result := Reconcile(ctx, r, t)
			Expect(result.RequeueAfter).To(Equal(time.Second))
			Expect(e.Writes()).To(BeEmpty())
			e.Clock.Step(300 * time.Millisecond)
			run(ctx, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunSucceeded, Steps: 2, StartedAt: started, EndedAt: e.Clock.Now().UnixMicro()})
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			Expect(Get(ctx, e, t).Status.LastRun).To(HaveValue(And(HaveField("ID", "sess_1"), HaveField("Outcome", skeinv1.RunSucceeded), HaveField("Steps", int32(2)))))
		})

		It("that a run is under way when it takes longer, and then only when it ends", func(ctx SpecContext) {
			started := e.Clock.Now().UnixMicro()
			run(ctx, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunRunning, StartedAt: started})
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
			run(ctx, t, store.Run{ID: "sess_1", Agent: "a", Status: store.RunFailed, Reason: "ModelUnavailable", Message: "refused", StartedAt: started, EndedAt: e.Clock.Now().UnixMicro()})
			Reconcile(ctx, r, t)
			Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
			Expect(Get(ctx, e, t).Status).To(And(HaveField("Phase", "Idle"), HaveField("Messages", int64(100)), HaveField("LastRun.Reason", "ModelUnavailable")))
		})

		It("at most once a second under load, and shows the last state in the end", func(ctx SpecContext) {
			for i := range 100 { // 100 turns in 10 s
				e.Clock.Step(100 * time.Millisecond)
				at := e.Clock.Now().UnixMicro()
				run(ctx, t, store.Run{ID: "sess_" + time.UnixMicro(at).String(), Agent: "a", Status: store.RunSucceeded, Steps: i, StartedAt: at, EndedAt: at})
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

		It("that a thread was terminated at once", Label("THR-05"), func(ctx SpecContext) {
			Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.Terminate{Reason: skeinv1.ReasonParentTerminated})).To(Succeed())
			Reconcile(ctx, r, t)
			Get(ctx, e, t)
			Expect(t.Status.Phase).To(Equal("Terminated"))
			Expect(t.Status.TerminatedAt).To(Equal(e.Clock.Now().UnixMicro()))
			Expect(meta.FindStatusCondition(t.Status.Conditions, skeinv1.ConditionTerminated)).To(HaveValue(
				And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", skeinv1.ReasonParentTerminated))))
			Expect(e.Recorder.Events).To(Receive(ContainSubstring("Terminated")))
		})
	})

	It("tells of a run that failed by one Event, and of no other", Label("K8S-06"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, "failing")
		Reconcile(ctx, r, t)
		var told []string
		ended := func(id string, status store.RunStatus, reason, message string) {
			GinkgoHelper()
			at := e.Clock.Now().UnixMicro()
			run(ctx, t, store.Run{ID: id, Agent: "a", Status: status, Reason: reason, Message: message, StartedAt: at, EndedAt: at})
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

	// child creates a Subagent of a parent thread and the Thread that it owns.
	child := func(ctx context.Context, parent *skeinv1.Thread, edit ...func(*skeinv1.Subagent)) (*skeinv1.Subagent, *skeinv1.Thread) {
		GinkgoHelper()
		s := &skeinv1.Subagent{ObjectMeta: Meta("s"), Spec: skeinv1.SubagentSpec{
			ParentRef: skeinv1.LocalRef{Name: parent.Name}, AgentRef: skeinv1.LocalRef{Name: "a"}, Name: "helper", Blocking: true, ToolCallID: "call_1",
			ParentCommunication: skeinv1.CommunicationImplicit, Message: "do"}}
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(parent.Name, string(parent.UID))}
		for _, f := range edit {
			f(s)
		}
		e.Create(ctx, s)
		return s, newThread(ctx, s.Name, func(t *skeinv1.Thread) {
			t.Finalizers = []string{skeinv1.Finalizer}
			t.Spec.Message = s.Spec.Message
			t.OwnerReferences = []metav1.OwnerReference{{APIVersion: skeinv1.GroupVersion.String(), Kind: "Subagent", Name: s.Name, UID: s.UID, Controller: ptr.To(true)}}
		})
	}
	results := func(ctx context.Context, parent *skeinv1.Thread) []store.ChildResult {
		GinkgoHelper()
		items, err := e.Store.Inbox(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		var out []store.ChildResult
		for _, i := range items {
			if i.Kind == store.InboxChildResult {
				var c store.ChildResult
				Expect(json.Unmarshal(i.Payload, &c)).To(Succeed())
				out = append(out, c)
			}
		}
		return out
	}

	Describe("for a name that was another thread's, whose finalizer somebody removed", Label("THR-09", "IDS-01"), func() {
		forced := func(ctx context.Context, name string) string {
			GinkgoHelper()
			t := newThread(ctx, name)
			Reconcile(ctx, r, t)
			run(ctx, t, store.Run{ID: "r", Status: store.RunRunning})
			Get(ctx, e, t)
			t.Finalizers = nil
			Expect(e.Client.Update(ctx, t)).To(Succeed())
			Expect(e.Client.Delete(ctx, t)).To(Succeed())
			return string(t.UID)
		}
		present := func(ctx context.Context, name string) []string {
			GinkgoHelper()
			rows, err := e.Store.FindThreads(ctx, store.FindQuery{Namespace: Namespace, Name: name, Present: true})
			Expect(err).NotTo(HaveOccurred())
			ids := []string{}
			for _, row := range rows {
				ids = append(ids, row.ID)
			}
			return ids
		}

		It("retains what is left of the other, which works no more and is not found by the name", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			before := forced(ctx, "name")
			elsewhere, _, err := e.Store.CreateThread(ctx, store.Thread{ID: "elsewhere", Namespace: "other", Name: "name", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
			t := newThread(ctx, "name")
			Reconcile(ctx, r, t)
			Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
			Expect(present(ctx, "name")).To(HaveExactElements(string(t.UID)))
			Expect(e.Store.Thread(ctx, before)).To(And(HaveField("RetainedAt", Not(BeZero())), HaveField("Name", "name")))
			Expect(e.Store.Run(ctx, before, "")).To(HaveField("Status", store.RunStopped))
			Expect(e.Engine.Aborted).To(ContainElement(before))
			Expect(e.Store.Thread(ctx, elsewhere.ID)).To(HaveField("RetainedAt", BeZero()), "one of another namespace has another name")
			Reconcile(ctx, r, t)
			Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("RetainedAt", BeZero()))
		})

		It("tells the parent of the other, whose call waits, that it gets no result", Label("SUB-03"), func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			parent := newThread(ctx, "parent")
			Reconcile(ctx, r, parent)
			_, _, err := e.Store.CreateThread(ctx, store.Thread{
				ID: "left-behind", Namespace: Namespace, Name: "name", Agent: "a", ParentID: string(parent.UID), RootID: string(parent.UID), Depth: 1, Reference: "worker-1",
				Child: &store.Child{Name: "worker", Blocking: true, ToolCallID: "call_1"},
			})
			Expect(err).NotTo(HaveOccurred())
			Reconcile(ctx, r, newThread(ctx, "name"))
			Expect(e.Store.Thread(ctx, "left-behind")).To(HaveField("RetainedAt", Not(BeZero())))
			Expect(e.Store.Inbox(ctx, string(parent.UID))).To(ContainElement(HaveField("Payload", And(ContainSubstring("call_1"), ContainSubstring("terminated")))))
		})

		It("does so for a Thread that adopts data too", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			kept := forced(ctx, "kept")
			Expect(e.Store.Apply(ctx, kept, nil, &store.Retain{})).To(Succeed())
			before := forced(ctx, "name")
			t := newThread(ctx, "name", func(t *skeinv1.Thread) { t.Spec.ThreadID = kept })
			Reconcile(ctx, r, t)
			Expect(present(ctx, "name")).To(HaveExactElements(kept))
			Expect(e.Store.Thread(ctx, before)).To(HaveField("RetainedAt", Not(BeZero())))
		})

		It("does nothing from a copy of the object that is older than the one of the name", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			old := newThread(ctx, "name")
			old.Finalizers = []string{skeinv1.Finalizer}
			cached := *old.DeepCopy()
			Expect(e.Client.Delete(ctx, Get(ctx, e, old))).To(Succeed())
			next := newThread(ctx, "name")
			Reconcile(ctx, r, next)
			stale := interceptor.NewClient(e.Client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if t, ok := o.(*skeinv1.Thread); ok && key.Name == "name" {
					cached.DeepCopyInto(t)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
			behind := thread.New(thread.Options{Client: stale, Live: e.Client, Threads: e.Threads, Engine: e.Engine, Sandboxes: &forgotten{}, Recorder: e.Recorder, Clock: e.Clock})
			_, err := behind.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(next)})
			Expect(err).NotTo(HaveOccurred())
			Expect(present(ctx, "name")).To(HaveExactElements(string(next.UID)))
			Expect(e.Store.Thread(ctx, string(next.UID))).To(HaveField("RetainedAt", BeZero()))
			Expect(e.Store.Thread(ctx, string(old.UID))).Error().To(MatchError(store.ErrNotFound))
		})
	})

	It("says what a child waits for whose parent left it before it was stored", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		alone := func(s *skeinv1.Subagent) { s.OwnerReferences = nil } // --cascade=orphan took it away
		s, t := child(ctx, &skeinv1.Thread{ObjectMeta: Meta("parent")}, alone)
		Reconcile(ctx, r, t)
		ready := func() *metav1.Condition {
			return meta.FindStatusCondition(Get(ctx, e, t).Status.Conditions, skeinv1.ConditionReady)
		}
		Expect(ready()).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound),
			HaveField("Message", `Thread "parent", whose child this is, does not exist in namespace "demo": create it, or delete Subagent "s"`))))

		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		Get(ctx, e, s)
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(parent.Name, string(parent.UID))}
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, t)
		Expect(ready()).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("ParentID", string(parent.UID)))
	})

	It("makes no thread a child of one in another namespace", Label("SUB-01", "ENV-04", "FIL-07"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		const foreign = "0b0e8f0e-0000-4000-8000-00000000f0e1"
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: foreign, Namespace: "other", Name: "theirs", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		st, err := e.Threads.Open(ctx, foreign)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/secret", strings.NewReader("a,b"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		before, err := e.Store.Thread(ctx, foreign)
		Expect(err).NotTo(HaveOccurred())
		none := func(t *skeinv1.Thread, message string) {
			GinkgoHelper()
			for range 2 {
				Reconcile(ctx, r, t)
			}
			Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", message))))
			_, err := e.Store.Thread(ctx, string(t.UID))
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.Store.Thread(ctx, foreign)).To(Equal(before), "nothing is said to it either")
		}

		// An owner that nobody has checked.
		claimed := &skeinv1.Thread{ObjectMeta: Meta("theirs")}
		claimed.UID = foreign
		s, t := child(ctx, claimed, func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/secret"} })
		none(t, `an owner reference of Subagent "s" names a Thread "theirs" that namespace "demo" does not have: `+
			`delete the Subagent, and create one without owner references, whose spec.parentRef names a Thread of this namespace`)
		Expect(e.Client.Delete(ctx, s)).To(Succeed())
		Expect(e.Client.Delete(ctx, Get(ctx, e, t), client.GracePeriodSeconds(0))).To(Succeed())
		Reconcile(ctx, r, t)

		// An owner in the namespace that names data which is not its own.
		parent := newThread(ctx, "parent", func(t *skeinv1.Thread) { t.Spec.ThreadID = foreign })
		Reconcile(ctx, r, parent)
		Expect(ready(Get(ctx, e, parent))).To(HaveValue(HaveField("Reason", skeinv1.ReasonThreadNotRetained)))
		Expect(parent.Status.ThreadID).To(BeEmpty(), "schedules fire for the thread in the status")
		_, t = child(ctx, parent, func(s *skeinv1.Subagent) { s.Spec.TaskRef = "none" })
		none(t, `the parent Thread "parent" is not stored: it is being made, or it was deleted`)
	})

	It("stores a child under its parent, with the files that it is handed", Label("SUB-01", "FIL-07"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		st, err := e.Threads.Open(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		_, err = st.WriteFile(ctx, "/orders.csv", strings.NewReader("a,b"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		e.Writes()
		_, t := child(ctx, parent, func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/orders.csv"} })
		Reconcile(ctx, r, t)
		Expect(e.Writes()).To(Equal(map[string]int{"create Subagent": 1, "create Thread": 1}), "a child costs no write for its finalizer, nor one for a status that its first run will change")
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, t)
		Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
		row, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		Expect(*row).To(And(HaveField("ParentID", string(parent.UID)), HaveField("RootID", string(parent.UID)), HaveField("Depth", 1), HaveField("Reference", "s"),
			HaveField("Child", HaveValue(And(HaveField("Blocking", true), HaveField("ToolCallID", "call_1"), HaveField("Name", "helper"))))))
		Expect(Get(ctx, e, t).Status.Parent).To(Equal("parent"))
		own, err := e.Threads.Open(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		files, err := e.Store.Files(ctx, own.ID(), "/", true)
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(ContainElement(HaveField("Size", int64(3))))
	})

	It("answers a waiting parent whose child cannot be made", func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		_, t := child(ctx, parent, func(s *skeinv1.Subagent) { s.Spec.Attachments = []string{"/none.csv"} })
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonChildRefused), HaveField("Message", Not(ContainSubstring("/none.csv"))))), "a model may have given the path")
		own, err := e.Threads.Open(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		_, err = own.WriteFile(ctx, "/none.csv", strings.NewReader("too late"), domain.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Reconcile(ctx, r, t)
		_, err = e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(MatchError(store.ErrNotFound), "the parent knows that there is none")
		Expect(results(ctx, parent)).To(HaveExactElements(And(HaveField("Status", "failed"), HaveField("ToolCallID", "call_1"), HaveField("Content", ContainSubstring("/none.csv")))))
	})

	It("gives a child the task that is kept for it, and no other", Label("K8S-07", "SUB-06"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		digest, err := e.Store.ReserveChild(ctx, store.ChildTask{ID: "task", ParentID: string(parent.UID), Reference: "parent-child", Namespace: parent.Namespace, Kind: "helper", Agent: "a",
			Task: []byte(`{"message":"add","arguments":{"n":1}}`)}, nil)
		Expect(err).NotTo(HaveOccurred())
		_, t := child(ctx, parent, func(s *skeinv1.Subagent) {
			s.Name, s.Spec.Message, s.Spec.TaskRef, s.Spec.TaskDigest = "parent-child", "", "task", digest
		})
		Reconcile(ctx, r, t)
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("Arguments", MatchJSON(`{"n":1}`)))
		Expect(e.Store.Inbox(ctx, string(t.UID))).To(ContainElement(HaveField("Payload", ContainSubstring(`"content":"add"`))))
		for name, edit := range map[string]func(*skeinv1.Subagent){
			"of-another": func(s *skeinv1.Subagent) { s.Spec.TaskRef, s.Spec.TaskDigest = "task", digest },
			"of-none":    func(s *skeinv1.Subagent) { s.Spec.TaskRef, s.Spec.TaskDigest = "none", digest },
		} {
			_, t := child(ctx, parent, edit, func(s *skeinv1.Subagent) { s.Name = name })
			Reconcile(ctx, r, t)
			Expect(ready(Get(ctx, e, t))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonChildRefused), HaveField("Message", ContainSubstring("delete the Subagent")))), name)
		}
	})

	It("tells a parent of a deleted child in whatever state the child is, and marks its Subagent", Label("SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		s, t := child(ctx, parent)
		Reconcile(ctx, r, t)
		completed := "completed" // of its last session: it lives on, and may have got a message since
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: &completed})).To(Succeed())
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Store.Inbox(ctx, string(parent.UID))).To(ContainElement(HaveField("Payload", And(ContainSubstring("call_1"), ContainSubstring("terminated")))))
		Expect(e.Store.MarkedDeleted(ctx, string(s.UID))).To(BeTrue())
	})

	It("asks once about calls that wait for children which do not exist", Label("SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		run := store.Run{ID: "sess_1", ThreadID: string(parent.UID), Status: store.RunRunning, StartedAt: e.Clock.Now().UnixMicro()}
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.PutRun{Run: run})).To(Succeed())
		Reconcile(ctx, r, parent)
		Expect(e.Engine.Answered).To(BeEmpty(), "it may still come to wait")
		run.Status = store.RunWaiting
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.PutRun{Run: run})).To(Succeed())
		Reconcile(ctx, r, parent)
		Reconcile(ctx, r, parent)
		Expect(e.Engine.Answered).To(Equal([]string{string(parent.UID)}))
	})

	It("terminates a child whose parent was terminated while it was being made", Label("SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		_, t := child(ctx, parent)
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.Terminate{})).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Engine.Terminated).To(HaveKeyWithValue(string(t.UID), skeinv1.ReasonParentTerminated))
		Expect(Get(ctx, e, t).Status.Phase).To(Equal("Terminated"))
	})

	It("mirrors the children in the status: unfinished first, then the newest, bounded in number and bytes, with counts", Label("SUB-01", "K8S-07"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		states := []string{"completed", "failed", "terminated", "halfway", ""}
		total := skeinv1.MaxStatusChildren + 30
		for i := range total {
			s := &skeinv1.Subagent{ObjectMeta: Meta(fmt.Sprintf("s-%03d", i)), Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "parent"}, Name: "helper", Title: strings.Repeat("t", 500), Description: strings.Repeat("d", 4096)}}
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", string(parent.UID))}
			s.CreationTimestamp = metav1.NewTime(Start.Add(time.Duration(i) * time.Second))
			e.Create(ctx, s)
			if state := states[i%5]; state != "" {
				s.Status.Entry = &skeinv1.ChildStatus{Reference: s.Name, Name: "helper", Title: s.Spec.Title, Description: s.Spec.Description, Status: state}
				Expect(e.Client.Status().Update(ctx, s)).To(Succeed())
			}
		}
		for i, owners := range [][]metav1.OwnerReference{nil, {objects.ThreadOwner("parent", "11111111-2222-4333-8444-555555555555")}} {
			e.Create(ctx, &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: parent.Namespace, Name: fmt.Sprint("of-an-earlier-one-", i), OwnerReferences: owners},
				Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: "parent"}, Name: "helper"}})
		}
		e.Clock.Step(time.Minute)
		result := Reconcile(ctx, r, parent)
		e.Clock.Step(result.RequeueAfter)
		Reconcile(ctx, r, parent)
		status := Get(ctx, e, parent).Status
		Expect(status.ChildCount).To(BeEquivalentTo(total))
		Expect(status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Completed: 16, Failed: 16, Terminated: 16, Running: 16, Pending: 16})))
		size, err := json.Marshal(status.Children)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(size)).To(And(BeNumerically("<=", skeinv1.MaxStatusChildrenBytes+skeinv1.MaxStatusChildren), BeNumerically(">", skeinv1.MaxStatusChildrenBytes/2)))
		Expect(status.Children[0]).To(And(HaveField("Reference", "s-079"), HaveField("Status", "pending")))
		Expect(status.Children[1]).To(And(HaveField("Reference", "s-078"), HaveField("Status", "halfway"), HaveField("Title", HaveLen(skeinv1.MaxStatusChildText))))
		Expect(len(status.Children)).To(And(BeNumerically(">", 20), BeNumerically("<=", skeinv1.MaxStatusChildren)))
		for _, c := range status.Children {
			Expect(c.Status).To(BeElementOf("pending", "halfway"), "those that have finished come later")
		}
	})

	It("purges what is stored when the object goes, and lets the parent know", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, "parent")
		Reconcile(ctx, r, parent)
		_, t := child(ctx, parent)
		Reconcile(ctx, r, t)
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Engine.Aborted).To(ConsistOf(string(t.UID)))
		Expect(*sandboxes).To(ConsistOf(string(t.UID)))
		_, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(apierrors.IsNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(t), t))).To(BeTrue())
		Expect(results(ctx, parent)).To(HaveExactElements(And(HaveField("Status", "terminated"), HaveField("ToolCallID", "call_1"))))
		Reconcile(ctx, r, t)
	})

	Describe("of a replica whose copy of the object is older than its deletion", Label("THR-09", "K8S-05"), func() {
		// late returns a reconciler that sees the object as it was.
		late := func(t *skeinv1.Thread) *thread.Reconciler {
			old := interceptor.NewClient(e.Client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if into, ok := o.(*skeinv1.Thread); ok && key.Name == t.Name {
					t.DeepCopyInto(into)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
			return thread.New(thread.Options{Client: old, Live: e.Client, Threads: e.Threads, Engine: e.Engine, Sandboxes: sandboxes, Recorder: e.Recorder, Clock: e.Clock})
		}
		for _, was := range []struct {
			text   string
			stored bool
		}{{"was purged", true}, {"was never stored", false}} {
			It("brings no thread back that "+was.text, func(ctx SpecContext) {
				e.ReadyAgent(ctx, "a")
				t := newThread(ctx, "t", func(t *skeinv1.Thread) {
					t.Finalizers = []string{skeinv1.Finalizer}
					t.Spec.Message = "hello"
				})
				if was.stored {
					Reconcile(ctx, r, t)
				}
				old := Get(ctx, e, t)
				Expect(e.Client.Delete(ctx, t)).To(Succeed())
				Reconcile(ctx, r, t)
				Reconcile(ctx, late(old), t)
				_, err := e.Store.Thread(ctx, string(t.UID))
				Expect(err).To(MatchError(store.ErrNotFound))
			})
		}

		It("releases it once", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			t := newThread(ctx, "t", func(t *skeinv1.Thread) { t.Finalizers = []string{skeinv1.Finalizer, "example.com/keep"} })
			Reconcile(ctx, r, t)
			Expect(e.Client.Delete(ctx, t)).To(Succeed())
			old := late(Get(ctx, e, t))
			e.Writes()
			Reconcile(ctx, old, t)
			Reconcile(ctx, old, t)
			Expect(e.Writes()).To(Equal(map[string]int{"patch Thread": 1}))
		})

		It("sets the data of a Thread aside before its run is aborted, so that no other run begins with what waits", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			t := newThread(ctx, "t", func(t *skeinv1.Thread) { t.Spec.DeletionPolicy = skeinv1.DeletionRetain })
			Reconcile(ctx, r, t)
			watched := &aborts{Engine: e.Engine, retained: func(id string) bool {
				row, err := e.Store.Thread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
				return row.RetainedAt != 0
			}}
			r = thread.New(thread.Options{Client: e.Client, Live: e.Client, Threads: e.Threads, Engine: watched, Sandboxes: sandboxes, Recorder: e.Recorder, Clock: e.Clock})
			Expect(e.Client.Delete(ctx, t)).To(Succeed())
			Reconcile(ctx, r, t)
			Expect(watched.seen).To(Equal([]bool{true}))
		})

		It("takes no retained data", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			t := newThread(ctx, "t", func(t *skeinv1.Thread) { t.Spec.DeletionPolicy = skeinv1.DeletionRetain })
			Reconcile(ctx, r, t)
			old := Get(ctx, e, t)
			Expect(e.Client.Delete(ctx, t)).To(Succeed())
			Reconcile(ctx, r, t)
			Reconcile(ctx, late(old), t)
			row, err := e.Store.Thread(ctx, string(t.UID))
			Expect(err).NotTo(HaveOccurred())
			Expect(row.RetainedAt).NotTo(BeZero())
		})
	})

	// generations creates a thread, its child and its grandchild, each stored and owned.
	generations := func(ctx context.Context) (all []*skeinv1.Thread, subs []*skeinv1.Subagent) {
		GinkgoHelper()
		e.ReadyAgent(ctx, "a")
		all = append(all, newThread(ctx, "root"))
		Reconcile(ctx, r, all[0])
		for i, name := range []string{"child", "grandchild"} {
			parent := all[i]
			s := &skeinv1.Subagent{ObjectMeta: Meta(name), Spec: skeinv1.SubagentSpec{ParentRef: skeinv1.LocalRef{Name: parent.Name}, AgentRef: skeinv1.LocalRef{Name: "a"}, Name: name}}
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(parent.Name, string(parent.UID))}
			e.Create(ctx, s)
			t := newThread(ctx, name, func(t *skeinv1.Thread) {
				t.Finalizers = []string{skeinv1.Finalizer}
				t.OwnerReferences = []metav1.OwnerReference{{APIVersion: skeinv1.GroupVersion.String(), Kind: "Subagent", Name: name, UID: s.UID, Controller: ptr.To(true)}}
			})
			Reconcile(ctx, r, t)
			all, subs = append(all, t), append(subs, s)
		}
		return all, subs
	}
	stored := func(ctx context.Context, t *skeinv1.Thread) bool {
		GinkgoHelper()
		_, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(Or(BeNil(), MatchError(store.ErrNotFound)))
		return err == nil
	}
	gone := func(ctx context.Context, o client.Object) bool {
		return apierrors.IsNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(o), o))
	}

	It("purges the data of descendants before that of the thread, whoever reconciles", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		all, subs := generations(ctx)
		root, child, grandchild := all[0], all[1], all[2]
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		result := Reconcile(ctx, r, root)
		Expect(result.RequeueAfter).To(BeNumerically(">", 0), "should it not be told of the child's end")
		Expect(gone(ctx, subs[0])).To(BeTrue())
		Expect(Get(ctx, e, child).DeletionTimestamp).NotTo(BeNil())
		row, err := e.Store.Thread(ctx, string(root.UID))
		Expect(err).NotTo(HaveOccurred(), "it can be read")
		Expect(row.TerminatedReason).To(Equal(store.ReasonPurged))
		Expect(e.Engine.Aborted).To(ContainElement(string(root.UID)))
		Expect(e.Engine.Aborted).To(ContainElement(string(child.UID)), "the child's run does not wait until the child is reconciled")
		for _, t := range []*skeinv1.Thread{root, child} {
			_, err := e.Store.Acquire(ctx, string(t.UID), "a replica", time.Minute)
			Expect(err).To(MatchError(store.ErrObjectDeleted), t.Name)
		}
		_, told, err := e.Store.CreateThread(ctx, store.Thread{ID: "late", Namespace: root.Namespace, Name: "late", Agent: "a", ParentID: string(root.UID)})
		Expect(err).NotTo(HaveOccurred())
		Expect(told).To(BeTrue(), "a child that was being made is born terminated, and holds nobody up")

		r = thread.New(thread.Options{Client: e.Client, Live: e.Client, Threads: e.Threads, Engine: e.Engine, Sandboxes: sandboxes, Recorder: e.Recorder, Clock: e.Clock}) // of another manager
		Reconcile(ctx, r, root)
		Expect(stored(ctx, root)).To(BeTrue())
		Reconcile(ctx, r, child)
		Expect(stored(ctx, child)).To(BeTrue(), "it waits for its own child")
		Reconcile(ctx, r, grandchild)
		Expect(stored(ctx, grandchild)).To(BeFalse())
		Reconcile(ctx, r, root)
		Expect(stored(ctx, root)).To(BeTrue())
		Reconcile(ctx, r, child)
		Expect(stored(ctx, child)).To(BeFalse())
		Reconcile(ctx, r, root)
		Expect(stored(ctx, root)).To(BeFalse())
		for _, t := range all {
			Expect(gone(ctx, t)).To(BeTrue(), t.Name)
		}
	})

	It("deletes no child that was left to itself, also while the garbage collector is about it", Label("THR-09"), func(ctx SpecContext) {
		all, subs := generations(ctx)
		root, child := all[0], all[1]
		root = Get(ctx, e, root)
		root.Finalizers = append(root.Finalizers, metav1.FinalizerOrphanDependents)
		Expect(e.Client.Update(ctx, root)).To(Succeed())
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		Reconcile(ctx, r, root)
		Expect(stored(ctx, root)).To(BeFalse(), "there is nobody to wait for")
		Expect(gone(ctx, subs[0])).To(BeFalse())
		Expect(Get(ctx, e, child).DeletionTimestamp).To(BeNil())

		By("a manager that begins once the garbage collector is done")
		mid, sub := all[1], subs[1]
		sub = Get(ctx, e, sub)
		sub.OwnerReferences = nil
		Expect(e.Client.Update(ctx, sub)).To(Succeed())
		Expect(e.Client.Delete(ctx, mid)).To(Succeed())
		Reconcile(ctx, r, mid)
		Expect(stored(ctx, mid)).To(BeFalse())
		Expect(gone(ctx, sub)).To(BeFalse())
		Expect(Get(ctx, e, all[2]).DeletionTimestamp).To(BeNil())
		Expect(stored(ctx, all[2])).To(BeTrue())
	})

	It("says which child cannot be deleted, and goes on once it can", Label("THR-09", "K8S-06"), func(ctx SpecContext) {
		all, _ := generations(ctx)
		root, child, grandchild := all[0], all[1], all[2]
		e.Fail(func(verb string, o client.Object) error {
			if verb == "delete" && o.GetName() == "child" {
				return apierrors.NewForbidden(skeinv1.GroupVersion.WithResource("threads").GroupResource(), "child", errors.New("the policy keep denies it"))
			}
			return nil
		})
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(root)})
		Expect(err).To(MatchError(ContainSubstring("the policy keep denies it")))
		Expect(stored(ctx, root)).To(BeTrue())
		var said []string
		for len(e.Recorder.Events) > 0 {
			said = append(said, <-e.Recorder.Events)
		}
		Expect(said).To(ContainElement(And(ContainSubstring("Warning ChildNotDeleted"), ContainSubstring(`Thread "child"`), ContainSubstring("the policy keep denies it"))))
		e.Fail(nil)
		for _, t := range []*skeinv1.Thread{root, child, grandchild, child, root} {
			Reconcile(ctx, r, t)
		}
		Expect(stored(ctx, root)).To(BeFalse())
	})

	It("waits for no child whose data is retained, or whose object is gone", Label("THR-09"), func(ctx SpecContext) {
		all, _ := generations(ctx)
		root, child, grandchild := all[0], Get(ctx, e, all[1]), Get(ctx, e, all[2])
		grandchild.Spec.DeletionPolicy = skeinv1.DeletionRetain
		Expect(e.Client.Update(ctx, grandchild)).To(Succeed())
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		for _, t := range []*skeinv1.Thread{root, child, grandchild, child, root} {
			Reconcile(ctx, r, t)
		}
		Expect([]bool{stored(ctx, root), stored(ctx, child), stored(ctx, grandchild)}).To(Equal([]bool{false, false, true}))

		root = newThread(ctx, "again")
		Reconcile(ctx, r, root)
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: "objectless", Namespace: root.Namespace, Name: "objectless", Agent: "a", ParentID: string(root.UID)})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		Reconcile(ctx, r, root)
		Expect(stored(ctx, root)).To(BeFalse())
	})

	It("keeps the object while the data cannot be purged", Label("THR-09"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, "t")
		Reconcile(ctx, r, t)
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		broken := thread.New(thread.Options{Client: e.Client, Live: e.Client, Engine: e.Engine, Sandboxes: sandboxes, Recorder: e.Recorder, Clock: e.Clock,
			Threads: domain.NewService(domain.Options{Store: unpurgeable{e.Store}})})
		_, err := broken.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		Expect(err).To(MatchError(ContainSubstring("disk full")))
		Expect(Get(ctx, e, t).Finalizers).To(ConsistOf(skeinv1.Finalizer))
	})

	It("says nothing of a write that met another's", func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, "t")
		e.Fail(func(verb string, o client.Object) error {
			if verb == "patch" {
				return apierrors.NewConflict(skeinv1.GroupVersion.WithResource("threads").GroupResource(), o.GetName(), errors.New("changed"))
			}
			return nil
		})
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		Expect(err).NotTo(HaveOccurred(), "it is no error in the log")
		Expect(result.RequeueAfter).To(BeNumerically("~", 20*time.Millisecond, 20*time.Millisecond), "it is looked at again")
		Expect(Get(ctx, e, t).Status.Conditions).To(BeEmpty())
	})

	It("says that it could not do its part, and tries again", func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, "t")
		e.Fail(func(verb string, _ client.Object) error {
			if verb == "patch" {
				return errors.New("etcd is away")
			}
			return nil
		})
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		Expect(err).To(MatchError(ContainSubstring("etcd is away")))
		Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Reason", skeinv1.ReasonInternalError)))
		_, err = e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(MatchError(store.ErrNotFound), "nothing is stored before the object is held")
		e.Fail(nil)
		Reconcile(ctx, r, t)
		Expect(ready(Get(ctx, e, t))).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})
})

// unpurgeable is a store whose disk is full.
type unpurgeable struct{ store.Store }

func (unpurgeable) PurgeThread(context.Context, string) ([]string, error) {
	return nil, errors.Join(store.ErrUnavailable, errors.New("disk full"))
}
