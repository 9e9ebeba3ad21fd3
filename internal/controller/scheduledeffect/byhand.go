package scheduledeffect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// maxBackfill bounds how many due times one backfill fires.
const maxBackfill = 1000

// byHand records the firings that a person asked for with an annotation (EFF-08), and then removes the annotation. The key of
// each firing is the time that the annotation names, so that a crash in between records nothing twice.
func (r *Reconciler) byHand(ctx context.Context, d *schedule) (bool, error) {
	run, backfill := d.object.Annotations[skeinv1.AnnotationRunAt], d.object.Annotations[skeinv1.AnnotationBackfill]
	if run == "" && backfill == "" {
		return false, nil
	}
	var wrong []string
	if run != "" {
		at, err := time.Parse(time.RFC3339Nano, run)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("annotation %s: write the present time such as 2027-01-31T09:00:00Z", skeinv1.AnnotationRunAt))
		} else if err := r.recordByHand(ctx, d, store.OriginManual, at); err != nil {
			return true, err
		}
	}
	if backfill != "" {
		times, err := d.backfill(backfill)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("annotation %s: %v", skeinv1.AnnotationBackfill, err))
		} else if err := r.recordByHand(ctx, d, store.OriginBackfill, times...); err != nil {
			return true, err
		}
	}
	before := d.object.DeepCopy()
	delete(d.object.Annotations, skeinv1.AnnotationRunAt)
	delete(d.object.Annotations, skeinv1.AnnotationBackfill)
	if err := r.Client.Patch(ctx, d.object, client.MergeFrom(before)); err != nil {
		return true, fmt.Errorf("remove an annotation: %w", err)
	}
	for _, text := range wrong {
		r.tell(d.object, "InvalidRequest", text)
	}
	d.again = true
	return false, nil
}

// backfill returns the due times of a range, FROM/UNTIL.
func (d *schedule) backfill(text string) ([]time.Time, error) {
	from, until, _ := strings.Cut(text, "/")
	a, err1 := time.Parse(time.RFC3339, from)
	b, err2 := time.Parse(time.RFC3339, until)
	if err1 != nil || err2 != nil || b.Before(a) {
		return nil, fmt.Errorf("write the first and the last time with a slash between them, such as 2027-01-01T00:00:00Z/2027-01-31T00:00:00Z")
	}
	if len(d.object.Spec.Schedules) == 0 {
		return nil, fmt.Errorf("only schedules can be backfilled")
	}
	if b.After(d.at) {
		b = d.at
	}
	passed := d.plan.Since(a.Add(-time.Nanosecond), b, maxBackfill)
	if passed.Older > 0 {
		return nil, fmt.Errorf("the range has %d due times: choose one with at most %d", passed.Older+len(passed.Newest), maxBackfill)
	}
	return passed.Newest, nil
}

func (r *Reconciler) recordByHand(ctx context.Context, d *schedule, origin store.FiringOrigin, times ...time.Time) error {
	for _, at := range times {
		for _, t := range d.threads {
			f := d.newFiring(at.Truncate(time.Microsecond), origin, t)
			recorded, err := r.Store.RecordFiring(ctx, f)
			if err != nil {
				return fmt.Errorf("record a firing by hand: %w", err)
			}
			if recorded {
				r.Engine.WakeEffects()
			}
		}
	}
	return nil
}
