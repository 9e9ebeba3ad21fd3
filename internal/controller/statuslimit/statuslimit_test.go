package statuslimit

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestPacer(t *testing.T) {
	g := NewWithT(t)
	p := New()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}}

	wait, write := p.Decide(req, 10*time.Second, at)
	g.Expect(write).To(BeFalse())
	g.Expect(wait).To(Equal(Wait{After: 10 * time.Second}))
	at = at.Add(4 * time.Second)
	wait, _ = p.Decide(req, 10*time.Second, at)
	g.Expect(wait.After).To(Equal(6*time.Second), "counted from the first change")
	wait, _ = p.Decide(req, time.Second, at)
	g.Expect(wait.After).To(Equal(time.Second), "one that is more urgent comes first")
	_, write = p.Decide(req, 0, at)
	g.Expect(write).To(BeTrue())
	p.Done(req)
	_, write = p.Decide(req, 0, at)
	g.Expect(write).To(BeTrue(), "the burst")
	wait, write = p.Decide(req, 0, at)
	g.Expect(write).To(BeFalse())
	g.Expect(wait).To(Equal(Wait{After: time.Second, Throttled: true}))
	_, write = p.Decide(req, 0, at.Add(time.Second))
	g.Expect(write).To(BeTrue())
}

func TestPacerForgetsWhatRests(t *testing.T) {
	g := NewWithT(t)
	p := New()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 100_000 {
		req := ctrl.Request{NamespacedName: client.ObjectKey{Name: fmt.Sprint(i)}}
		_, write := p.Decide(req, 0, at)
		g.Expect(write).To(BeTrue())
		p.Done(req)
		at = at.Add(time.Second)
	}
	g.Expect(len(p.objects)).To(BeNumerically("<=", sweepAt+1))
}
