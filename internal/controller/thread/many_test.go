package thread_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	. "github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/controller/thread"
	"github.com/skein-dev/skein/internal/store"
	domain "github.com/skein-dev/skein/internal/thread"
)

// childLists counts the lists of children that are read from a store.
type childLists struct {
	store.Store
	n     int
	asked [][]string // the references of which the states were read
}

func (c *childLists) Children(ctx context.Context, id string) ([]store.Thread, error) {
	c.n++
	return c.Store.Children(ctx, id)
}

func (c *childLists) ChildStates(ctx context.Context, id string, references []string) (map[string]store.ChildState, error) {
	c.asked = append(c.asked, references)
	return c.Store.ChildStates(ctx, id, references)
}

var _ = Describe("The deletion of a thread with many children", Label("SUB-08"), func() {
	It("costs as much for each, however many there are", func(ctx SpecContext) {
		const many, few = 150, 100 // with up to few children left, they are listed at each event
		e := New(ctx)
		e.ReadyAgent(ctx, "a")
		counted := &childLists{Store: e.Store}
		lists := 0
		reader := interceptor.NewClient(e.Client, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				lists++
				return c.List(ctx, l, opts...)
			},
		})
		r := newReconciler(e, func(o *thread.Options) {
			o.Client, o.Live, o.Threads = reader, reader, domain.NewService(domain.Options{Store: counted})
		})
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		var children []*skeinv1.Thread
		for i := range many {
			t := newOwned(ctx, e, newSubagent(ctx, e, parent, fmt.Sprint("child-", i)), "")
			Reconcile(ctx, r, t)
			children = append(children, t)
		}
		Expect(e.Client.Delete(ctx, Get(ctx, e, parent))).To(Succeed())
		Expect(Reconcile(ctx, r, parent).RequeueAfter).To(BeNumerically(">", 0))
		lists, counted.n = 0, 0
		for _, t := range children { // each tells its parent that it goes
			Reconcile(ctx, r, parent)
			Reconcile(ctx, r, t)
		}
		passes := counted.n - len(children) // each child looks once for children of its own
		Expect(passes).To(BeNumerically("<", few+(many-few)/2), "lists of the children")
		Expect(lists).To(BeNumerically("<=", many+passes), "lists of Subagents")
		Reconcile(ctx, r, parent)
		Expect(e.Store.Thread(ctx, string(parent.UID))).Error().To(MatchError(store.ErrNotFound))
		Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(parent), parent)).NotTo(Succeed())
	})
})

var _ = Describe("Runs of many children that end at the same time", Label("SUB-01", "K8S-07"), func() {
	It("are shown within ten seconds, the first hundred and all that fail at once, and those of other threads", func(ctx SpecContext) {
		e := New(ctx)
		e.ReadyAgent(ctx, "a")
		r := newReconciler(e)
		parent := newThread(ctx, e, "parent")
		Reconcile(ctx, r, parent)
		runs := func(t *skeinv1.Thread, outcome store.RunStatus) *skeinv1.Thread {
			GinkgoHelper()
			Reconcile(ctx, r, t)
			at := e.Clock.Now().UnixMicro()
			putRun(ctx, e, t, store.Run{ID: "sess_" + t.Name, Agent: "a", Status: outcome, StartedAt: at, EndedAt: at})
			Reconcile(ctx, r, t)
			return Get(ctx, e, t)
		}
		ends := func(name string, outcome store.RunStatus) *skeinv1.Thread {
			GinkgoHelper()
			return runs(newOwned(ctx, e, newSubagent(ctx, e, parent, name), ""), outcome)
		}
		for i := range 100 {
			Expect(ends(fmt.Sprint("early-", i), store.RunSucceeded).Status.LastRun).NotTo(BeNil())
		}
		late := ends("late", store.RunSucceeded)
		Expect(late.Status.LastRun).To(BeNil())
		Expect(ends("failed", store.RunFailed).Status.LastRun).NotTo(BeNil())
		Expect(runs(newThread(ctx, e, "other"), store.RunSucceeded).Status.LastRun).NotTo(BeNil())

		Expect(Reconcile(ctx, r, late).RequeueAfter).To(Equal(10 * time.Second))
		e.Clock.Step(10 * time.Second)
		Reconcile(ctx, r, late)
		Expect(Get(ctx, e, late).Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunSucceeded)))
	})
})
