package subagent_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/subagent"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("The subagent controller", func() {
	var (
		e      *Env
		r      *subagent.Reconciler
		parent *skeinv1.Thread
	)
	BeforeEach(func(ctx SpecContext) { e, r, parent = newController(ctx) })

	It("makes no child Thread while a restore is about to make it", Label("K8S-09"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e, func(s *skeinv1.Subagent) { s.Annotations = map[string]string{skeinv1.AnnotationRestoring: "b1"} })
		e.Writes()
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(BeEmpty())
	})

	It("makes the child Thread, owned and with its finalizer, once", Label("SUB-01"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		e.Writes()
		Reconcile(ctx, r, s)
		t := childThread(ctx, e, s)
		Expect(metav1.IsControlledBy(t, s)).To(BeTrue())
		Expect(t.Finalizers).To(ConsistOf(skeinv1.Finalizer))
		Expect(t.Labels).To(And(HaveKeyWithValue(skeinv1.LabelManagedBy, "skein"), HaveKeyWithValue(skeinv1.LabelRootThread, string(parent.UID))))
		Expect(t.Spec).To(And(HaveField("AgentRef.Name", "worker"), HaveField("Message", "2+3"), HaveField("Title", "Sum"), HaveField("UserID", "ada"),
			HaveField("Arguments.Raw", MatchJSON(`{"n":1}`))))
		Expect(metav1.IsControlledBy(Get(ctx, e, s), parent)).To(BeTrue(), "one that was declared by hand belongs to its parent too")
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(Equal(map[string]int{"patch Subagent": 1, "create Thread": 1}))
	})

	It("is not tied again to a parent that goes without it, also while the cache does not know that it goes", Label("THR-09"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		r = newReconciler(e, func(o *subagent.Options) { o.Live = going{e.Client} })
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).OwnerReferences).To(BeEmpty())
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), &skeinv1.Thread{})).To(Satisfy(apierrors.IsNotFound), "a child would be left over")
		Expect(ready(s)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring("is being deleted")))))

		By("not making an existing Thread its child either")
		other := &skeinv1.Thread{ObjectMeta: Meta("other"), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "worker"}}}
		e.Create(ctx, other)
		adopts := &skeinv1.Subagent{ObjectMeta: Meta("adopts"), Spec: skeinv1.SubagentSpec{
			ParentRef: skeinv1.LocalRef{Name: "parent"}, ThreadRef: &skeinv1.LocalRef{Name: "other"}, Name: "helper"}}
		e.Create(ctx, adopts)
		Reconcile(ctx, r, adopts)
		Expect(Get(ctx, e, other).OwnerReferences).To(BeEmpty())
		Expect(ready(Get(ctx, e, adopts))).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
	})

	It("shows the registry entry, with one write for a session that is over within a second", Label("SUB-01", "K8S-07"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s, t := declareChild(ctx, e, r)
		storeThread(ctx, e, t, childRow(parent, s))
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		e.Writes()
		for _, status := range []string{"running", "completed"} {
			e.Clock.Step(100 * time.Millisecond)
			Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: &status})).To(Succeed())
			Reconcile(ctx, r, s)
		}
		Expect(e.Writes()).To(Equal(map[string]int{"status Subagent": 1}))
		Expect(*Get(ctx, e, s).Status.Entry).To(Equal(skeinv1.ChildStatus{
			Reference: "s", Name: "helper", Title: "Sum", Description: "adds", Blocking: true, ThreadName: t.Name, ThreadID: string(t.UID), SpawnGroupID: "sess_1",
			CreatedAt: Start.UnixMicro(), Status: "completed", ParentCommunication: skeinv1.CommunicationImplicit}))
		Expect(ready(s)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(s.Status.ObservedGeneration).To(BeEquivalentTo(1))
	})

	It("shows a child that runs for longer", func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		result := Reconcile(ctx, r, s)
		Expect(result.RequeueAfter).To(Equal(time.Second))
		storeThread(ctx, e, childThread(ctx, e, s), childRow(parent, s))
		Expect(e.Store.Apply(ctx, string(childThread(ctx, e, s).UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("running")})).To(Succeed())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("running"))
		Expect(ready(s)).To(HaveValue(HaveField("Reason", skeinv1.ReasonProgressing)))
	})

	It("says nothing of a child that a cache lost for a moment", Label("SUB-01"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s, t := declareChild(ctx, e, r)
		storeThread(ctx, e, t, childRow(parent, s))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("running")})).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("running"))
		r = newReconciler(e, func(o *subagent.Options) { o.Client = behind{e.Client, t.Name} })
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("running"), "the Thread is there")
	})

	It("says what is missing and heals", Label("K8S-02"), func(ctx SpecContext) {
		s := declareSubagent(ctx, e)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Thread "parent" does not exist`)))))
		e.Create(ctx, parent)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring("not stored yet"))))
		storeThread(ctx, e, parent)
		Reconcile(ctx, r, s)
		t := childThread(ctx, e, s)
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Agent "worker" does not exist`)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotReady), HaveField("Message", ContainSubstring(`Agent "worker"`)))))
	})

	It("uses no foreign Thread as the child, and refuses a foreign owner", func(ctx SpecContext) {
		e.Create(ctx, parent, &skeinv1.Thread{ObjectMeta: Meta("s")})
		storeThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("exists already")))))
		foreign := declareSubagent(ctx, e, func(s *skeinv1.Subagent) {
			s.Name = "foreign"
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x", Controller: ptr.To(true)}}
		})
		Reconcile(ctx, r, foreign)
		Expect(ready(Get(ctx, e, foreign))).To(HaveValue(HaveField("Message", ContainSubstring(`owned by ConfigMap "x"`))))
	})

	refusals := func(ctx context.Context, of string) []store.ChildResult {
		GinkgoHelper()
		items, err := e.Store.Inbox(ctx, of)
		Expect(err).NotTo(HaveOccurred())
		var results []store.ChildResult
		for _, item := range items {
			var r store.ChildResult
			Expect(json.Unmarshal(item.Payload, &r)).To(Succeed())
			results = append(results, r)
		}
		return results
	}

	It("tells the parent of a child that the cluster refuses, once, and does not create it later", Label("SUB-03", "MSG-09"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e, byRun)
		refuseThreads(e, s.Name)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("failed"))
		Expect(ready(s)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonChildRefused), HaveField("Message", ContainSubstring("exceeded quota")))))
		e.Fail(nil)
		for range 2 {
			e.Clock.Step(time.Minute)
			Reconcile(ctx, r, s)
		}
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), &skeinv1.Thread{})).NotTo(Succeed(), "the parent knows that there is none")
		Expect(refusals(ctx, string(parent.UID))).To(HaveExactElements(And(HaveField("ToolCallID", "call_1"), HaveField("Status", "failed"),
			HaveField("Content", And(HavePrefix("the subagent could not be created: "), ContainSubstring("exceeded quota"))))))
		page, err := e.Store.Messages(ctx, string(parent.UID), store.MessageQuery{IncludeSilent: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveExactElements(HaveField("Metadata", HaveKeyWithValue("status_kind", "failed"))))
	})

	It("finds its child before the cache has it, although the child itself filled the quota", Label("SUB-03"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e, byRun)
		Reconcile(ctx, r, s)
		child := childThread(ctx, e, s)
		Get(ctx, e, s).Status = skeinv1.SubagentStatus{} // as if the manager had crashed before it wrote that
		Expect(e.Client.Status().Update(ctx, s)).To(Succeed())
		refuseThreads(e, s.Name)
		r := newReconciler(e, func(o *subagent.Options) { o.Client = behind{Client: e.Client, name: child.Name} })
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Conditions).NotTo(ContainElement(HaveField("Reason", skeinv1.ReasonChildRefused)))
		Expect(refusals(ctx, string(parent.UID))).To(BeEmpty())
	})

	It("tells the parent of a child whose name is taken", Label("SUB-03"), func(ctx SpecContext) {
		e.Create(ctx, parent, &skeinv1.Thread{ObjectMeta: Meta("s")})
		storeThread(ctx, e, parent)
		s := declareSubagent(ctx, e, byRun)
		Reconcile(ctx, r, s)
		Expect(refusals(ctx, string(parent.UID))).To(HaveExactElements(HaveField("Content", ContainSubstring("exists already"))))
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("failed"))
	})

	It("tries again what a person declared, and says what is wrong", Label("K8S-02"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		refuseThreads(e, s.Name)
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		Expect(err).To(MatchError(ContainSubstring("exceeded quota")))
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring("exceeded quota"))))
		e.Fail(nil)
		Reconcile(ctx, r, s)
		childThread(ctx, e, s)
	})

	It("makes no child again whose task was purged with it", func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e, byRun, func(s *skeinv1.Subagent) {
			s.Spec.TaskRef, s.Spec.TaskDigest = "gone", "x"
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", string(parent.UID))}
		})
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), &skeinv1.Thread{})).NotTo(Succeed())
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
	})

	It("makes an existing Thread the child, and tells the parent", Label("SUB-01", "MSG-09"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		adopt := func(s *skeinv1.Subagent) {
			s.Spec = skeinv1.SubagentSpec{ParentRef: s.Spec.ParentRef, Name: "helper", Resumable: true, ThreadRef: &skeinv1.LocalRef{Name: "old"}, ParentCommunication: skeinv1.CommunicationImplicit}
		}
		s := declareSubagent(ctx, e, adopt)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring(`Thread "old" does not exist`))))
		old := &skeinv1.Thread{ObjectMeta: Meta("old")}
		e.Create(ctx, old)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring("not stored yet"))))
		storeThread(ctx, e, old)
		for range 2 {
			e.Clock.Step(time.Minute)
			Reconcile(ctx, r, s)
		}
		Expect(metav1.IsControlledBy(Get(ctx, e, old), s)).To(BeTrue())
		Expect(e.Store.Thread(ctx, string(old.UID))).To(HaveValue(And(HaveField("ParentID", string(parent.UID)), HaveField("Reference", "s"))))
		Expect(Get(ctx, e, s).Status.Entry).To(HaveValue(And(HaveField("ThreadName", "old"), HaveField("ThreadID", string(old.UID)), HaveField("Status", "pending"))))
		page, err := e.Store.Messages(ctx, string(parent.UID), store.MessageQuery{IncludeSilent: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(HaveExactElements(HaveField("Metadata", HaveKeyWithValue("status_kind", "adopted"))))

		for name, c := range map[string]struct {
			edit func(*store.Thread)
			says string
		}{
			"anothers": {func(t *store.Thread) { t.UserID = "bob" }, "another user"},
			"child":    {func(t *store.Thread) { t.ParentID, t.Child = string(parent.UID), &store.Child{} }, "child of another thread"},
		} {
			o := &skeinv1.Thread{ObjectMeta: Meta(name)}
			e.Create(ctx, o)
			storeThread(ctx, e, o, c.edit)
			s := declareSubagent(ctx, e, adopt, func(s *skeinv1.Subagent) { s.Name, s.Spec.ThreadRef.Name = "s-"+name, name })
			Reconcile(ctx, r, s)
			Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring(c.says)))))
			Expect(Get(ctx, e, o).OwnerReferences).To(BeEmpty())
		}
	})
})
