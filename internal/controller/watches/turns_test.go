package watches

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func addTo(q priorityqueue.PriorityQueue[ctrl.Request], priority int, requests ...ctrl.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, requests...)
}

// begun takes the next request from a queue of one worker, and has it done.
func begun(q priorityqueue.PriorityQueue[ctrl.Request]) (r ctrl.Request, priority int) {
	r, priority, _ = q.GetWithPriority()
	q.Done(r)
	return r, priority
}

func TestWhatHasChangedPassesWhatIsNewAndWhatDependsOnOthers(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 1)
	defer q.ShutDown()
	addTo(q, MissedPriority, requestOf("a", 0))
	addTo(q, DependentPriority, requestOf("a", 1))
	q.Add(requestOf("a", 2))
	addTo(q, ChangedPriority, requestOf("a", 3))
	addTo(q, 100, requestOf("a", 4))
	for n := 4; n >= 0; n-- {
		r, _ := begun(q)
		g.Expect(r).To(Equal(requestOf("a", n)))
	}
}

// passersBefore has a queue of one worker begin requests until it has begun ours, and returns how many came before. Each time flood adds
// more that pass.
func passersBefore(q priorityqueue.PriorityQueue[ctrl.Request], flood func(n int), ours ctrl.Request) (before, priority int) {
	for n := 0; n < 100_000; n++ {
		flood(n)
		r, priority := begun(q)
		if r == ours {
			return n, priority
		}
	}
	return -1, 0
}

func TestNewObjectsDoNotWaitForEver(t *testing.T) {
	for _, others := range []int{0, 9} {
		g := NewWithT(t)
		q := queueOf(t, 1)
		flood := func(n int) {
			addTo(q, ChangedPriority, requestOf("flood", 2*n), requestOf("flood", 2*n+1))
		}
		for n := range others { // which came earlier
			q.Add(requestOf("new", n))
		}
		ours := requestOf("new", 1000)
		q.Add(ours)
		before, priority := passersBefore(q, flood, ours)
		g.Expect(before).To(Equal((others+1)*passers+others), "%d others", others)
		g.Expect(priority).To(Equal(NormalPriority), "it is tried again, if it must be, with the priority that it had")
		turns := &q.(*sharedQueue).turns
		g.Expect(turns.order.Len()).To(BeZero())
		g.Expect(turns.waits).To(BeEmpty())
		g.Expect(turns.had).To(BeEmpty())
		q.ShutDown()
	}
}

// What has changed since it was new passes others by itself, and takes no turn from them.
func TestTurnsAreForWhatIsPassed(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 1)
	defer q.ShutDown()
	for n := range 3 {
		q.Add(requestOf("a", n))
	}
	addTo(q, ChangedPriority, requestOf("a", 0), requestOf("a", 1))
	for n := range passers {
		addTo(q, ChangedPriority, requestOf("flood", n))
	}
	var names []string
	for q.Len() > 0 {
		r, _ := begun(q)
		names = append(names, r.String())
	}
	g.Expect(names).To(Equal([]string{"a/0", "a/1", "flood/0", "flood/1", "a/2", "flood/2", "flood/3"}))
}

// What is set aside and begins by another way is not begun again.
func TestWhatIsAddedAnewIsNoLongerSetAside(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 2) // one for a namespace while another waits
	defer q.ShutDown()
	shared := q.(*sharedQueue)
	shared.all, shared.busy["a"] = 1, 1
	_, began := shared.begin(requestOf("a", 1), NormalPriority)
	g.Expect(began).To(BeFalse())
	_, began = shared.begin(requestOf("a", 2), MissedPriority)
	g.Expect(began).To(BeFalse())
	shared.all, shared.busy["a"] = 0, 0
	for n := 1; n <= 2; n++ {
		_, began = shared.begin(requestOf("a", n), ChangedPriority)
		g.Expect(began).To(BeTrue())
		shared.all, shared.busy["a"] = 0, 0
	}
	g.Expect(shared.aside).To(BeEmpty())
	g.Expect(shared.owed).To(BeEmpty())
}

// Requests that pass come from the same namespace, which has its share of the workers all the time, so all that comes is set aside.
func TestNothingThatIsSetAsideWaitsForEver(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 4) // three for one namespace
	defer q.ShutDown()
	shared := q.(*sharedQueue)
	var under []ctrl.Request
	for n := range 3 {
		addTo(q, ChangedPriority, requestOf("flood", n))
		r, _ := q.Get()
		under = append(under, r)
	}
	took := make(chan ctrl.Request)
	go func() { // the fourth worker sets aside what the namespace may not begin
		for {
			r, shutdown := q.Get()
			if shutdown {
				return
			}
			took <- r
		}
	}()
	isAside := func(r ctrl.Request) bool {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		a := shared.aside["flood"]
		if a == nil {
			return false
		}
		_, there := a.priorities[r]
		return there
	}
	next := 3
	add := func() {
		r := requestOf("flood", next)
		next++
		addTo(q, ChangedPriority, r)
		g.Eventually(func() bool { return isAside(r) }, time.Minute).Should(BeTrue())
	}
	for range 50 {
		add()
	}
	ours := requestOf("flood", 1_000_000)
	q.Add(ours)
	g.Eventually(func() bool { return isAside(ours) }, time.Minute).Should(BeTrue())
	begun := 0
	for ; begun < 100 && !slices.Contains(under, ours); begun++ {
		add()
		q.Done(under[0])
		var r2 ctrl.Request
		g.Eventually(took, time.Minute).Should(Receive(&r2))
		under = append(under[1:], r2)
	}
	g.Expect(begun).To(BeNumerically("<=", passers+1))
}

// The API server's first list comes last, also through a handler of dependents, whose other requests come after those for new objects.
func TestDependentsComeAfterNewObjects(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 1)
	defer q.ShutDown()
	h := Dependents(handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: "of-" + o.GetName()}}}
	}))
	object := func(name string) client.Object {
		a := &skeinv1.Agent{}
		a.Name, a.ResourceVersion = name, name
		return a
	}
	h.Create(t.Context(), event.CreateEvent{Object: object("listed"), IsInInitialList: true}, q)
	h.Create(t.Context(), event.CreateEvent{Object: object("created")}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("old"), ObjectNew: object("new")}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: object("deleted")}, q)
	h.Generic(t.Context(), event.GenericEvent{Object: object("other")}, q)
	q.Add(requestOf("", 0))
	var names []string
	for q.Len() > 0 {
		r, priority := begun(q)
		names = append(names, fmt.Sprint(r.Name, " ", priority))
	}
	g.Expect(strings.Join(names, ", ")).To(Equal("0 0, of-created -50, of-old -50, of-new -50, of-deleted -50, of-other -50, of-listed -100"))
}
