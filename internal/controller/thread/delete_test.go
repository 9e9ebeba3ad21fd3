package thread_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("The thread controller", func() {
	var (
		e         *Env
		r         *thread.Reconciler
		sandboxes *forgotten
	)
	BeforeEach(func(ctx SpecContext) { e, r, sandboxes = newController(ctx) })

	It("purges what is stored when the object goes, and lets the parent know", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		_, t := newChild(ctx, e, parent)
		Reconcile(ctx, r, t)
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		Reconcile(ctx, r, t)
		Expect(e.Engine.Aborted).To(ConsistOf(string(t.UID)))
		Expect(*sandboxes).To(ConsistOf(string(t.UID)))
		_, err := e.Store.Thread(ctx, string(t.UID))
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(apierrors.IsNotFound(e.Client.Get(ctx, client.ObjectKeyFromObject(t), t))).To(BeTrue())
		Expect(childResults(ctx, e, parent)).To(HaveExactElements(And(HaveField("Status", "terminated"), HaveField("ToolCallID", "call_1"))))
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
			return newReconciler(e, func(o *thread.Options) { o.Client, o.Sandboxes = old, sandboxes })
		}
		for _, was := range []struct {
			text   string
			stored bool
		}{{"was purged", true}, {"was never stored", false}} {
			It("brings no thread back that "+was.text, func(ctx SpecContext) {
				e.ReadyAgent(ctx, "a")
				t := newThread(ctx, e, "t", func(t *skeinv1.Thread) {
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
			t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Finalizers = []string{skeinv1.Finalizer, "example.com/keep"} })
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
			t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Spec.DeletionPolicy = skeinv1.DeletionRetain })
			Reconcile(ctx, r, t)
			watched := &aborts{Engine: e.Engine, retained: func(id string) bool {
				row, err := e.Store.Thread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
				return row.RetainedAt != 0
			}}
			r = newReconciler(e, func(o *thread.Options) { o.Engine, o.Sandboxes = watched, sandboxes })
			Expect(e.Client.Delete(ctx, t)).To(Succeed())
			Reconcile(ctx, r, t)
			Expect(watched.seen).To(Equal([]bool{true}))
		})

		It("takes no retained data", func(ctx SpecContext) {
			e.ReadyAgent(ctx, "a")
			t := newThread(ctx, e, "t", func(t *skeinv1.Thread) { t.Spec.DeletionPolicy = skeinv1.DeletionRetain })
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
		all = append(all, newThread(ctx, e, "root"))
		Reconcile(ctx, r, all[0])
		for i, name := range []string{"child", "grandchild"} {
			s := newSubagent(ctx, e, all[i], name, func(s *skeinv1.Subagent) { s.Spec.Name = name })
			t := newOwned(ctx, e, s, "")
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

	It("purges the data of descendants before that of the thread, in any order of reconciles", Label("THR-09", "SUB-08"), func(ctx SpecContext) {
		all, subs := generations(ctx)
		root, child, grandchild := all[0], all[1], all[2]
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		result := Reconcile(ctx, r, root)
		Expect(result.RequeueAfter).To(BeNumerically(">", 0), "should it not be told of the child's end")
		Expect(gone(ctx, subs[0])).To(BeTrue())
		Expect(Get(ctx, e, child).DeletionTimestamp).NotTo(BeNil())
		row, err := e.Store.Thread(ctx, string(root.UID))
		Expect(err).NotTo(HaveOccurred(), "it can be read")
		Expect(*row).To(And(HaveField("Deleting", true), HaveField("TerminatedAt", BeZero())), "its data may still be saved")
		Expect(e.Engine.Aborted).To(ContainElement(string(root.UID)))
		Expect(e.Engine.Aborted).To(ContainElement(string(child.UID)), "the child's run does not wait until the child is reconciled")
		for _, t := range []*skeinv1.Thread{root, child} {
			_, err := e.Store.Acquire(ctx, string(t.UID), "a replica", time.Minute)
			Expect(err).To(MatchError(store.ErrObjectDeleted), t.Name)
		}
		_, late := newChild(ctx, e, root)
		Reconcile(ctx, r, late)
		Expect(stored(ctx, late)).To(BeFalse(), "a child that was being made does not begin to work")
		e.Clock.Step(time.Minute)
		Expect(Reconcile(ctx, r, late).RequeueAfter).To(BeNumerically(">", 0))

		r = newReconciler(e, func(o *thread.Options) { o.Sandboxes = sandboxes }) // of another manager
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
		Expect(stored(ctx, root)).To(BeFalse(), "there is no descendant to wait for")
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

		root = newThread(ctx, e, "again")
		Reconcile(ctx, r, root)
		_, _, err := e.Store.CreateThread(ctx, store.Thread{ID: "objectless", Namespace: root.Namespace, Name: "objectless", Agent: "a", ParentID: string(root.UID)})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Client.Delete(ctx, root)).To(Succeed())
		Reconcile(ctx, r, root)
		Expect(stored(ctx, root)).To(BeFalse())
	})

	// collected does to a Thread what the garbage collector does once it knows of no dependent to wait for.
	collected := func(ctx context.Context, t *skeinv1.Thread) {
		GinkgoHelper()
		if controllerutil.RemoveFinalizer(Get(ctx, e, t), metav1.FinalizerDeleteDependents) {
			Expect(e.Client.Update(ctx, t)).To(Succeed())
		}
	}
	inForeground := func(ctx context.Context, t *skeinv1.Thread) {
		GinkgoHelper()
		controllerutil.AddFinalizer(Get(ctx, e, t), metav1.FinalizerDeleteDependents)
		Expect(e.Client.Update(ctx, t)).To(Succeed())
	}

	// orphaned does to a Thread that is deleted in the foreground what the API server does when it is deleted once more, with
	// --cascade=orphan.
	orphaned := func(ctx context.Context, t *skeinv1.Thread) {
		GinkgoHelper()
		controllerutil.RemoveFinalizer(Get(ctx, e, t), metav1.FinalizerDeleteDependents)
		controllerutil.AddFinalizer(t, metav1.FinalizerOrphanDependents)
		Expect(e.Client.Update(ctx, t)).To(Succeed())
	}

	DescribeTable("goes after the objects of its children only when it is deleted in the foreground, also when the garbage collector has not seen them", Label("THR-09"),
		func(ctx SpecContext, foreground, seen, orphan bool) {
			const foreign = "example.com/keeps"
			all, subs := generations(ctx)
			root, child, sub := all[0], Get(ctx, e, all[1]), subs[0]
			for _, o := range []client.Object{child, sub} {
				o.SetFinalizers(append(o.GetFinalizers(), foreign))
				Expect(e.Client.Update(ctx, o)).To(Succeed())
			}
			if foreground {
				inForeground(ctx, root)
			}
			Expect(e.Client.Delete(ctx, root)).To(Succeed())
			Reconcile(ctx, r, root)
			if !seen {
				collected(ctx, root)
			}
			if orphan {
				orphaned(ctx, root)
			}
			waits := foreground && !orphan
			for _, t := range []*skeinv1.Thread{root, child, all[2], child, root} {
				Reconcile(ctx, r, t)
			}
			Expect([]bool{stored(ctx, child), stored(ctx, root)}).To(Equal([]bool{false, false}))
			held := func() bool {
				GinkgoHelper()
				Reconcile(ctx, r, root)
				return !gone(ctx, root) && controllerutil.ContainsFinalizer(root, skeinv1.Finalizer)
			}
			for _, o := range []client.Object{child, sub} {
				Expect(held()).To(Equal(waits), "%T", o)
				Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				o.SetFinalizers(nil)
				Expect(e.Client.Update(ctx, o)).To(Succeed())
			}
			if waits && seen {
				collected(ctx, root)
			}
			Expect(held()).To(BeFalse())
		},
		Entry("in the foreground", true, true, false),
		Entry("in the foreground, and the garbage collector sees no dependents", true, false, false),
		Entry("in the foreground, and then once more with orphaned children", true, true, true),
		Entry("in the background", false, true, false),
	)

	It("goes after the Thread of a child that others have deleted with its Subagent", Label("THR-09"), func(ctx SpecContext) {
		all, subs := generations(ctx)
		root, child := all[0], Get(ctx, e, all[1])
		child.Finalizers = append(child.Finalizers, "example.com/keeps")
		Expect(e.Client.Update(ctx, child)).To(Succeed())
		inForeground(ctx, root)
		for _, o := range []client.Object{subs[0], child, root} {
			Expect(e.Client.Delete(ctx, o)).To(Succeed())
		}
		Reconcile(ctx, r, root)
		collected(ctx, root)
		for _, t := range []*skeinv1.Thread{child, all[2], child, root} {
			Reconcile(ctx, r, t)
		}
		Expect(stored(ctx, root)).To(BeFalse())
		Expect(gone(ctx, root)).To(BeFalse())
		Get(ctx, e, child).Finalizers = nil
		Expect(e.Client.Update(ctx, child)).To(Succeed())
		Reconcile(ctx, r, root)
		Expect(gone(ctx, root)).To(BeTrue())
	})

	It("lists nothing while the garbage collector waits in the foreground", Label("THR-09"), func(ctx SpecContext) {
		all, _ := generations(ctx)
		for _, t := range all {
			inForeground(ctx, t)
		}
		lists := 0
		live := interceptor.NewClient(e.Client, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			lists++
			return c.List(ctx, l, opts...)
		}})
		r = newReconciler(e, func(o *thread.Options) { o.Live = live })
		Expect(e.Client.Delete(ctx, all[0])).To(Succeed())
		for _, t := range []*skeinv1.Thread{all[0], all[1], all[2], all[1], all[0]} {
			Reconcile(ctx, r, t)
		}
		for _, t := range all {
			Expect(stored(ctx, t)).To(BeFalse())
			Expect(Reconcile(ctx, r, t).RequeueAfter).To(BeZero(), "the removal of the garbage collector's finalizer is an event")
			Expect(gone(ctx, t)).To(BeFalse())
		}
		Expect(lists).To(BeZero())
	})

	It("keeps the object while the data cannot be purged", Label("THR-09"), func(ctx SpecContext) {
		e.ReadyAgent(ctx, "a")
		t := newThread(ctx, e, "t")
		Reconcile(ctx, r, t)
		Expect(e.Client.Delete(ctx, t)).To(Succeed())
		broken := newReconciler(e, func(o *thread.Options) { o.Threads = domain.NewService(domain.Options{Store: unpurgeable{e.Store}}) })
		_, err := broken.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		Expect(err).To(MatchError(ContainSubstring("disk full")))
		Expect(Get(ctx, e, t).Finalizers).To(ConsistOf(skeinv1.Finalizer))
	})
})

// unpurgeable is a store whose disk is full.
type unpurgeable struct{ store.Store }

func (unpurgeable) PurgeThread(context.Context, string) ([]string, error) {
	return nil, errors.Join(store.ErrUnavailable, errors.New("disk full"))
}
