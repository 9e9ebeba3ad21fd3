package thread

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestFamiliesAreListedAgainWhenTheyChange(t *testing.T) {
	g := NewWithT(t)
	var m families
	req, at := ctrl.Request{NamespacedName: client.ObjectKey{Name: "a"}}, time.Now()
	begin := func() (listed bool, count int32, wait time.Duration) {
		f, wait := m.begin(req, at)
		if f == nil {
			return true, 0, wait
		}
		return false, f.count, wait
	}
	listed, _, _ := begin()
	g.Expect(listed).To(BeTrue(), "nobody watches")
	m.watch()
	listed, _, _ = begin()
	g.Expect(listed).To(BeTrue())
	m.mark(req) // while it lists
	m.end(req, family{count: 3}, false)
	listed, _, _ = begin()
	g.Expect(listed).To(BeTrue(), "it may have missed the change")
	m.end(req, family{count: 3}, false)
	listed, count, _ := begin()
	g.Expect(listed).To(BeFalse())
	g.Expect(count).To(BeEquivalentTo(3))
	m.mark(req)
	listed, _, _ = begin()
	g.Expect(listed).To(BeTrue(), "few children are listed at once")
	m.end(req, family{count: fewChildren + 1}, false)
	m.mark(req)
	at = at.Add(listAfter / 4)
	listed, count, wait := begin()
	g.Expect(listed).To(BeFalse(), "many are not")
	g.Expect(count).To(BeEquivalentTo(fewChildren + 1))
	g.Expect(wait).To(Equal(listAfter - listAfter/4))
	at = at.Add(wait)
	listed, _, _ = begin()
	g.Expect(listed).To(BeTrue())
	m.end(req, family{}, true)
	listed, _, _ = begin()
	g.Expect(listed).To(BeTrue(), "the list failed")
}
