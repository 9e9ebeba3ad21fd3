package scheduledeffect

import (
	"sort"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// recordEvery is how long due times that pass while nothing may fire are gathered before they are recorded together. A schedule of every
// second would otherwise cost a transaction and a status each second, as one that fires does.
const recordEvery = time.Minute

// stopReason returns why no due time fires until a person or another firing changes that, as the reason and the detail of a record. The
// reason is "" if due times fire.
func (d *schedule) stopReason() (reason, detail string) {
	if d.object.Spec.Suspend {
		return skeinv1.ReasonSuspended, ""
	}
	if why := d.pausedNow(); why != "" {
		return skeinv1.ReasonPaused, why
	}
	return "", ""
}

// stillHolds reports whether the reason of a record keeps what is due next from firing, too.
func (d *schedule) stillHolds(k *store.EffectSkip) bool {
	reason, detail := d.stopReason()
	if reason == "" && k.Reason == skeinv1.ReasonLimitReached {
		reason, detail = skeinv1.ReasonLimitReached, d.limitOfDay(d.dayOf(time.UnixMicro(k.Until)))
	}
	return reason == k.Reason && detail == k.Detail
}

// gatheringRecord returns the record that ends at a cursor, if its reason lasts, so that due times after it may wait to be added to it; else nil.
// The reason is stored with the cursor, so what waits is recorded after a crash too.
func (d *schedule) gatheringRecord(cursor int64) *store.EffectSkip {
	for i := range d.skips {
		k := &d.skips[i]
		if k.ThreadID != "" || k.Until != cursor {
			continue
		}
		switch k.Reason {
		case skeinv1.ReasonSuspended, skeinv1.ReasonPaused:
			return k
		case skeinv1.ReasonLimitReached:
			if !strings.HasSuffix(k.Detail, tooManyUnderWay) { // each end of a firing may change that
				return k
			}
		}
	}
	return nil
}

// gathersUntil returns the time before which due times that follow a record are gathered. A limit of a day ends with the day.
func (d *schedule) gathersUntil(k *store.EffectSkip) time.Time {
	until, seconds := time.UnixMicro(k.Until), int(recordEvery/time.Second)
	if k.Reason == skeinv1.ReasonLimitReached {
		day := d.dayOf(until)
		seconds = min(seconds, 1+sort.Search(seconds, func(i int) bool { return d.dayOf(until.Add(time.Duration(i+1)*time.Second)) != day }))
	}
	return until.Add(time.Duration(seconds) * time.Second)
}

// nextRecorded returns the due time at which something is to be recorded next, or the zero time.
func (d *schedule) nextRecorded() time.Time {
	from := time.UnixMicro(d.now.Cursor)
	if k := d.gatheringRecord(d.now.Cursor); k != nil && d.stillHolds(k) {
		until := d.gathersUntil(k).Add(-time.Microsecond)
		if next := d.plan.Next(until); !next.IsZero() {
			return next
		}
		if last := d.plan.Since(from, until, 0); last.Older > 0 {
			return last.Last
		}
	}
	return d.plan.Next(from)
}

// recordsLater reports whether a later reconcile can record the due times up to at. It can while the reason of the newest record still keeps
// everything from firing, because these due times are then added to that record. After an edit, or while a person asks for a firing or a
// resumption, recordsLater reports false.
func (d *schedule) recordsLater(at time.Time) bool {
	if d.was == nil || d.now != *d.was || wasAsked(d.object) || asksToResume(d.object) {
		return false
	}
	if k := d.gatheringRecord(d.now.Cursor); k == nil || !d.stillHolds(k) {
		return false
	}
	next := d.nextRecorded()
	return next.IsZero() || at.Add(-d.jitter).Before(next)
}

// recordGathered records the due times that were gathered. They have the reason of the record that they follow, also when it holds no more,
// and are not caught up. If it holds no more, the cursor moves past the record, so that what is due from now on is not taken for one of
// them.
func (b *batch) recordGathered() {
	if b.was == nil || b.isExhausted() {
		return
	}
	k := b.gatheringRecord(b.was.Cursor)
	if k == nil {
		return
	}
	plan, now, last := b.plan, b.at.Add(-b.jitter), b.gathersUntil(k).Add(-time.Microsecond)
	if b.edited { // they were due as the schedule was before, until the new one began to count
		plan, now = b.before, b.schedule.at.Add(-b.jitter)
	}
	ends := now.Before(last)
	if ends {
		last = now
	}
	over := !b.stillHolds(k)
	if plan != nil {
		if passed := plan.Since(time.UnixMicro(b.was.Cursor), last, 0); passed.Older > 0 {
			b.skip(passed.First, passed.Last, int64(passed.Older), k.Reason, k.Detail)
			b.now.Cursor = max(b.now.Cursor, passed.Last.UnixMicro())
		}
	}
	if over && (ends || b.edited) {
		b.now.Cursor = max(b.now.Cursor+1, now.UnixMicro())
	}
}

// replaced is the detail of a record of due times that an edit of the times has replaced.
const replaced = "the times of the schedule were changed before it could fire"

// recordReplaced records the due times before an edit of the times of which nothing is recorded yet: no manager ran, or the edit came at
// the same moment. They do not fire, because the cursor moves past them. They are those of the schedule as it was before the edit.
func (b *batch) recordReplaced() {
	if !b.edited || b.before == nil || b.wasOver() || b.isExhausted() {
		return
	}
	from := b.was.Cursor
	for i := range b.skipped { // these were gathered
		from = max(from, b.skipped[i].Until)
	}
	passed := b.before.Since(time.UnixMicro(from), b.schedule.at, 0)
	if passed.Older == 0 {
		return
	}
	reason, detail := b.stopReason()
	if reason == "" {
		reason, detail = skeinv1.ReasonMissed, replaced
	}
	b.skip(passed.First, passed.Last, int64(passed.Older), reason, detail)
}

// wasOver reports whether the schedule had no due time left before an edit, such as one that had fired as often as it may. The status, which
// speaks of the schedule before the edit, has the next due time; until it has been looked for the first time, it has none.
func (d *schedule) wasOver() bool {
	status := &d.object.Status
	return status.ObservedGeneration != 0 && status.ScheduledAt == 0 && (status.Fired > 0 || status.Phase == phaseFinished)
}

// wasReopened reports whether an edit lets a schedule go on that had fired as often as it may. Once that is stored, the cursor is later than
// anything that the status of before the edit speaks of. The history may have lost the last firing of the schedule, or have many by hand
// since.
func (d *schedule) wasReopened() bool {
	if !d.unseen || d.edited || d.was == nil || !d.wasOver() {
		return false
	}
	last := d.object.Status.FiredAt
	if t := d.object.Status.CompletionTime; t != nil {
		last = max(last, t.UnixMicro())
	}
	return d.was.Cursor <= last
}
