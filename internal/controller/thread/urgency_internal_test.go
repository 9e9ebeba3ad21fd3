package thread

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func TestTheEndOfTheLastChildIsShownAtOnce(t *testing.T) {
	status := func(counts *skeinv1.ChildCounts, executing metav1.ConditionStatus) *skeinv1.ThreadStatus {
		return &skeinv1.ThreadStatus{
			Phase: phaseIdle, LastRun: &skeinv1.RunStatus{ID: "sess_1"}, ChildCounts: counts,
			Conditions: []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionTrue}, {Type: skeinv1.ConditionExecuting, Status: executing}},
		}
	}
	for name, c := range map[string]struct {
		before, after *skeinv1.ChildCounts
		executing     metav1.ConditionStatus
		want          urgency
	}{
		"the last of several":            {&skeinv1.ChildCounts{Running: 1, Completed: 2}, &skeinv1.ChildCounts{Completed: 3}, metav1.ConditionFalse, now},
		"the only one, not shown before": {nil, &skeinv1.ChildCounts{Failed: 1}, metav1.ConditionFalse, now},
		"others work":                    {&skeinv1.ChildCounts{Running: 2}, &skeinv1.ChildCounts{Running: 1, Completed: 1}, metav1.ConditionFalse, familial},
		"others have not begun":          {&skeinv1.ChildCounts{Pending: 2}, &skeinv1.ChildCounts{Pending: 1, Completed: 1}, metav1.ConditionFalse, familial},
		"the parent works":               {&skeinv1.ChildCounts{Running: 1}, &skeinv1.ChildCounts{Completed: 1}, metav1.ConditionTrue, soft},
		"they are removed":               {&skeinv1.ChildCounts{Completed: 1}, nil, metav1.ConditionFalse, familial},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(classify(status(c.before, c.executing), status(c.after, c.executing))).To(Equal(c.want))
		})
	}
}
