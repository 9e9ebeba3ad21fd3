package subagent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/subagent"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
)

func TestSubagent(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "subagent controller")
}

var _ = Describe("The subagent controller", func() {
	var (
		e      *Env
		r      *subagent.Reconciler
		parent *skeinv1.Thread
	)
	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		r = subagent.New(subagent.Options{Client: e.Client, Live: e.Client, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
		parent = &skeinv1.Thread{ObjectMeta: Meta("parent"), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
	})

	stored := func(ctx context.Context, t *skeinv1.Thread, edit ...func(*store.Thread)) {
		GinkgoHelper()
		row := store.Thread{ID: string(t.UID), Namespace: t.Namespace, Name: t.Name, Agent: "a", UserID: "ada"}
		for _, f := range edit {
			f(&row)
		}
		_, _, err := e.Store.CreateThread(ctx, row)
		Expect(err).NotTo(HaveOccurred())
	}
	declared := func(ctx context.Context, edit ...func(*skeinv1.Subagent)) *skeinv1.Subagent {
		GinkgoHelper()
		s := &skeinv1.Subagent{ObjectMeta: Meta("s"), Spec: skeinv1.SubagentSpec{
			ParentRef: skeinv1.LocalRef{Name: "parent"}, AgentRef: skeinv1.LocalRef{Name: "worker"}, Name: "helper", Title: "Sum", Description: "adds",
			Message: "2+3", Blocking: true, ParentCommunication: skeinv1.CommunicationImplicit, SpawnGroupID: "sess_1",
			Arguments: &runtime.RawExtension{Raw: []byte(`{"n":1}`)}}}
		for _, f := range edit {
			f(s)
		}
		e.Create(ctx, s)
		return s
	}
	made := func(ctx context.Context, s *skeinv1.Subagent) *skeinv1.Thread {
		GinkgoHelper()
		return Get(ctx, e, &skeinv1.Thread{ObjectMeta: Meta(s.Name)})
	}
	ready := func(s *skeinv1.Subagent) *metav1.Condition {
		return meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionReady)
	}
	childRow := func(s *skeinv1.Subagent) func(*store.Thread) {
		return func(t *store.Thread) {
			t.ParentID, t.Reference, t.RegistryStatus, t.Child = string(parent.UID), s.Name, "pending", &store.Child{Name: "helper", Blocking: true}
		}
	}

	It("makes no child Thread while a restore is about to make it", Label("K8S-09"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx, func(s *skeinv1.Subagent) { s.Annotations = map[string]string{skeinv1.AnnotationRestoring: "b1"} })
		e.Writes()
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(BeEmpty())
	})

	It("makes the child Thread, owned and with its finalizer, once", Label("SUB-01"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		e.Writes()
		Reconcile(ctx, r, s)
		t := made(ctx, s)
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
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		r = subagent.New(subagent.Options{Client: e.Client, Live: going{e.Client}, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
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
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		stored(ctx, t, childRow(s))
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
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		result := Reconcile(ctx, r, s)
		Expect(result.RequeueAfter).To(Equal(time.Second))
		stored(ctx, made(ctx, s), childRow(s))
		Expect(e.Store.Apply(ctx, string(made(ctx, s).UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("running")})).To(Succeed())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("running"))
		Expect(ready(s)).To(HaveValue(HaveField("Reason", skeinv1.ReasonProgressing)))
	})

	byRun := func(s *skeinv1.Subagent) { s.Spec.ToolCallID = "call_1" }
	Describe("that its parent left behind (--cascade=orphan)", Label("THR-09", "SUB-08"), func() {
		var s *skeinv1.Subagent
		var former string
		BeforeEach(func(ctx SpecContext) {
			e.Create(ctx, parent)
			stored(ctx, parent)
			former = string(parent.UID)
		})
		// left deletes the parent, and makes another Thread of its name.
		left := func(ctx context.Context, edit ...func(*skeinv1.Thread)) *skeinv1.Thread {
			GinkgoHelper()
			Get(ctx, e, s)
			s.OwnerReferences = nil
			Expect(e.Client.Update(ctx, s)).To(Succeed())
			Expect(e.Client.Delete(ctx, parent)).To(Succeed())
			next := &skeinv1.Thread{ObjectMeta: Meta("parent"), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "a"}}}
			for _, f := range edit {
				f(next)
			}
			e.Create(ctx, next)
			e.Clock.Step(time.Minute)
			return next
		}
		staysAway := func(ctx context.Context) {
			GinkgoHelper()
			e.Writes()
			Reconcile(ctx, r, s)
			Expect(e.Writes()).To(Equal(map[string]int{"status Subagent": 1}))
			Expect(Get(ctx, e, s).OwnerReferences).To(BeEmpty())
			Expect(ready(s)).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message",
				`it belongs to an earlier Thread "parent", which was deleted, and not to the one of that name now: delete this Subagent, or leave it, and its child works by itself`))))
		}
		working := func(ctx context.Context, inStatus bool) {
			GinkgoHelper()
			s = declared(ctx)
			Reconcile(ctx, r, s)
			stored(ctx, made(ctx, s), childRow(s))
			if inStatus {
				e.Clock.Step(time.Minute)
				Reconcile(ctx, r, s)
				Expect(Get(ctx, e, s).Status.Entry.ThreadID).NotTo(BeEmpty())
			}
		}

		It("does not pass to a new Thread of the parent's name, whose user may be another one", func(ctx SpecContext) {
			working(ctx, true)
			next := left(ctx)
			stored(ctx, next)
			staysAway(ctx)
			Expect(e.Store.Apply(ctx, string(next.UID), nil, &store.Terminate{})).To(Succeed())
			Reconcile(ctx, r, s)
			Expect(e.Engine.Terminated).To(BeEmpty(), "nor does it end with that one")
		})

		It("does not pass to it before its status says that there is a child", func(ctx SpecContext) {
			working(ctx, false)
			stored(ctx, left(ctx))
			staysAway(ctx)
		})

		It("does not pass to it when all that was stored is purged", func(ctx SpecContext) {
			working(ctx, true)
			child := made(ctx, s)
			stored(ctx, left(ctx))
			for _, id := range []string{string(child.UID), former} {
				_, err := e.Store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			staysAway(ctx)
		})

		It("does not have it told the task that a run of the parent gave", func(ctx SpecContext) {
			digest, err := e.Store.ReserveChild(ctx, store.ChildTask{ID: "task", ParentID: former, Reference: "s", Namespace: Namespace, Kind: "helper", Agent: "worker", Task: json.RawMessage(`{}`)}, nil)
			Expect(err).NotTo(HaveOccurred())
			s = declared(ctx, byRun, func(s *skeinv1.Subagent) {
				s.Spec.TaskRef, s.Spec.TaskDigest = "task", digest
				s.Labels = map[string]string{skeinv1.LabelThreadID: former}
			})
			stored(ctx, left(ctx))
			staysAway(ctx)
			_, err = e.Store.PurgeThread(ctx, former)
			Expect(err).NotTo(HaveOccurred())
			e.Writes()
			e.Clock.Step(time.Minute)
			Reconcile(ctx, r, s)
			Expect(e.Writes()).To(BeEmpty())
		})

		It("belongs to a Thread that has adopted the parent's data", func(ctx SpecContext) {
			working(ctx, true)
			Expect(e.Store.Apply(ctx, former, nil, &store.Retain{})).To(Succeed())
			next := left(ctx, func(t *skeinv1.Thread) { t.Spec.ThreadID = former })
			Expect(e.Store.Apply(ctx, former, nil, &store.Adopt{ObjectUID: string(next.UID), Name: "parent", Agent: "a"})).To(Succeed())
			Reconcile(ctx, r, s)
			Expect(metav1.IsControlledBy(Get(ctx, e, s), next)).To(BeTrue())
			Expect(ready(s).Message).NotTo(ContainSubstring("earlier"))
		})

		It("says so too while the garbage collector is about to delete it", func(ctx SpecContext) {
			s = declared(ctx, func(s *skeinv1.Subagent) {
				s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", "11111111-2222-4333-8444-555555555555")}
			})
			Reconcile(ctx, r, s)
			Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", HavePrefix(`it belongs to an earlier Thread "parent"`))))
		})
	})

	It("says what is missing and heals", Label("K8S-02"), func(ctx SpecContext) {
		s := declared(ctx)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Thread "parent" does not exist`)))))
		e.Create(ctx, parent)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring("not stored yet"))))
		stored(ctx, parent)
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		e.SetReady(ctx, t, &t.Status.Conditions, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Agent "worker" does not exist`)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotReady), HaveField("Message", ContainSubstring(`Agent "worker"`)))))
	})

	It("takes nobody else's Thread, and belongs to nobody else", func(ctx SpecContext) {
		e.Create(ctx, parent, &skeinv1.Thread{ObjectMeta: Meta("s")})
		stored(ctx, parent)
		s := declared(ctx)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring("exists already")))))
		foreign := declared(ctx, func(s *skeinv1.Subagent) {
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
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx, byRun)
		quota := apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, s.Name, errors.New("exceeded quota: few"))
		e.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
				return quota
			}
			return nil
		})
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
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx, byRun)
		Reconcile(ctx, r, s)
		child := made(ctx, s)
		Get(ctx, e, s).Status = skeinv1.SubagentStatus{} // as if the manager had crashed before it wrote that
		Expect(e.Client.Status().Update(ctx, s)).To(Succeed())
		e.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, s.Name, errors.New("exceeded quota: few"))
			}
			return nil
		})
		r := subagent.New(subagent.Options{Client: behind{Client: e.Client, name: child.Name}, Live: e.Client, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Conditions).NotTo(ContainElement(HaveField("Reason", skeinv1.ReasonChildRefused)))
		Expect(refusals(ctx, string(parent.UID))).To(BeEmpty())
	})

	It("tells the parent of a child whose name is taken", Label("SUB-03"), func(ctx SpecContext) {
		e.Create(ctx, parent, &skeinv1.Thread{ObjectMeta: Meta("s")})
		stored(ctx, parent)
		s := declared(ctx, byRun)
		Reconcile(ctx, r, s)
		Expect(refusals(ctx, string(parent.UID))).To(HaveExactElements(HaveField("Content", ContainSubstring("exists already"))))
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("failed"))
	})

	It("tries again what a person declared, and says what is wrong", Label("K8S-02"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		e.Fail(func(verb string, o client.Object) error {
			if _, ok := o.(*skeinv1.Thread); ok && verb == "create" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "threads"}, s.Name, errors.New("exceeded quota: few"))
			}
			return nil
		})
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		Expect(err).To(MatchError(ContainSubstring("exceeded quota")))
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring("exceeded quota"))))
		e.Fail(nil)
		Reconcile(ctx, r, s)
		made(ctx, s)
	})

	It("makes no child again whose task was purged with it", func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx, byRun, func(s *skeinv1.Subagent) {
			s.Spec.TaskRef, s.Spec.TaskDigest = "gone", "x"
			s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", string(parent.UID))}
		})
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), &skeinv1.Thread{})).NotTo(Succeed())
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
	})

	It("makes an existing Thread the child, and tells the parent", Label("SUB-01", "MSG-09"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		adopt := func(s *skeinv1.Subagent) {
			s.Spec = skeinv1.SubagentSpec{ParentRef: s.Spec.ParentRef, Name: "helper", Resumable: true, ThreadRef: &skeinv1.LocalRef{Name: "old"}, ParentCommunication: skeinv1.CommunicationImplicit}
		}
		s := declared(ctx, adopt)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring(`Thread "old" does not exist`))))
		old := &skeinv1.Thread{ObjectMeta: Meta("old")}
		e.Create(ctx, old)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", ContainSubstring("not stored yet"))))
		stored(ctx, old)
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
			stored(ctx, o, c.edit)
			s := declared(ctx, adopt, func(s *skeinv1.Subagent) { s.Name, s.Spec.ThreadRef.Name = "s-"+name, name })
			Reconcile(ctx, r, s)
			Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidSpec), HaveField("Message", ContainSubstring(c.says)))))
			Expect(Get(ctx, e, o).OwnerReferences).To(BeEmpty())
		}
	})

	It("removes a child a while after it has ended for good, and keeps its conversation where it is to", Label("SUB-02"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		for _, retain := range []skeinv1.ChildRetention{"", skeinv1.ChildPurge, skeinv1.ChildKeep} {
			s := declared(ctx, func(s *skeinv1.Subagent) {
				s.Name, s.Spec.Retain, s.Spec.TTLAfterFinished = "s-"+strings.ToLower(string(retain)+"x"), retain, &metav1.Duration{Duration: time.Hour}
			})
			Reconcile(ctx, r, s)
			t := made(ctx, s)
			stored(ctx, t, childRow(s))
			e.Clock.Step(2 * time.Hour)
			Reconcile(ctx, r, s)
			Expect(Get(ctx, e, s)).NotTo(BeNil(), "it has not ended")
			Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("completed")}, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
			row, err := e.Store.Thread(ctx, string(t.UID))
			Expect(err).NotTo(HaveOccurred())
			after := Reconcile(ctx, r, s).RequeueAfter
			Expect(after).To(BeNumerically("~", time.Hour, time.Minute))
			e.Clock.SetTime(time.UnixMicro(row.TerminatedAt).Add(time.Hour))
			Reconcile(ctx, r, s)
			Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s)).NotTo(Succeed())
			if retain == skeinv1.ChildKeep {
				Expect(Get(ctx, e, t).Annotations).To(HaveKeyWithValue(skeinv1.AnnotationRetain, "true"))
			} else {
				Expect(Get(ctx, e, t).Annotations[skeinv1.AnnotationRetain]).NotTo(Equal("true"))
			}
		}
	})

	It("removes a child that is to go as soon as it ends without a write of its status, and says why it cannot", Label("SUB-02", "K8S-07"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		for _, refused := range []error{nil, errors.New("a webhook says no")} {
			s := declared(ctx, func(s *skeinv1.Subagent) {
				s.Name, s.Spec.TTLAfterFinished = "s-"+strconv.FormatBool(refused == nil), &metav1.Duration{}
			})
			Reconcile(ctx, r, s)
			t := made(ctx, s)
			stored(ctx, t, childRow(s))
			Reconcile(ctx, r, s)
			Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("completed")}, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
			e.Writes()
			if refused == nil {
				Reconcile(ctx, r, s)
				Expect(e.Writes()).To(Equal(map[string]int{"delete Subagent": 1}))
				Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Satisfy(apierrors.IsNotFound))
				continue
			}
			stays := interceptor.NewClient(e.Client, interceptor.Funcs{
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return refused }})
			again := subagent.New(subagent.Options{Client: stays, Live: e.Client, Store: e.Store, Engine: e.Engine, Clock: e.Clock})
			_, err := again.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			Expect(err).To(MatchError(refused))
			status := Get(ctx, e, s).Status
			Expect(status.Entry.Status).To(Equal("completed"))
			Expect(ready(s)).To(HaveValue(HaveField("Message", ContainSubstring("a webhook says no"))))
		}
	})

	It("does not make a child again that somebody deleted", func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		Reconcile(ctx, r, s)
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		t.Finalizers = nil
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).NotTo(Succeed())
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionTerminated)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	It("does not make a child again that somebody deleted before its status says that there was one", Label("SUB-08"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		Expect(Get(ctx, e, s).Status.Entry).To(BeNil())
		Expect(e.Store.MarkDeleted(ctx, string(t.UID), string(t.UID), string(s.UID))).To(Succeed()) // as the thread controller does
		t.Finalizers = nil
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).NotTo(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
	})

	It("shows a deleted child as terminated, also when somebody makes a Thread of its name", Label("SUB-08"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		stored(ctx, t, childRow(s))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("running")})).To(Succeed())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("running"))
		_, err := e.Store.PurgeThread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		t.Finalizers = nil
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		e.Create(ctx, &skeinv1.Thread{ObjectMeta: Meta(s.Name)})
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
		Expect(made(ctx, s).OwnerReferences).To(BeEmpty())
	})

	It("writes nothing about a child that goes, and nothing at all where the parent takes it along", Label("K8S-07"), func(ctx SpecContext) {
		parent.Finalizers = []string{skeinv1.Finalizer}
		e.Create(ctx, parent)
		stored(ctx, parent)
		s := declared(ctx)
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		stored(ctx, t, childRow(s))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("completed")}, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
		Reconcile(ctx, r, s)
		shown := Get(ctx, e, s).Status
		Expect(shown.Entry.Status).To(Equal("completed"))
		e.Writes()
		quiet := func(why string) {
			GinkgoHelper()
			e.Clock.Step(time.Minute)
			Reconcile(ctx, r, s)
			Expect(e.Writes()).NotTo(HaveKey("status Subagent"), why)
			Expect(Get(ctx, e, s).Status).To(Equal(shown))
		}
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		_, err := e.Store.PurgeThread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		quiet("its data is purged, and its object goes")
		Expect(e.Client.Delete(ctx, parent)).To(Succeed())
		Get(ctx, e, t).Finalizers = nil
		Expect(e.Client.Update(ctx, t)).To(Succeed())
		quiet("it is gone, and its parent goes")
		_, err = e.Store.PurgeThread(ctx, string(parent.UID))
		Expect(err).NotTo(HaveOccurred())
		quiet("the data of the parent is purged")
	})

	It("terminates the child of a terminated parent, and makes none", Label("SUB-08"), func(ctx SpecContext) {
		e.Create(ctx, parent)
		stored(ctx, parent)
		s, late := declared(ctx), declared(ctx, func(s *skeinv1.Subagent) { s.Name = "late" })
		Reconcile(ctx, r, s)
		t := made(ctx, s)
		stored(ctx, t, childRow(s))
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.Terminate{})).To(Succeed())
		Reconcile(ctx, r, s)
		Expect(e.Engine.Terminated).To(HaveKeyWithValue(string(t.UID), skeinv1.ReasonParentTerminated))
		Expect(meta.FindStatusCondition(Get(ctx, e, s).Status.Conditions, skeinv1.ConditionTerminated)).To(HaveValue(HaveField("Reason", skeinv1.ReasonParentTerminated)))
		Reconcile(ctx, r, late)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(late), &skeinv1.Thread{})).NotTo(Succeed())
		Expect(Get(ctx, e, late).Status.Entry.Status).To(Equal("terminated"))
	})
})

// going is a reader that returns objects as being deleted.
type going struct{ client.Reader }

func (g going) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := g.Reader.Get(ctx, key, o, opts...)
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	return err
}

// behind is a client whose cache does not have the Thread of a name yet.
type behind struct {
	client.Client
	name string
}

func (b behind) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*skeinv1.Thread); ok && key.Name == b.name {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "threads"}, b.name)
	}
	return b.Client.Get(ctx, key, o, opts...)
}
