package thread_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gocloud.dev/blob/memblob"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

// A parent that is made with a message, and its child, are over within a second: each costs one write of its status.
var _ = Describe("The status of a delegation", Label("K8S-07", "SUB-01"), func() {
	var (
		e       *Env
		r       *thread.Reconciler
		parent  *skeinv1.Thread
		child   *skeinv1.Thread
		started int64
	)
	reconciler := func(threads *domain.Service) *thread.Reconciler {
		return newReconciler(e, func(o *thread.Options) { o.Threads = threads })
	}
	run := func(ctx context.Context, t *skeinv1.Thread, status store.RunStatus, more ...store.Op) {
		GinkgoHelper()
		r := store.Run{ID: "run-" + t.Name, ThreadID: string(t.UID), Agent: "a", Status: status, StartedAt: started}
		if status.Ended() {
			r.EndedAt = e.Clock.Now().UnixMicro()
		}
		Expect(e.Store.Apply(ctx, r.ThreadID, nil, append(more, &store.PutRun{Run: r})...)).To(Succeed())
	}
	ends := func(ctx context.Context) {
		GinkgoHelper()
		run(ctx, child, store.RunSucceeded, &store.UpdateThread{RegistryStatus: ptr.To("completed")}, &store.Terminate{Reason: skeinv1.ReasonSessionEnded})
	}
	terminated := func(t *skeinv1.Thread) bool {
		return meta.IsStatusConditionTrue(t.Status.Conditions, skeinv1.ConditionTerminated)
	}

	BeforeEach(func(ctx SpecContext) {
		e = New(ctx)
		r = reconciler(e.Threads)
		e.ReadyAgent(ctx, "a")
		parent = newThread(ctx, e, "parent", func(t *skeinv1.Thread) { t.Spec.Message = "go" })
		e.Writes()
		Reconcile(ctx, r, parent)
		started = e.Clock.Now().UnixMicro()
		run(ctx, parent, store.RunRunning)
		Reconcile(ctx, r, parent)
		child = newOwned(ctx, e, newSubagent(ctx, e, parent, "child", blocking), "do")
		Reconcile(ctx, r, child)
		Reconcile(ctx, r, parent)
		e.Clock.Step(50 * time.Millisecond)
	})

	It("is written once for each thread, with the end of its run", func(ctx SpecContext) {
		ends(ctx)
		run(ctx, parent, store.RunSucceeded)
		Reconcile(ctx, r, parent) // the Subagent does not show yet that its child has ended
		Reconcile(ctx, r, child)
		Expect(e.Writes()).To(Equal(map[string]int{"create Subagent": 1, "create Thread": 1, "patch Thread": 1, "status Thread": 2}))
		status := Get(ctx, e, parent).Status
		Expect(status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunSucceeded)))
		Expect(meta.IsStatusConditionTrue(status.Conditions, skeinv1.ConditionReady)).To(BeTrue())
		Expect(status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Completed: 1})))
		Expect(status.Children).To(HaveExactElements(And(HaveField("Status", "completed"), HaveField("ThreadID", string(child.UID)))))
		Expect(terminated(Get(ctx, e, child))).To(BeTrue())
		Expect(e.Recorder.Events).NotTo(Receive(), "nothing happened that does not happen to each delegation")
	})

	It("says nothing of a child that is removed as it ends, unless it stays", func(ctx SpecContext) {
		sub := Get(ctx, e, &skeinv1.Subagent{ObjectMeta: Meta("child")})
		sub.Spec.TTLAfterFinished = &metav1.Duration{Duration: 10 * time.Millisecond}
		Expect(e.Client.Update(ctx, sub)).To(Succeed())
		ends(ctx)
		e.Clock.Step(10 * time.Millisecond)
		e.Writes()
		Expect(Reconcile(ctx, r, child).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", time.Second)))
		Expect(e.Writes()).To(BeEmpty())
		Expect(e.Client.Delete(ctx, sub)).To(Succeed())
		Reconcile(ctx, r, child)
		Expect(e.Writes()).To(Equal(map[string]int{"delete Subagent": 1}), "the garbage collector deletes the Thread soon")
		e.Clock.Step(time.Second)
		Reconcile(ctx, r, child)
		Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
		Expect(terminated(Get(ctx, e, child))).To(BeTrue())
	})

	It("shows the end of a child that is removed later at once", func(ctx SpecContext) {
		sub := Get(ctx, e, &skeinv1.Subagent{ObjectMeta: Meta("child")})
		sub.Spec.TTLAfterFinished = &metav1.Duration{Duration: 10 * time.Millisecond}
		Expect(e.Client.Update(ctx, sub)).To(Succeed())
		ends(ctx)
		e.Writes()
		Reconcile(ctx, r, child)
		Expect(e.Writes()).To(Equal(map[string]int{"status Thread": 1}))
	})

	It("shows a run and what it did to its thread together, also when it ends meanwhile", func(ctx SpecContext) {
		bucket := memblob.OpenBucket(nil)
		DeferCleanup(bucket.Close)
		meanwhile := &meanwhile{Store: e.Store, do: func() { ends(ctx) }}
		Reconcile(ctx, reconciler(domain.NewService(domain.Options{Store: meanwhile, Blobs: bucket, Clock: e.Clock})), child)
		Expect(Get(ctx, e, child).Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunSucceeded)))
		Expect(terminated(child)).To(BeTrue())
	})

	It("shows which children have not ended first, and of how many the store knows better", func(ctx SpecContext) {
		newSubagent(ctx, e, parent, "other", func(s *skeinv1.Subagent) { s.CreationTimestamp = metav1.NewTime(Start.Add(-time.Hour)) })
		ends(ctx)
		run(ctx, parent, store.RunSucceeded)
		Reconcile(ctx, r, parent)
		status := Get(ctx, e, parent).Status
		Expect(status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Pending: 1, Completed: 1})))
		Expect(status.Children).To(HaveExactElements(HaveField("Reference", "other"), HaveField("Reference", "child")))
	})
	It("reads from the store what unfinished children do, and not those that are retained", Label("SUB-02"), func(ctx SpecContext) {
		for i := range 5 {
			kept, _, err := e.Store.CreateThread(ctx, store.Thread{ID: fmt.Sprint("kept-", i), Namespace: Namespace, Agent: "a", ParentID: string(parent.UID), Reference: fmt.Sprint("kept-", i)})
			Expect(err).NotTo(HaveOccurred())
			Expect(e.Store.Apply(ctx, kept.ID, nil, &store.Terminate{}, &store.Retain{})).To(Succeed())
		}
		newSubagent(ctx, e, parent, "done", func(s *skeinv1.Subagent) {
			s.Status.Entry = &skeinv1.ChildStatus{Reference: s.Name, Status: "completed"}
		})
		ends(ctx)
		run(ctx, parent, store.RunSucceeded)
		counted := &childLists{Store: e.Store}
		Reconcile(ctx, reconciler(domain.NewService(domain.Options{Store: counted, Clock: e.Clock})), parent)
		Expect(Get(ctx, e, parent).Status.ChildCounts).To(HaveValue(Equal(skeinv1.ChildCounts{Completed: 2})))
		Expect(counted.n).To(BeZero())
		Expect(counted.asked).To(Equal([][]string{{"child"}}))
	})

	It("releases a Thread that was deleted once, also when its cache does not know yet", Label("THR-09"), func(ctx SpecContext) {
		var seen *skeinv1.Thread // what the cache shows in place of what there is
		cached := e.Client
		e.Client = interceptor.NewClient(e.Client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if t, ok := o.(*skeinv1.Thread); ok && seen != nil && key.Name == seen.Name {
					seen.DeepCopyInto(t)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			}})
		r = reconciler(e.Threads)
		Expect(e.Client.Delete(ctx, child)).To(Succeed())
		deleted := Get(ctx, e, child).DeepCopy()
		e.Writes()
		Reconcile(ctx, r, child)
		Expect(e.Writes()).To(Equal(map[string]int{"patch Thread": 1}))
		seen = deleted
		Reconcile(ctx, r, child)
		Expect(e.Writes()).To(BeEmpty())
		Expect(cached.Get(ctx, client.ObjectKeyFromObject(child), child)).NotTo(Succeed())
	})
})

// meanwhile does something once, before a run is read.
type meanwhile struct {
	store.Store
	do func()
}

func (m *meanwhile) Run(ctx context.Context, threadID, runID string) (*store.Run, error) {
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return m.Store.Run(ctx, threadID, runID)
}
