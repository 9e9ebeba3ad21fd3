package engine_test

import (
	"context"
	"fmt"
	"maps"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// tally is a store that counts how often it is asked, and how many changes are made at the same time.
type tally struct {
	store.Store
	mu         sync.Mutex
	calls      map[string]int
	under, max int
}

func (t *tally) count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[what]++
}

// reset returns what was counted since the last time.
func (t *tally) reset() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := maps.Clone(t.calls)
	t.calls = map[string]int{}
	return was
}

func (t *tally) Thread(ctx context.Context, id string) (*store.Thread, error) {
	t.count("threads")
	return t.Store.Thread(ctx, id)
}

func (t *tally) Run(ctx context.Context, threadID, runID string) (*store.Run, error) {
	t.count("runs")
	return t.Store.Run(ctx, threadID, runID)
}

func (t *tally) Children(ctx context.Context, id string) ([]store.Thread, error) {
	t.count("whole lists")
	return t.Store.Children(ctx, id)
}

func (t *tally) UnfinishedChildren(ctx context.Context, id string) ([]string, error) {
	t.count("lists of ids")
	return t.Store.UnfinishedChildren(ctx, id)
}

func (t *tally) UnfinishedBelow(ctx context.Context, id string) ([]string, error) {
	t.count("lists of ids")
	return t.Store.UnfinishedBelow(ctx, id)
}

func (t *tally) Apply(ctx context.Context, id string, f *store.Fence, ops ...store.Op) error {
	t.mu.Lock()
	t.calls["changes"]++
	t.under++
	t.max = max(t.max, t.under)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.under--
	}()
	return t.Store.Apply(ctx, id, f, ops...)
}

var _ = Describe("The termination of a parent of 10,000 children", Label("SUB-08"), func() {
	It("costs each child the same, takes few of them at once, and a repeat costs nothing for those that have ended", func(ctx SpecContext) {
		const children = 10_000
		w := newWorld()
		counted := &tally{Store: w.Store, calls: map[string]int{}}
		e, _ := start(w, func(o *engine.Options) { o.Threads, o.SweepInterval = w.Over(counted), hour })
		parent := makeThread(ctx, w, "agent")
		var makers errgroup.Group
		makers.SetLimit(64) // they share commits
		for i := range children {
			makers.Go(func() error {
				_, _, err := w.Threads.Create(ctx, thread.NewThread{Thread: store.Thread{
					ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Namespace: enginetest.Namespace, Name: fmt.Sprint("child-", i), Agent: "agent", ParentID: parent, Reference: fmt.Sprint("child-", i),
					RegistryStatus: "pending", Child: &store.Child{Name: "helper", Resumable: true},
				}})
				return err
			})
		}
		Expect(makers.Wait()).To(Succeed())
		Expect(w.Store.UnfinishedChildren(ctx, parent)).To(HaveLen(children))

		counted.reset()
		Expect(e.Terminate(ctx, parent, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		Expect(w.Store.UnfinishedChildren(ctx, parent)).To(BeEmpty())
		cost := counted.reset()
		AddReportEntry("asked of the store", fmt.Sprint(cost))
		Expect(cost["changes"]).To(Equal(children+1), "one for each")
		Expect(cost["lists of ids"]).To(Equal(children+1), "each is asked for children of its own")
		Expect(cost["whole lists"]).To(BeZero())
		Expect(cost["threads"]).To(BeNumerically("<=", 3*(children+1)))
		Expect(cost["runs"]).To(BeNumerically("<=", 3*(children+1)))
		Expect(counted.max).To(And(BeNumerically(">", 1), BeNumerically("<=", 33)))

		Expect(e.Terminate(ctx, parent, skeinv1.ReasonTerminatedByRequest)).To(Succeed())
		for what, n := range counted.reset() {
			Expect(n).To(BeNumerically("<=", 3), what)
		}
	}, SpecTimeout(patience*4))
})
