package subagent_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	Describe("that its parent left behind (--cascade=orphan)", Label("THR-09", "SUB-08"), func() {
		var s *skeinv1.Subagent
		var former string
		BeforeEach(func(ctx SpecContext) {
			createThread(ctx, e, parent)
			former = string(parent.UID)
		})
		// left deletes the parent, and makes another Thread of its name.
		left := func(ctx context.Context, edit ...func(*skeinv1.Thread)) *skeinv1.Thread {
			GinkgoHelper()
			Get(ctx, e, s)
			s.OwnerReferences = nil
			Expect(e.Client.Update(ctx, s)).To(Succeed())
			Expect(e.Client.Delete(ctx, parent)).To(Succeed())
			next := newParent()
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
				`its parent was an earlier Thread "parent", which was deleted; the present Thread of that name is another one. Delete this Subagent, or leave it: its child works on without a parent`))))
		}
		working := func(ctx context.Context, inStatus bool) {
			GinkgoHelper()
			s = declareSubagent(ctx, e)
			Reconcile(ctx, r, s)
			storeThread(ctx, e, childThread(ctx, e, s), childRow(parent, s))
			if inStatus {
				e.Clock.Step(time.Minute)
				Reconcile(ctx, r, s)
				Expect(Get(ctx, e, s).Status.Entry.ThreadID).NotTo(BeEmpty())
			}
		}

		It("does not pass to a new Thread of the parent's name, whose user may be another one", func(ctx SpecContext) {
			working(ctx, true)
			next := left(ctx)
			storeThread(ctx, e, next)
			staysAway(ctx)
			Expect(e.Store.Apply(ctx, string(next.UID), nil, &store.Terminate{})).To(Succeed())
			Reconcile(ctx, r, s)
			Expect(e.Engine.Terminated).To(BeEmpty(), "nor does it end with that one")
		})

		It("does not pass to it before its status says that there is a child", func(ctx SpecContext) {
			working(ctx, false)
			storeThread(ctx, e, left(ctx))
			staysAway(ctx)
		})

		It("does not pass to it when all that was stored is purged", func(ctx SpecContext) {
			working(ctx, true)
			child := childThread(ctx, e, s)
			storeThread(ctx, e, left(ctx))
			for _, id := range []string{string(child.UID), former} {
				_, err := e.Store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			staysAway(ctx)
		})

		It("does not have it told the task that a run of the parent gave", func(ctx SpecContext) {
			digest, err := e.Store.ReserveChild(ctx, store.ChildTask{ID: "task", ParentID: former, Reference: "s", Namespace: Namespace, Kind: "helper", Agent: "worker", Task: json.RawMessage(`{}`)}, nil)
			Expect(err).NotTo(HaveOccurred())
			s = declareSubagent(ctx, e, byRun, func(s *skeinv1.Subagent) {
				s.Spec.TaskRef, s.Spec.TaskDigest = "task", digest
				s.Labels = map[string]string{skeinv1.LabelThreadID: former}
			})
			storeThread(ctx, e, left(ctx))
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

		DescribeTable("stays with its child, whose conversation it is to keep, when spec.ttlAfterFinished is over", Label("SUB-02"), func(ctx SpecContext, another bool) {
			s = declareSubagent(ctx, e, func(s *skeinv1.Subagent) {
				s.Spec.Retain, s.Spec.TTLAfterFinished = skeinv1.ChildKeep, &metav1.Duration{Duration: time.Hour}
			})
			Reconcile(ctx, r, s)
			child := childThread(ctx, e, s)
			storeThread(ctx, e, child, childRow(parent, s))
			Expect(e.Store.Apply(ctx, string(child.UID), nil, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})).To(Succeed())
			Reconcile(ctx, r, s)
			Expect(meta.IsStatusConditionTrue(Get(ctx, e, s).Status.Conditions, skeinv1.ConditionTerminated)).To(BeTrue())
			next := left(ctx)
			storeThread(ctx, e, next)
			if !another {
				removeThread(ctx, e, next)
			}
			e.Clock.Step(2 * time.Hour)
			Expect(Reconcile(ctx, r, s).RequeueAfter).To(BeZero())
			Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed(), "its deletion would purge the conversation")
			Expect(ready(s)).To(HaveValue(HaveField("Reason", skeinv1.ReasonReferenceNotFound)))
		},
			Entry("and there is no Thread of the parent's name", false),
			Entry("and another Thread has the parent's name", true))

		It("says so too while the garbage collector is about to delete it", func(ctx SpecContext) {
			s = declareSubagent(ctx, e, func(s *skeinv1.Subagent) {
				s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", "11111111-2222-4333-8444-555555555555")}
			})
			Reconcile(ctx, r, s)
			Expect(ready(Get(ctx, e, s))).To(HaveValue(HaveField("Message", HavePrefix(`its parent was an earlier Thread "parent"`))))
		})
	})
})
