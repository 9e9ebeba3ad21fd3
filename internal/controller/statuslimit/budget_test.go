package statuslimit

import (
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
