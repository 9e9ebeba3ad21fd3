package thread

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/objects"
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

// A parent of 10,000 children has a status of bounded size, and their changes within a second cost one list of them.
func TestTenThousandChildren(t *testing.T) {
	g := NewWithT(t)
	const children = 10_000
	subagents := make([]skeinv1.Subagent, children)
	for i := range subagents {
		s := &subagents[i]
		s.Name, s.CreationTimestamp = fmt.Sprintf("s-%05d", i), metav1.NewTime(time.Unix(int64(i), 0))
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", "uid")}
		s.Spec.Title, s.Spec.Description = strings.Repeat("t", 500), strings.Repeat("d", 4096)
		if i%2 == 0 {
			s.Status.Entry = &skeinv1.ChildStatus{Reference: s.Name, Status: kube.ChildCompleted}
		}
	}
	f := summarise(subagents, "uid")
	g.Expect(f.count).To(BeEquivalentTo(children))
	g.Expect(f.counts).To(HaveValue(Equal(skeinv1.ChildCounts{Pending: children / 2, Completed: children / 2})))
	g.Expect(len(f.children)).To(And(BeNumerically(">", 0), BeNumerically("<=", skeinv1.MaxStatusChildren)))
	g.Expect(f.children).To(HaveEach(HaveField("Status", kube.ChildPending)))
	g.Expect(f.children[0].Reference).To(Equal("s-09999"))
	size, err := json.Marshal(f.children)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(size)).To(BeNumerically("<=", skeinv1.MaxStatusChildrenBytes+skeinv1.MaxStatusChildren))

	var m families
	m.watch()
	req, at := ctrl.Request{NamespacedName: client.ObjectKey{Name: "parent"}}, time.Now()
	lists := 0
	for i := range children {
		at = at.Add(listAfter / children)
		m.mark(req)
		if known, wait := m.begin(req, at); known == nil {
			lists++
			m.end(req, f, false)
		} else if i > 0 {
			g.Expect(wait).To(BeNumerically(">", 0), "it is out of date, and listed again later")
		}
	}
	g.Expect(lists).To(Equal(1))
}
