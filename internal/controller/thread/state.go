package thread

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
)

// computeState sets whether the thread's state could be saved (STA-05). A thread whose state always fitted has no
// such condition.
func (r *Reconciler) computeState(ctx context.Context, s *scope, at time.Time) error {
	if s.row == nil {
		return nil
	}
	warnings, err := r.Threads.Store().StateWarnings(ctx, s.row.ID)
	if err != nil {
		return fmt.Errorf("read the warnings about unsaved state: %w", err)
	}
	status := &s.object.Status
	w := conditions.Writer{List: &status.Conditions, Generation: s.object.Generation, Now: at}
	if len(warnings) == 0 {
		if meta.FindStatusCondition(status.Conditions, skeinv1.ConditionStatePersisted) != nil {
			w.Set(skeinv1.ConditionStatePersisted, metav1.ConditionTrue, skeinv1.ReasonStateSaved, "")
		}
		return nil
	}
	var messages []string
	for _, one := range warnings {
		messages = append(messages, one.Message)
	}
	w.Set(skeinv1.ConditionStatePersisted, metav1.ConditionFalse, skeinv1.ReasonStateTooLarge, strings.Join(messages, "; "))
	return nil
}
