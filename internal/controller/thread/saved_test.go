package thread_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A Thread whose deletion waits", func() {
	var (
		e    *Env
		r    *thread.Reconciler
		root *skeinv1.Thread
	)
	BeforeEach(func(ctx SpecContext) {
		e, r, _ = newController(ctx)
		e.ReadyAgent(ctx, "a")
		root = newThread(ctx, e, "root")
		Reconcile(ctx, r, root)
	})

	DescribeTable("keeps the whole conversation for the Thread that adopts it, when its data is saved meanwhile", Label("THR-09", "K8S-06"), func(ctx SpecContext, save func(*skeinv1.Thread)) {
		_, child := newChild(ctx, e, root)
		Reconcile(ctx, r, child)
		id := string(root.UID)
		item := store.InboxItem{Key: "waits", Kind: store.InboxMessage, Payload: []byte(`{"id":"m","role":"user","content":"hello"}`)}
		Expect(e.Store.Apply(ctx, id, nil, &store.Enqueue{Item: item})).To(Succeed())
		e.Fail(func(verb string, o client.Object) error {
			if verb == "delete" && o.GetName() == child.Name {
				return apierrors.NewForbidden(skeinv1.GroupVersion.WithResource("threads").GroupResource(), child.Name, errors.New("the policy keep denies it"))
			}
			return nil
		})
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(root)})
		Expect(err).To(MatchError(ContainSubstring("the policy keep denies it")))
		Expect(e.Store.Runnable(ctx, 10)).NotTo(ContainElement(id), "it does no work meanwhile")

		save(Get(ctx, e, root))
		Expect(e.Client.Update(ctx, root)).To(Succeed())
		Reconcile(ctx, r, root)
		Expect(apierrors.IsNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(root), root))).To(BeTrue())
		Reconcile(ctx, r, newThread(ctx, e, "root")) // which retains what is left of a Thread whose finalizer was removed
		next := newThread(ctx, e, "next", func(t *skeinv1.Thread) { t.Spec.ThreadID = id })
		Reconcile(ctx, r, next)
		Expect(e.Store.Thread(ctx, id)).To(And(HaveField("OwnerUID()", string(next.UID)), HaveField("TerminatedAt", BeZero()), HaveField("TerminatedReason", BeEmpty()), HaveField("Queued", BeEquivalentTo(1))))
		Expect(e.Store.Inbox(ctx, id)).To(ContainElement(HaveField("Key", "waits")))
		Expect(e.Store.Runnable(ctx, 10)).To(ContainElement(id))
	},
		Entry("by the annotation", func(t *skeinv1.Thread) { t.Annotations = map[string]string{skeinv1.AnnotationRetain: "true"} }),
		Entry("by spec.deletionPolicy", func(t *skeinv1.Thread) { t.Spec.DeletionPolicy = skeinv1.DeletionRetain }),
		Entry("by the removal of the finalizer", func(t *skeinv1.Thread) { t.Finalizers = nil }),
	)

	It("tells the parent once, also when the parent's conversation is destroyed in between", Label("SUB-08", "THR-09"), func(ctx SpecContext) {
		_, child := newChild(ctx, e, root)
		Reconcile(ctx, r, child)
		below := newOwned(ctx, e, newSubagent(ctx, e, child, "below"), "do")
		Reconcile(ctx, r, below)
		e.Fail(func(verb string, o client.Object) error {
			if verb == "delete" && o.GetName() == below.Name {
				return apierrors.NewForbidden(skeinv1.GroupVersion.WithResource("threads").GroupResource(), below.Name, errors.New("the policy keep denies it"))
			}
			return nil
		})
		Expect(e.Client.Delete(ctx, Get(ctx, e, child))).To(Succeed())
		id := string(root.UID)
		again := func() {
			GinkgoHelper()
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(child)})
			Expect(err).To(MatchError(ContainSubstring("the policy keep denies it")))
		}
		again()
		Expect(e.Store.Thread(ctx, id)).To(HaveField("Messages", BeNumerically(">", 0)))
		Expect(e.Store.Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})).To(Succeed())
		again()
		Expect(e.Store.Thread(ctx, id)).To(HaveField("Messages", BeZero()))
	})

	It("lets a child that was being made be stored, with its first message, once its data is retained", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		_, late := newChild(ctx, e, root)
		Expect(e.Store.MarkDeleted(ctx, string(root.UID), string(root.UID))).To(Succeed())
		wait := Reconcile(ctx, r, late).RequeueAfter
		_, err := e.Store.Thread(ctx, string(late.UID))
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(e.Store.Apply(ctx, string(root.UID), nil, &store.Retain{})).To(Succeed())
		next := newThread(ctx, e, "next", func(t *skeinv1.Thread) { t.Spec.ThreadID = string(root.UID) })
		Reconcile(ctx, r, next)
		e.Clock.Step(wait)
		s := &skeinv1.Subagent{}
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(late), s)).To(Succeed())
		s.Spec.ParentRef.Name, s.OwnerReferences = next.Name, []metav1.OwnerReference{objects.ThreadOwner(next.Name, string(next.UID))}
		Expect(e.Client.Update(ctx, s)).To(Succeed())
		Reconcile(ctx, r, late)
		Expect(e.Store.Thread(ctx, string(late.UID))).To(And(HaveField("TerminatedAt", BeZero()), HaveField("Queued", BeEquivalentTo(1))))
		Expect(e.Engine.Terminated).To(BeEmpty())
	})

	It("does not terminate a child that was stored just before its purge began", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		_, t := newChild(ctx, e, root)
		r = newReconciler(e, func(o *thread.Options) {
			o.Threads = domain.NewService(domain.Options{Store: purging{e.Store, string(root.UID)}})
		})
		Reconcile(ctx, r, t)
		Expect(e.Store.Thread(ctx, string(root.UID))).To(HaveField("TerminatedReason", store.ReasonPurged))
		Expect(e.Store.Thread(ctx, string(t.UID))).To(HaveField("TerminatedAt", BeZero()))
		Expect(e.Engine.Terminated).To(BeEmpty(), "it is deleted with its parent, or left to itself")
	})
})

// purging is a store in which the purge of a thread begins once another one is created.
type purging struct {
	store.Store
	id string
}

func (p purging) CreateThread(ctx context.Context, t store.Thread, ops ...store.Op) (*store.Thread, bool, error) {
	stored, created, err := p.Store.CreateThread(ctx, t, ops...)
	return stored, created, errors.Join(err, p.Apply(ctx, p.id, nil, &store.Terminate{Reason: store.ReasonPurged}))
}
