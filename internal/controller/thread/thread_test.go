package thread_test

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

		t := newThread(ctx, e, "t", func(t *skeinv1.Thread) {
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
		t := newThread(ctx, e, "t", func(t *skeinv1.Thread) {
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
		t := newThread(ctx, e, "t")
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
		t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Spec.Arguments = &runtime.RawExtension{Raw: []byte(`{"n":"x"}`)} })
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
		t := newThread(ctx, e, "t")
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
		t := newThread(ctx, e, "t")
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

	It("reports no error for a conflict of writes", func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, e, "t")
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
		t := newThread(ctx, e, "t")
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
