package subagent

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// A Subagent is looked at when its child changes or goes, and when a Thread comes that it waits for, but not for a child that it has just made.
// A child that was made earlier may come late into the cache of a new leader, whose status of the Subagent says by then that the child was deleted.
func TestChildrenThatAreMadeAreNotLookedAtTwice(t *testing.T) {
	g := NewWithT(t)
	update := func(after skeinv1.ThreadStatus) event.UpdateEvent {
		return event.UpdateEvent{ObjectOld: &skeinv1.Thread{}, ObjectNew: &skeinv1.Thread{Status: after}}
	}
	made, gone := event.CreateEvent{Object: &skeinv1.Thread{}}, event.DeleteEvent{Object: &skeinv1.Thread{}}
	g.Expect(childTurned().Create(made)).To(BeFalse())
	ready := []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionTrue}}
	for _, earlier := range []skeinv1.ThreadStatus{{ThreadID: "t"}, {Conditions: ready}} {
		g.Expect(childTurned().Create(event.CreateEvent{Object: &skeinv1.Thread{Status: earlier}})).To(BeTrue())
	}
	g.Expect(childTurned().Update(update(skeinv1.ThreadStatus{TerminatedAt: 1}))).To(BeTrue())
	g.Expect(childTurned().Update(update(skeinv1.ThreadStatus{Messages: 1}))).To(BeFalse())
	g.Expect(childTurned().Delete(gone)).To(BeTrue())
	g.Expect(threadTurned().Create(made)).To(BeTrue())
}
