package statuslimit

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAChangeBeyondTheBudgetWaitsOnce(t *testing.T) {
	g := NewWithT(t)
	p, b := New(), NewBudget()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}}
	spend := func() {
		for b.Gather(p, ctrl.Request{NamespacedName: client.ObjectKey{Name: "other"}}, at) == 0 {
		}
	}
	wait, _ := p.Decide(req, time.Second, at)
	g.Expect(wait.After).To(Equal(time.Second), "an earlier change")
	spend()
	wait, _ = p.Decide(req, b.Gather(p, req, at), at)
	g.Expect(wait.After).To(Equal(beyondBudget), "the earlier change waits as long")
	at = at.Add(4 * time.Second)
	spend()
	wait, _ = p.Decide(req, b.Gather(p, req, at), at)
	g.Expect(wait.After).To(Equal(beyondBudget-4*time.Second), "it is not put off again")
	at = at.Add(time.Second)
	wait, write := p.Decide(req, b.Gather(p, req, at), at)
	g.Expect(write).To(BeTrue(), "there is room again: %v", wait)
	p.Done(req)
	spend()
	wait, _ = p.Decide(req, b.Gather(p, req, at), at)
	g.Expect(wait.After).To(Equal(beyondBudget), "the next change waits anew")
}

func TestChangesBeyondASpreadBudgetWaitForDifferentTimes(t *testing.T) {
	g := NewWithT(t)
	p, b := New(), NewSpreadBudget()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var atOnceAll int
	seconds := map[int]int{} // how many wait for so many seconds
	wait := func(n int) time.Duration {
		req := ctrl.Request{NamespacedName: client.ObjectKey{Name: fmt.Sprint(n)}}
		w, write := p.Decide(req, b.Gather(p, req, at), at)
		if write {
			return 0
		}
		return w.After
	}
	for n := range 5000 {
		w := wait(n)
		if w == 0 {
			atOnceAll++
			continue
		}
		g.Expect(w).To(BeNumerically("<=", spreadOver))
		g.Expect(wait(n)).To(Equal(w), "it is not put off again")
		seconds[int(w/time.Second)]++
	}
	g.Expect(atOnceAll).To(Equal(atOnce))
	for s, n := range seconds { // about 163 each
		g.Expect(n).To(BeNumerically("<", 300), "in second %d", s)
	}
}
