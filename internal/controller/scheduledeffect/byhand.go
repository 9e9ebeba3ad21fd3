package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// wasAsked reports whether a person asked for firings with an annotation.
func wasAsked(o *skeinv1.ScheduledEffect) bool {
	return o.Annotations[skeinv1.AnnotationRunAt] != "" || o.Annotations[skeinv1.AnnotationBackfill] != ""
}

// byHand records the firings that a person asked for with an annotation (EFF-08), says in the status what became of each request, and then
// removes the annotation. Each request is answered once, and the store remembers the answers, so that a crash in between, or a repeat, records
// nothing twice. The concurrency policy decides about firings by hand as about others.
func (r *Reconciler) byHand(ctx context.Context, d *schedule) (bool, error) {
	if err := r.removeResumeRequest(ctx, d); err != nil {
		return true, err
	}
	if !wasAsked(d.object) {
		return false, nil
	}
	b := &batch{schedule: d, record: &store.DueRecord{Was: d.was}, at: d.at}
	answers, err := r.runNow(ctx, b)
	if err != nil {
		return true, err
	}
	ranges, err := r.backfills(ctx, b)
	if err != nil {
		return true, err
	}
	if len(b.record.Requests) > 0 || len(b.record.Firings) > 0 {
		if err := r.write(ctx, b); err != nil {
			return true, err
		}
		if stop, err := r.readFirings(ctx, d); stop || err != nil {
			return true, err
		}
	}
	if err := r.finishRequests(ctx, d, slices.Concat(answers, ranges)); err != nil {
		return true, err
	}
	r.reportRefused(d, skeinv1.AnnotationRunAt, answers)
	r.reportRefused(d, skeinv1.AnnotationBackfill, ranges)
	d.again = true
	return false, nil
}

// reportRefused records an Event for each request that was refused.
func (r *Reconciler) reportRefused(d *schedule, annotation string, answers []*answer) {
	for _, a := range answers {
		if a.Refused != "" {
			r.warn(d.object, skeinv1.ReasonInvalidRequest, fmt.Sprintf("annotation %s: %s", annotation, a.Refused))
		}
	}
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
		return q, fmt.Errorf("%.80q: write the present time, such as 2027-01-31T09:00:00Z. A slash and a key of at most %d bytes may follow it", text, skeinv1.MaxRequestKey)
	}
	q.id = "at:" + q.at.UTC().Format(time.RFC3339Nano)
	if keyed {
		q.id = "key:" + key
	}
	return q, nil
}

// runNow adds a firing for each request to fire now that was not answered yet, and returns the answers.
func (r *Reconciler) runNow(ctx context.Context, b *batch) (answers []*answer, err error) {
	value := b.object.Annotations[skeinv1.AnnotationRunAt]
	if value == "" {
		return nil, nil
	}
	type asks struct {
		request
		answer *answer
	}
	var all []asks
	var ids []string
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		a := b.newAnswer(text)
		answers = append(answers, a)
		q, err := parseRequest(text)
		switch {
		case err != nil:
			a.Refused = err.Error()
		case q.at.Before(b.at.Add(-oldestRequest)), q.at.After(b.at.Add(newestRequest)):
			a.Refused = fmt.Sprintf("%s is not the present time: a run by hand fires now, so write the present time", q.at.UTC().Format(time.RFC3339))
		case len(b.threads) == 0:
			a.Refused = noThreads
		default:
			all, ids = append(all, asks{q, a}), append(ids, q.id)
		}
	}
	answered, err := r.Store.AnsweredRequests(ctx, b.now.EffectID, ids...)
	if err != nil {
		return nil, fmt.Errorf("read which requests by hand were answered: %w", err)
	}
	slices.SortStableFunc(all, func(x, y asks) int { return x.at.Compare(y.at) })
	var last time.Time
	for _, q := range all {
		if was, repeated := answered[q.id]; repeated {
			if err := q.answer.repeats(was); err != nil {
				return nil, err
			}
			continue
		}
		if last, err = r.freeTime(ctx, b, q.at, last); err != nil {
			return nil, err
		}
		b.answer = q.answer
		b.add(last, store.OriginManual)
		b.recordAnswered(q.id)
		answered[q.id] = q.answer.encode()
	}
	return answers, nil
}

// noThreads says why a request of a schedule with a selector fires nothing.
const noThreads = "no living Thread of the namespace matches spec.threadSelector"

// recordAnswered records that the answer that was worked on belongs to a request.
func (b *batch) recordAnswered(id string) {
	b.record.Requests = append(b.record.Requests, store.FiringRequest{ID: id, Answer: b.answer.encode()})
	b.answer = nil
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
		have, err := r.Store.Firings(ctx, store.FiringQuery{EffectID: b.now.EffectID, Before: at.UnixMicro() + 1, Limit: 1, Brief: true})
		if err != nil {
			return at, fmt.Errorf("look for firings by hand: %w", err)
		}
		if len(have) == 0 || have[0].Due != at.UnixMicro() {
			return at, nil
		}
		at = at.Add(time.Microsecond)
	}
}

// backfills adds the firings of the ranges that a person asked for, and returns the answers.
func (r *Reconciler) backfills(ctx context.Context, b *batch) (answers []*answer, err error) {
	value := b.object.Annotations[skeinv1.AnnotationBackfill]
	if value == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(value, ",") {
		b.answer = b.newAnswer(strings.TrimSpace(text))
		answers = append(answers, b.answer)
		if err := r.backfillRange(ctx, b, strings.TrimSpace(text)); err != nil {
			return nil, err
		}
	}
	b.answer = nil
	return answers, nil
}

// backfillRange adds the firings of one range.
func (r *Reconciler) backfillRange(ctx context.Context, b *batch, text string) error {
	id, times, err := b.backfill(text)
	if err != nil {
		b.answer.Refused = err.Error()
		return nil
	}
	if id != "" {
		was, err := r.Store.AnsweredRequests(ctx, b.now.EffectID, id)
		if err != nil {
			return fmt.Errorf("read which requests by hand were answered: %w", err)
		}
		if was, repeated := was[id]; repeated {
			return b.answer.repeats(was)
		}
		for _, q := range b.record.Requests {
			if q.ID == id {
				return b.answer.repeats(q.Answer)
			}
		}
	}
	fired, err := r.firedBefore(ctx, b, times)
	if err != nil {
		return err
	}
	n := len(times)*len(b.threads) - len(fired)
	sample := b.newFiring(times[0], store.OriginBackfill, target{}, 0)
	switch under, most := len(b.active)+len(b.record.Firings), mostActive(&sample); {
	case len(b.threads) == 0:
		b.answer.Refused = noThreads
		return nil
	case n > most-under:
		b.answer.Refused = fmt.Sprintf("it would fire %d times while %d firings are under way, and the limit is %d", n, under, most)
		return nil
	}
	threads := b.threads
	defer func() { b.threads = threads }()
	for _, at := range times {
		b.threads = nil
		for _, t := range threads {
			if fired[store.FiringKey{EffectID: b.now.EffectID, Due: at.UnixMicro(), ThreadID: t.id}] {
				b.answer.result(at, skeinv1.RequestFiredBefore, "", "")
				continue
			}
			b.threads = append(b.threads, t)
		}
		if len(b.threads) > 0 {
			b.add(at, store.OriginBackfill)
		}
	}
	if id != "" {
		answer := b.answer
		b.recordAnswered(id)
		b.answer = answer
	}
	return nil
}

// firedBefore returns which firings of due times, in their order, there are already, or were: what the store will not record again.
func (r *Reconciler) firedBefore(ctx context.Context, b *batch, times []time.Time) (map[store.FiringKey]bool, error) {
	forgotten, err := r.Store.FiredTimes(ctx, b.now.EffectID)
	if err != nil {
		return nil, fmt.Errorf("read which due times fired: %w", err)
	}
	have := map[store.FiringKey]bool{}
	for i := range b.record.Firings {
		have[b.record.Firings[i].Key()] = true
	}
	first, last := times[0].UnixMicro(), times[len(times)-1].UnixMicro()
	for q := (store.FiringQuery{EffectID: b.now.EffectID, Before: last + 1, Limit: 1000, Brief: true}); ; {
		page, err := r.Store.Firings(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("read which due times fired: %w", err)
		}
		for i := range page {
			have[page[i].Key()] = true
		}
		if len(page) < q.Limit || page[len(page)-1].Due < first {
			break
		}
		q.Before, q.BeforeThread = page[len(page)-1].Due, &page[len(page)-1].ThreadID
	}
	fired := map[store.FiringKey]bool{}
	for _, at := range times {
		for _, t := range b.threads {
			key := store.FiringKey{EffectID: b.now.EffectID, Due: at.UnixMicro(), ThreadID: t.id}
			if have[key] || forgotten.Has(key.Due) {
				fired[key] = true
			}
		}
	}
	return fired, nil
}

// backfill returns the due times of a range, FROM/UNTIL or FROM/UNTIL/KEY, and the id of the request, which is "" without a key.
func (b *batch) backfill(text string) (id string, times []time.Time, err error) {
	from, rest, _ := strings.Cut(text, "/")
	until, key, keyed := strings.Cut(rest, "/")
	first, err1 := time.Parse(time.RFC3339, from)
	last, err2 := time.Parse(time.RFC3339, until)
	if err1 != nil || err2 != nil || last.Before(first) || (keyed && key == "") || len(key) > skeinv1.MaxRequestKey {
		return "", nil, fmt.Errorf("%.80q: write the first and the last time with a slash between them, such as 2027-01-01T00:00:00Z/2027-01-31T00:00:00Z", text)
	}
	if keyed {
		id = "backfill:" + key
	}
	if len(b.object.Spec.Schedules) == 0 {
		return "", nil, errors.New("only schedules can be backfilled: kubectl skein effect run fires this effect now")
	}
	if dealt := b.at.Add(-b.jitter); last.After(dealt) {
		last = dealt
	}
	// A range may have due times without number, so they are counted no further than is needed.
	var due []time.Time
	for at := b.plan.Next(first.Add(-time.Nanosecond)); !at.IsZero() && !at.After(last); at = b.plan.Next(at) {
		if due = append(due, at); len(due) > maxBackfill {
			return "", nil, fmt.Errorf("the range has more than %d due times: choose a shorter one", maxBackfill)
		}
	}
	if len(due) == 0 {
		return "", nil, errors.New("the range has no past due time of this schedule")
	}
	return id, due, nil
}
