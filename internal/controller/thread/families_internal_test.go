package thread

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

// subagentsOf returns Subagents of the Thread with the UID "uid", each newer than the one before, of which every second one has completed.
func subagentsOf(n int) []skeinv1.Subagent {
	all := make([]skeinv1.Subagent, n)
	for i := range all {
		s := &all[i]
		s.Name, s.CreationTimestamp = fmt.Sprintf("s-%05d", i), metav1.NewTime(time.Unix(int64(i), 0))
		s.OwnerReferences = []metav1.OwnerReference{objects.ThreadOwner("parent", "uid")}
		s.Spec.Title, s.Spec.Description = strings.Repeat("t", 500), strings.Repeat("d", 4096)
		if i%2 == 0 {
			complete(s)
		}
	}
	return all
}

func complete(s *skeinv1.Subagent) {
	s.Status.Entry = &skeinv1.ChildStatus{Reference: s.Name, Status: kube.ChildCompleted}
}

func TestFewChildrenAreListedAgainWhenTheyChange(t *testing.T) {
	g := NewWithT(t)
	var m families
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: "parent"}}
	few := subagentsOf(3)
	listed := func() bool { return m.begin(req, "uid") == nil }
	g.Expect(listed()).To(BeTrue(), "changes are not watched")
	m.watch()
	g.Expect(listed()).To(BeTrue())
	m.record(change{subagent: &few[0]}, req) // while it lists
	g.Expect(m.end(req, "uid", few).count).To(BeEquivalentTo(3))
	g.Expect(listed()).To(BeTrue(), "it may have missed the change")
	m.end(req, "uid", few)
	f := m.begin(req, "uid")
	g.Expect(f).NotTo(BeNil(), "nothing has changed")
	g.Expect(f.count).To(BeEquivalentTo(3))
	m.record(change{subagent: &few[0]}, req)
	g.Expect(listed()).To(BeTrue())
	m.end(req, "uid", few)
	g.Expect(m.begin(req, "another")).To(BeNil(), "a Thread that has the name now")
	m.recordFailure(req)
	g.Expect(listed()).To(BeTrue(), "the list failed")
}

// A parent of 10,000 children has a status of bounded size. They are listed once, and no later change lists them again.
func TestTenThousandChildren(t *testing.T) {
	g := NewWithT(t)
	const children = 10_000
	subagents := subagentsOf(children)
	var m families
	m.watch()
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: "parent"}}
	g.Expect(m.begin(req, "uid")).To(BeNil())
	f := m.end(req, "uid", subagents)
	g.Expect(f.count).To(BeEquivalentTo(children))
	g.Expect(f.counts).To(HaveValue(Equal(skeinv1.ChildCounts{Pending: children / 2, Completed: children / 2})))
	g.Expect(len(f.children)).To(And(BeNumerically(">", 0), BeNumerically("<=", skeinv1.MaxStatusChildren)))
	g.Expect(f.children).To(HaveEach(HaveField("Status", kube.ChildPending)))
	g.Expect(f.children[0].Reference).To(Equal("s-09999"))
	size, err := json.Marshal(f.children)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(size)).To(BeNumerically("<=", skeinv1.MaxStatusChildrenBytes+skeinv1.MaxStatusChildren))

	for i := range subagents {
		if i%2 == 1 {
			complete(&subagents[i])
			m.record(change{subagent: &subagents[i]}, req)
		}
		if i%1000 == 1 {
			now := m.begin(req, "uid")
			g.Expect(now).NotTo(BeNil(), "they are not listed again")
			g.Expect(now.counts.Completed).To(BeEquivalentTo(children/2 + i/2 + 1))
		}
	}
	f = *m.begin(req, "uid")
	g.Expect(f.count).To(BeEquivalentTo(children))
	g.Expect(f.counts).To(HaveValue(Equal(skeinv1.ChildCounts{Completed: children})))
	g.Expect(f.children).To(HaveEach(HaveField("Status", kube.ChildCompleted)))
	g.Expect(f.children[0].Reference).To(Equal("s-09999"))
}

// Changes that are told while the Subagents are listed, and after, give what a new list gives.
func TestManyChildrenAreFollowed(t *testing.T) {
	g := NewWithT(t)
	r := rand.New(rand.NewPCG(1, 2))
	req := ctrl.Request{NamespacedName: client.ObjectKey{Name: "parent"}}
	for range 20 {
		all := subagentsOf(2 * fewChildren)
		var m families
		m.watch()
		there := map[string]*skeinv1.Subagent{}
		present := func() (list []skeinv1.Subagent) {
			for _, s := range there {
				list = append(list, *s)
			}
			return list
		}
		for i := range all {
			there[all[i].Name] = &all[i]
		}
		alter := func() {
			s := all[r.IntN(len(all))].DeepCopy()
			c := change{subagent: s}
			switch r.IntN(5) {
			case 0:
				c.gone = true
			case 1:
				s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			case 2:
				s.OwnerReferences = nil
			case 3:
				s.Status.Entry = &skeinv1.ChildStatus{Reference: s.Name, Status: []string{kube.ChildFailed, "thinks"}[r.IntN(2)]}
			}
			if there[s.Name] = s; c.gone {
				delete(there, s.Name)
			}
			m.record(c, req)
		}
		g.Expect(m.begin(req, "uid")).To(BeNil())
		before := present()
		for range 20 {
			alter()
		}
		after := present()
		m.end(req, "uid", [][]skeinv1.Subagent{before, after}[r.IntN(2)])
		for range 40 {
			alter()
			g.Expect(m.begin(req, "uid")).To(HaveValue(Equal(membersOf(present(), "uid").family())))
		}
	}
}
