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

func TestNothingWaitsForEverBehindRequestsThatPass(t *testing.T) {
	for _, c := range []struct{ priority, others, passers int }{
		{NormalPriority, 0, passersOfNormal},
		{NormalPriority, 9, passersOfNormal},
		{DependentPriority, 0, passersOfDependent},
		{DependentPriority, 9, passersOfDependent},
	} {
		g := NewWithT(t)
		q := queueOf(t, 1)
		flood := func(n int) {
			addTo(q, ChangedPriority, requestOf("flood", 2*n), requestOf("flood", 2*n+1))
		}
		for n := range c.others { // which came earlier
			addTo(q, c.priority, requestOf("new", n))
		}
		ours := requestOf("new", 1000)
		addTo(q, c.priority, ours)
		before, priority := passersBefore(q, flood, ours)
		g.Expect(before).To(Equal((c.others+1)*c.passers+c.others), "%+v", c)
		g.Expect(priority).To(Equal(c.priority), "it is tried again, if it must be, with the priority that it had")
		q.ShutDown()
	}
}

// Of a namespace that creates many objects only one comes before the first of another one.
func TestNamespacesTakeTurnsInBeingPassed(t *testing.T) {
	g := NewWithT(t)
	q := queueOf(t, 1)
	defer q.ShutDown()
	for n := range 1000 {
		q.Add(requestOf("many", n))
	}
	ours := requestOf("few", 0)
	q.Add(ours)
	before, _ := passersBefore(q, func(n int) { addTo(q, ChangedPriority, requestOf("flood", 2*n), requestOf("flood", 2*n+1)) }, ours)
	g.Expect(before).To(Equal(2*passersOfNormal + 1))
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
	g.Expect(begun).To(BeNumerically("<=", passersOfNormal+1))
}

// Requests that are to be looked at later have their turn from then on.
func TestTurnsComeToWhatIsReady(t *testing.T) {
	g := NewWithT(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	turns := newTurns()
	turns.add(requestOf("a", 1), NormalPriority, at.Add(time.Minute))
	turns.add(requestOf("a", 2), NormalPriority, at.Add(time.Second))
	turns.add(requestOf("a", 3), MissedPriority, at)
	pass := func(at time.Time) (next []string) {
		for range passersOfNormal {
			came, _ := turns.begin(requestOf("flood", 0), ChangedPriority, at)
			for _, r := range came {
				next = append(next, r.Name)
			}
		}
		return next
	}
	g.Expect(pass(at)).To(BeEmpty())
	g.Expect(pass(at.Add(time.Second))).To(Equal([]string{"2"}))
	g.Expect(pass(at.Add(time.Second))).To(BeEmpty(), "it had its turn, although it has not begun")
	turns.add(requestOf("a", 1), DependentPriority, at)
	g.Expect(pass(at.Add(time.Second))).To(Equal([]string{"1"}), "the earlier time counts")
	for n := 1; n <= 2; n++ {
		_, priority := turns.begin(requestOf("a", n), promotedPriority, at)
		g.Expect(priority).To(Equal(NormalPriority))
	}
	g.Expect(turns.waits).To(BeEmpty(), "what has begun is forgotten")
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
