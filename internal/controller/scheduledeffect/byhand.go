package scheduledeffect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// maxBackfill bounds how many due times one backfill fires.
	maxBackfill = 1000
	// oldestRequest is how old a request to fire now may be. The store remembers longer than that which ones were answered.
	oldestRequest = 24 * time.Hour
	// newestRequest is how far the clock of a person may be ahead.
	newestRequest = time.Hour
)

// asked reports whether a person asked for firings with an annotation.
func asked(o *skeinv1.ScheduledEffect) bool {
	return o.Annotations[skeinv1.AnnotationRunAt] != "" || o.Annotations[skeinv1.AnnotationBackfill] != ""
}

// byHand records the firings that a person asked for with an annotation (EFF-08), and then removes the annotation. Each request is answered
// once, and the store remembers which ones were, so that a crash in between, or a repeat, records nothing twice. The concurrency policy
// decides about firings by hand as about others.
func (r *Reconciler) byHand(ctx context.Context, d *schedule) (bool, error) {
	if !asked(d.object) {
		return false, nil
	}
	b := &batch{schedule: d, record: &store.DueRecord{Was: d.was}, at: d.at}
	wrong, err := r.runNow(ctx, b)
	if err != nil {
		return true, err
	}
	wrong = append(wrong, b.backfills()...)
	if len(b.record.Requests) > 0 || len(b.record.Firings) > 0 {
		if err := r.write(ctx, b); err != nil {
			return true, err
		}
		if stop, err := r.readFirings(ctx, d); stop || err != nil {
			return true, err
		}
	}
	before := d.object.DeepCopy()
	delete(d.object.Annotations, skeinv1.AnnotationRunAt)
	delete(d.object.Annotations, skeinv1.AnnotationBackfill)
	// The optimistic lock keeps a request that was added meanwhile.
	if err := r.Client.Patch(ctx, d.object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return true, fmt.Errorf("remove an annotation: %w", err)
	}
	for _, text := range wrong {
		r.tell(d.object, skeinv1.ReasonInvalidRequest, text)
	}
	d.again = true
	return false, nil
}

// request asks for one firing now.
type request struct {
	id string // two requests with the same id are the same
	at time.Time
}

// parseRequest reads TIME or TIME/KEY. Its error quotes the beginning of the text, because an Event has at most 1,024 bytes.
func parseRequest(text string) (q request, err error) {
	at, key, keyed := strings.Cut(strings.TrimSpace(text), "/")
	if q.at, err = time.Parse(time.RFC3339Nano, at); err != nil || (keyed && key == "") || len(key) > skeinv1.MaxRequestKey {
		return q, fmt.Errorf("%.80q: write the present time such as 2027-01-31T09:00:00Z, and a slash and a key of at most %d bytes after it if you want one", text, skeinv1.MaxRequestKey)
	}
	q.id = "at:" + q.at.UTC().Format(time.RFC3339Nano)
	if keyed {
		q.id = "key:" + key
	}
	return q, nil
}

// runNow adds a firing for each request to fire now that was not answered yet. It returns what is wrong with the others.
func (r *Reconciler) runNow(ctx context.Context, b *batch) (wrong []string, err error) {
	value := b.object.Annotations[skeinv1.AnnotationRunAt]
	if value == "" {
		return nil, nil
	}
	var all []request
	var ids []string
	for text := range strings.SplitSeq(value, ",") {
		q, err := parseRequest(text)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("annotation %s: %v", skeinv1.AnnotationRunAt, err))
		case q.at.Before(b.at.Add(-oldestRequest)), q.at.After(b.at.Add(newestRequest)):
			wrong = append(wrong, fmt.Sprintf("annotation %s: %s is not the present time, which it must be: it fires now", skeinv1.AnnotationRunAt, q.at.UTC().Format(time.RFC3339)))
		case !slices.Contains(ids, q.id):
			all, ids = append(all, q), append(ids, q.id)
		}
	}
	answered, err := r.Store.AnsweredRequests(ctx, b.now.EffectID, ids...)
	if err != nil {
		return wrong, fmt.Errorf("read which requests by hand were answered: %w", err)
	}
	slices.SortStableFunc(all, func(x, y request) int { return x.at.Compare(y.at) })
	var last time.Time
	for _, q := range all {
		if slices.Contains(answered, q.id) {
			continue
		}
		if last, err = r.freeTime(ctx, b, q.at, last); err != nil {
			return wrong, err
		}
		b.record.Requests = append(b.record.Requests, q.id)
		b.add(last, store.OriginManual)
	}
	return wrong, nil
}

// freeTime returns the time under which a firing by hand is recorded: that of the request, or a little later when another firing has it.
// Schedules are due at whole seconds, so a firing by hand is not.
func (r *Reconciler) freeTime(ctx context.Context, b *batch, at, last time.Time) (time.Time, error) {
	if at.After(b.at) {
		at = b.at
	}
	at = at.Truncate(time.Microsecond)
	if !at.After(last) {
		at = last.Add(time.Microsecond)
	}
	for {
		if at.Nanosecond() == 0 {
			at = at.Add(time.Microsecond)
		}
		have, err := r.Store.Firings(ctx, store.FiringQuery{EffectID: b.now.EffectID, Before: at.UnixMicro() + 1, Limit: 1})
		if err != nil {
			return at, fmt.Errorf("look for firings by hand: %w", err)
		}
		if len(have) == 0 || have[0].Due != at.UnixMicro() {
			return at, nil
		}
		at = at.Add(time.Microsecond)
	}
}

// backfills adds the firings of the ranges that a person asked for. It returns what is wrong with the others.
func (b *batch) backfills() (wrong []string) {
	value := b.object.Annotations[skeinv1.AnnotationBackfill]
	if value == "" {
		return nil
	}
	for text := range strings.SplitSeq(value, ",") {
		times, err := b.backfill(strings.TrimSpace(text))
		if n := len(times) * len(b.threads); err == nil && n > maxActive-len(b.active)-len(b.record.Firings) {
			err = fmt.Errorf("it would fire %d times, and %d firings are under way: there may be %d", n, len(b.active)+len(b.record.Firings), maxActive)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("annotation %s: %v", skeinv1.AnnotationBackfill, err))
			continue
		}
		for _, at := range times {
			b.add(at, store.OriginBackfill)
		}
	}
	return wrong
}

// backfill returns the due times of a range, FROM/UNTIL.
func (b *batch) backfill(text string) ([]time.Time, error) {
	from, until, _ := strings.Cut(text, "/")
	first, err1 := time.Parse(time.RFC3339, from)
	last, err2 := time.Parse(time.RFC3339, until)
	if err1 != nil || err2 != nil || last.Before(first) {
		return nil, fmt.Errorf("write the first and the last time with a slash between them, such as 2027-01-01T00:00:00Z/2027-01-31T00:00:00Z")
	}
	if len(b.object.Spec.Schedules) == 0 {
		return nil, fmt.Errorf("only schedules can be backfilled")
	}
	if dealt := b.at.Add(-b.jitter); last.After(dealt) {
		last = dealt
	}
	// A range may have due times without number, so they are counted no further than is needed.
	var due []time.Time
	for at := b.plan.Next(first.Add(-time.Nanosecond)); !at.IsZero() && !at.After(last); at = b.plan.Next(at) {
		if due = append(due, at); len(due) > maxBackfill {
			return nil, fmt.Errorf("the range has more than %d due times: choose one with at most so many", maxBackfill)
		}
	}
	return due, nil
}
