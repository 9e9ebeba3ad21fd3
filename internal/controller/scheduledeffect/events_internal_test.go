package scheduledeffect

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func TestUpdatesOfTheThreadOfAFiring(t *testing.T) {
	is := func(status metav1.ConditionStatus, message string, runs ...skeinv1.RunOutcome) *skeinv1.Thread {
		o := &skeinv1.Thread{}
		if status != "" {
			o.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: status, Message: message}}
		}
		for _, outcome := range runs {
			o.Status.LastRun = &skeinv1.RunStatus{Outcome: outcome}
		}
		return o
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	ended := is(yes, "")
	ended.Status.TerminatedAt = 1
	for name, c := range map[string]struct {
		before, after *skeinv1.Thread
		want          bool
	}{
		"it becomes ready at once":      {is("", ""), is(yes, ""), false},
		"its run begins":                {is(yes, ""), is(yes, "", ""), false},
		"its run ends":                  {is(yes, "", ""), is(yes, "", skeinv1.RunFailed), true},
		"it is terminated":              {is(yes, ""), ended, true},
		"it is not ready":               {is("", ""), is(no, "a"), true},
		"it is not ready any more":      {is(yes, ""), is(no, "a"), true},
		"it waits for something else":   {is(no, "a"), is(no, "b"), true},
		"it still waits for the same":   {is(no, "a"), is(no, "a"), false},
		"it becomes ready":              {is(no, "a"), is(yes, ""), true},
		"it becomes ready and runs":     {is(no, "a"), is(yes, "", ""), true},
		"it is not ready while it runs": {is(yes, "", ""), is(no, "a", ""), false},
	} {
		if got := threadOfFiringTurned().Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
