package scheduledeffect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/store"
)

// recentSkips is how many records of due times that did not fire are read, to go on with one of them. Each thread has its own.
const recentSkips = 100

// skipRecord is a record of due times that did not fire, as a batch writes it.
type skipRecord struct {
	store.EffectSkip
	continues bool  // it replaces a stored record that began earlier
	added     int64 // how many due times this batch added
}

// skip records due times that do not fire.
func (b *batch) skip(first, last time.Time, count int64, reason, detail string) {
	b.note(store.EffectSkip{EffectID: b.now.EffectID, Due: first.UnixMicro(), Until: last.UnixMicro(), Count: count, Reason: reason, Detail: detail})
}

// skipThread records a due time that does not fire for one thread.
func (b *batch) skipThread(due time.Time, threadID, reason, detail string) {
	b.left = append(b.left, store.EffectSkip{EffectID: b.now.EffectID, Due: due.UnixMicro(), Until: due.UnixMicro(), ThreadID: threadID, Count: 1, Reason: reason, Detail: detail})
	b.answer.result(due, skeinv1.RequestSkipped, reason, detail)
}

// noteLeft records the threads for which a due time does not fire. When they are more than the history has records, the due time has one for
// all of them, and not a row and an Event for each.
func (b *batch) noteLeft() {
	type why struct{ reason, detail string }
	threads := map[why]int{}
	for i := range b.left {
		threads[why{b.left[i].Reason, b.left[i].Detail}]++
	}
	most := min(max(limitOf(b.object.Spec.FailedHistoryLimit), 1), recentSkips)
	for _, k := range b.left {
		of := why{k.Reason, k.Detail}
		switch n := threads[of]; {
		case n == 0: // noted for all
			continue
		case n > most:
			threads[of] = 0
			k.ThreadID, k.Detail = "", fmt.Sprintf("more than %d threads: %s", most, k.Detail)
		}
		b.note(k)
	}
	b.left = nil
}

// note records due times that do not fire. What follows each other for the same reason is one record, over several reconciles too: a
// schedule of every second that is suspended for a month has one record and one Event.
func (b *batch) note(k store.EffectSkip) {
	b.now.Skipped += k.Count
	for i := range slices.Backward(b.skipped) {
		if r := &b.skipped[i]; r.ThreadID == k.ThreadID {
			if canJoin(&r.EffectSkip, &k) && !b.firedAfter(b.record.Firings, &r.EffectSkip) {
				r.Until, r.Count, r.added = k.Until, r.Count+k.Count, r.added+k.Count
				return
			}
			b.skipped = append(b.skipped, skipRecord{EffectSkip: k, added: k.Count})
			return
		}
	}
	if r := b.newestSkip(k.ThreadID); r != nil && canJoin(r, &k) && !b.firedAfter(b.record.Firings, r) && !b.firedAfter(b.recent, r) && !b.mayHaveFiredSince(r) {
		longer := *r
		longer.Until, longer.Count = k.Until, r.Count+k.Count
		b.skipped = append(b.skipped, skipRecord{EffectSkip: longer, continues: true, added: k.Count})
		return
	}
	b.skipped = append(b.skipped, skipRecord{EffectSkip: k, added: k.Count})
}

// newestSkip returns the stored record of a thread with the latest due times; nil if there is none.
func (b *batch) newestSkip(threadID string) (newest *store.EffectSkip) {
	for i := range b.skips {
		if k := &b.skips[i]; k.ThreadID == threadID && (newest == nil || k.Until > newest.Until) {
			newest = k
		}
	}
	return newest
}

// canJoin reports whether skipped due times can be added to a record: they are later, have the same reason, and were not requested by hand. Each
// request by hand has a record of its own. Its time is never a whole second.
func canJoin(r, k *store.EffectSkip) bool {
	byHand := r.Due%time.Second.Microseconds() != 0 || k.Due%time.Second.Microseconds() != 0
	return r.Reason == k.Reason && r.Detail == k.Detail && k.Due > r.Until && !byHand
}

// firedAfter reports whether the schedule has fired since a record, for its thread if it has one.
func (b *batch) firedAfter(firings []store.Firing, r *store.EffectSkip) bool {
	return slices.ContainsFunc(firings, func(f store.Firing) bool {
		return f.Due > r.Until && f.Origin != store.OriginManual && (r.ThreadID == "" || f.ThreadID == r.ThreadID)
	})
}

// ownSkip returns the record that the due time of an effect of one time did not fire; nil if there is none. Where the history keeps no
// such records, the status may still have it.
func (d *schedule) ownSkip() *store.EffectSkip {
	if len(d.object.Spec.Schedules) > 0 {
		return nil
	}
	due := kube.DueTime(d.object)
	for i := range d.skips {
		if k := &d.skips[i]; k.Due <= due.UnixMicro() && due.UnixMicro() <= k.Until {
			return k
		}
	}
	last, second := d.object.Status.LastSkip, due.Truncate(time.Second)
	if last == nil || second.Before(last.Time.Time) || second.After(last.Until.Time) {
		return nil
	}
	return &store.EffectSkip{Due: due.UnixMicro(), Until: due.UnixMicro(), Count: last.Count, Reason: last.Reason}
}

// mayHaveFiredSince reports whether b.recent is too short to tell if the schedule fired after a record: it is full, and its oldest
// firing is later than the record.
func (b *batch) mayHaveFiredSince(r *store.EffectSkip) bool {
	n := len(b.recent)
	return n >= recentFirings && b.recent[n-1].Due > r.Until
}

// recordSkips counts what did not fire, and tells of each new record.
func (r *Reconciler) recordSkips(b *batch) {
	d := b.schedule
	for i := range b.skipped {
		k := &b.skipped[i]
		skipped.WithLabelValues(d.object.Namespace, k.Reason).Add(float64(k.added))
		if !k.continues {
			r.warn(d.object, k.Reason, describe(k.EffectSkip))
		}
		d.skips = slices.DeleteFunc(d.skips, func(old store.EffectSkip) bool {
			return old.Due == k.Due && old.ThreadID == k.ThreadID && old.Reason == k.Reason
		})
		d.skips = slices.Insert(d.skips, 0, k.EffectSkip)
	}
}

// miss ends a running firing that could not begin in time, and tells of its due time as of one that did not fire.
func (r *Reconciler) miss(ctx context.Context, d *schedule, f *store.Firing, why string) error {
	record, begins, err := r.Store.MissFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Error: why})
	if errors.Is(err, store.ErrFiringLost) { // it was canceled meanwhile
		err = nil
	} else if err == nil {
		ReportMissed(r.Recorder)(f, record, begins)
	}
	if err != nil {
		return fmt.Errorf("record that a firing could not begin in time: %w", err)
	}
	d.again, d.recorded, d.ended = true, true, true
	return nil
}

// mostInEvent bounds the text of an Event, which may have 1,024 bytes.
const mostInEvent = 1000

// ReportMissed returns a function that counts firings that could not begin in time, and sends an Event for each new record of them (EFF-07). The
// recorder may be nil.
func ReportMissed(recorder events.EventRecorder) func(f *store.Firing, record store.EffectSkip, begins bool) {
	return func(f *store.Firing, record store.EffectSkip, begins bool) {
		skipped.WithLabelValues(f.Namespace, record.Reason).Inc()
		if !begins || recorder == nil {
			return
		}
		o := &skeinv1.ScheduledEffect{
			TypeMeta:   metav1.TypeMeta{APIVersion: skeinv1.GroupVersion.String(), Kind: "ScheduledEffect"},
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name, UID: types.UID(f.EffectID)},
		}
		warn(recorder, o, record.Reason, clip.Text(describe(record), mostInEvent))
	}
}

// describe returns a record of skipped due times as a sentence.
func describe(k store.EffectSkip) string {
	text := fmt.Sprintf("%d due times from %s to %s did not fire: %s", k.Count, utc(k.Due), utc(k.Until), k.Reason)
	if k.Count == 1 {
		text = fmt.Sprintf("the due time %s did not fire: %s", utc(k.Due), k.Reason)
	}
	if k.Detail != "" {
		text += " (" + k.Detail + ")"
	}
	return text
}

func utc(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }
