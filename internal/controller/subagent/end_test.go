package subagent_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

var _ = Describe("The subagent controller", func() {
	var (
		e      *Env
		r      *subagent.Reconciler
		parent *skeinv1.Thread
	)
	BeforeEach(func(ctx SpecContext) { e, r, parent = newController(ctx) })

	It("removes a child a while after it has ended for good, and keeps its conversation where it is to", Label("SUB-02"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		for _, retain := range []skeinv1.ChildRetention{"", skeinv1.ChildPurge, skeinv1.ChildKeep} {
			s := declareSubagent(ctx, e, func(s *skeinv1.Subagent) {
				s.Name, s.Spec.Retain, s.Spec.TTLAfterFinished = "s-"+strings.ToLower(string(retain)+"x"), retain, &metav1.Duration{Duration: time.Hour}
			})
			Reconcile(ctx, r, s)
			t := childThread(ctx, e, s)
			storeThread(ctx, e, t, childRow(parent, s))
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

	It("keeps the conversation of a child that the cache does not know after a broken watch", Label("SUB-02"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e, func(s *skeinv1.Subagent) {
			s.Spec.Retain, s.Spec.TTLAfterFinished = skeinv1.ChildKeep, &metav1.Duration{Duration: time.Hour}
		})
		Reconcile(ctx, r, s)
		t := childThread(ctx, e, s)
		storeThread(ctx, e, t, childRow(parent, s))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
		Reconcile(ctx, r, s)
		Expect(meta.IsStatusConditionTrue(Get(ctx, e, s).Status.Conditions, skeinv1.ConditionTerminated)).To(BeTrue())
		e.Clock.Step(2 * time.Hour)
		Reconcile(ctx, newReconciler(e, func(o *subagent.Options) { o.Client = behind{e.Client, t.Name} }), s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Satisfy(apierrors.IsNotFound))
		Expect(Get(ctx, e, t).Annotations).To(HaveKeyWithValue(skeinv1.AnnotationRetain, "true"))
	})

	It("removes a child that is to go as soon as it ends without a write of its status, and says why it cannot", Label("SUB-02", "K8S-07"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		for _, refused := range []error{nil, apierrors.NewForbidden(schema.GroupResource{Resource: "subagents"}, "s-false", errors.New("a webhook says no"))} {
			s := declareSubagent(ctx, e, func(s *skeinv1.Subagent) {
				s.Name, s.Spec.TTLAfterFinished = "s-"+strconv.FormatBool(refused == nil), &metav1.Duration{}
			})
			Reconcile(ctx, r, s)
			t := childThread(ctx, e, s)
			storeThread(ctx, e, t, childRow(parent, s))
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
			again := newReconciler(e, func(o *subagent.Options) { o.Client = stays })
			_, err := again.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			Expect(err).To(MatchError(refused))
			status := Get(ctx, e, s).Status
			Expect(status.Entry.Status).To(Equal("completed"))
			Expect(ready(s)).To(HaveValue(HaveField("Message", ContainSubstring("a webhook says no"))))
		}
	})

	It("does not make a deleted child again", func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		Reconcile(ctx, r, s)
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		t := childThread(ctx, e, s)
		removeThread(ctx, e, t)
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).NotTo(Succeed())
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
		Expect(meta.FindStatusCondition(s.Status.Conditions, skeinv1.ConditionTerminated)).To(HaveValue(HaveField("Status", metav1.ConditionTrue)))
	})

	It("does not make a child again that was deleted before the status showed it", Label("SUB-08"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s, t := declareChild(ctx, e, r)
		Expect(Get(ctx, e, s).Status.Entry).To(BeNil())
		Expect(e.Store.MarkDeleted(ctx, string(t.UID), string(t.UID), string(s.UID))).To(Succeed()) // as the thread controller does
		removeThread(ctx, e, t)
		Reconcile(ctx, r, s)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(t), t)).NotTo(Succeed())
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
	})

	It("shows a deleted child as terminated, also when a Thread of its name is created", Label("SUB-08"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s, t := declareChild(ctx, e, r)
		storeThread(ctx, e, t, childRow(parent, s))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("running")})).To(Succeed())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("running"))
		_, err := e.Store.PurgeThread(ctx, string(t.UID))
		Expect(err).NotTo(HaveOccurred())
		removeThread(ctx, e, t)
		e.Create(ctx, &skeinv1.Thread{ObjectMeta: Meta(s.Name)})
		e.Clock.Step(time.Minute)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
		Expect(childThread(ctx, e, s).OwnerReferences).To(BeEmpty())
	})

	It("writes nothing about a child that goes, and nothing at all where the parent takes it along", Label("K8S-07"), func(ctx SpecContext) {
		parent.Finalizers = []string{skeinv1.Finalizer}
		createThread(ctx, e, parent)
		s, t := declareChild(ctx, e, r)
		storeThread(ctx, e, t, childRow(parent, s))
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
		createThread(ctx, e, parent)
		s, late := declareSubagent(ctx, e), declareSubagent(ctx, e, func(s *skeinv1.Subagent) { s.Name = "late" })
		Reconcile(ctx, r, s)
		t := childThread(ctx, e, s)
		storeThread(ctx, e, t, childRow(parent, s))
		Expect(e.Store.Apply(ctx, string(parent.UID), nil, &store.Terminate{})).To(Succeed())
		Reconcile(ctx, r, s)
		Expect(e.Engine.Terminated).To(HaveKeyWithValue(string(t.UID), skeinv1.ReasonParentTerminated))
		Expect(meta.FindStatusCondition(Get(ctx, e, s).Status.Conditions, skeinv1.ConditionTerminated)).To(HaveValue(HaveField("Reason", skeinv1.ReasonParentTerminated)))
		Reconcile(ctx, r, late)
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(late), &skeinv1.Thread{})).NotTo(Succeed())
		Expect(Get(ctx, e, late).Status.Entry.Status).To(Equal("terminated"))
	})

	It("makes no child for a parent that is being deleted, and writes nothing about that", Label("THR-09", "SUB-08", "K8S-07"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s := declareSubagent(ctx, e)
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner(parent.Name, string(parent.UID))}
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		Expect(e.Store.MarkDeleted(ctx, string(parent.UID), string(parent.UID))).To(Succeed())
		e.Writes()
		Reconcile(ctx, r, s)
		Expect(e.Writes()).To(BeEmpty())
	})

	It("shows a child whose deletion waits as terminated", Label("SUB-08", "THR-09"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		s, t := declareChild(ctx, e, r)
		storeThread(ctx, e, t, childRow(parent, s))
		Expect(e.Store.Apply(ctx, string(t.UID), nil, &store.UpdateThread{RegistryStatus: ptr.To("running")})).To(Succeed())
		Expect(e.Store.MarkDeleted(ctx, string(t.UID), string(t.UID))).To(Succeed())
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, s)
		Expect(Get(ctx, e, s).Status.Entry.Status).To(Equal("terminated"))
		Expect(meta.IsStatusConditionTrue(s.Status.Conditions, skeinv1.ConditionTerminated)).To(BeTrue())
	})

	It("gives no Thread to a parent that is being deleted", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		createThread(ctx, e, parent)
		t := newParent()
		t.Name = "other"
		createThread(ctx, e, t)
		s := declareSubagent(ctx, e, func(s *skeinv1.Subagent) { s.Spec.ThreadRef = &skeinv1.LocalRef{Name: "other"} })
		Expect(e.Store.MarkDeleted(ctx, string(parent.UID), string(parent.UID))).To(Succeed())
		Reconcile(ctx, r, s)
		Expect(ready(Get(ctx, e, s))).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring("is being deleted")))))
		Expect(Get(ctx, e, t).OwnerReferences).To(BeEmpty())
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("ParentID", BeEmpty()))
	})
})
