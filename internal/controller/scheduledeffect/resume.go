package scheduledeffect

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// asksToResume reports whether a person asked a schedule that is paused after failures to go on.
func asksToResume(o *skeinv1.ScheduledEffect) bool {
	return o.Annotations[skeinv1.AnnotationResume] != "" && len(o.Spec.Schedules) > 0
}

// resume counts the failures in a row from 0 again when a person asked for it. What has passed until now is still recorded as paused, if its
// record has begun.
func (b *batch) resume() {
	if asksToResume(b.object) {
		b.record.ResetFailures, b.now.Failures = true, 0
	}
}

// removeResumeRequest removes the request to go on, which is recorded. After a crash in between, the failures are counted from 0 once more.
func (r *Reconciler) removeResumeRequest(ctx context.Context, d *schedule) error {
	if !asksToResume(d.object) {
		return nil
	}
	before := d.object.DeepCopy()
	delete(d.object.Annotations, skeinv1.AnnotationResume)
	// The optimistic lock keeps a request that was made meanwhile.
	if err := r.Client.Patch(ctx, d.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("remove an annotation: %w", err)
	}
	d.again = true
	return nil
}
