package thread

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/controllertest"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// Each reconcile of a parent computes the whole status after any change of a child.
func TestParentsGatherWhatTheirChildrenChange(t *testing.T) {
	g := NewWithT(t)
	parent := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "parent"}}
	s := &skeinv1.Subagent{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "1", OwnerReferences: []metav1.OwnerReference{objects.ThreadOwner("parent", "uid")}}}
	s.Spec.ParentRef.Name = "parent"
	changed := func(edit func(*skeinv1.Subagent)) event.UpdateEvent {
		after := s.DeepCopy()
		edit(after)
		return event.UpdateEvent{ObjectOld: s, ObjectNew: after}
	}
	enqueued := func(handle func(q *controllertest.Queue)) map[ctrl.Request]time.Duration {
		q := controllertest.NewQueue()
		handle(q)
		return q.Due
	}
	gathered, now := map[ctrl.Request]time.Duration{parent: gatherFamily}, map[ctrl.Request]time.Duration{parent: 0}
	h := parents()
	g.Expect(enqueued(func(q *controllertest.Queue) { h.Create(t.Context(), event.CreateEvent{Object: s}, q) })).To(Equal(gathered))
	g.Expect(enqueued(func(q *controllertest.Queue) { h.Delete(t.Context(), event.DeleteEvent{Object: s}, q) })).To(Equal(now))
	for _, c := range []struct {
		edit func(*skeinv1.Subagent)
		want map[ctrl.Request]time.Duration
	}{
		{complete, gathered},
		{func(s *skeinv1.Subagent) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, now},
		{func(s *skeinv1.Subagent) { s.OwnerReferences = nil }, now},
		{func(s *skeinv1.Subagent) { s.UID = "2" }, now},
	} {
		g.Expect(enqueued(func(q *controllertest.Queue) { h.Update(t.Context(), changed(c.edit), q) })).To(Equal(c.want))
	}
}
