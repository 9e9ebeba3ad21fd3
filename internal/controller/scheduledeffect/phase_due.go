package scheduledeffect

import (
	"context"
	"fmt"
	"slices"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/recurrence"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// onTime is how late a due time may be recorded and still count as punctual. It covers a restart of the manager.
	onTime = 10 * time.Second
	// defaultWindow is how far back catching up reaches.
	defaultWindow = 24 * time.Hour
	// maxDue bounds how many due times one reconcile fires.
	maxDue = 100
)

// recordDue records the due times that have passed since the cursor: each fires, or is recorded as skipped. Firings and
// cursor change in one transaction, on condition that the cursor is where it was read, so that each due time is dealt
// with once, whatever crashes and whichever replica leads.
func (r *Reconciler) recordDue(ctx context.Context, d *schedule) (bool, error) {
	var err error
	if d.spent, err = r.costsOfDays(ctx, d); err != nil {
		return true, err
	}
	if d.recordsLater(d.at) {
		return false, nil
	}
	record := &store.DueRecord{Was: d.was, ResetFailures: d.edited}
	b := &batch{schedule: d, record: record, at: r.Clock.Now()}
	before := d.now
	if d.was == nil && d.object.Spec.RunOnCreation {
		b.create(d.object.CreationTimestamp.Time)
	}
	b.resume()
	b.recordGathered()
	b.recordReplaced()
	b.decidePassed()
	if d.was != nil && d.now == *d.was {
		return false, nil
	}
	if err := r.write(ctx, b); err != nil {
		d.now = before // the status speaks of what is stored
		return true, err
	}
	for i := range record.Firings {
		lateness.Observe(b.at.Sub(time.UnixMicro(record.Firings[i].Due).Add(d.jitter)).Seconds())
	}
	return false, nil
}

// decidePassed fires the due times that have passed, or records why they do not fire. A schedule that has fired as often as it may has none.
func (b *batch) decidePassed() {
	if b.isExhausted() {
		return
	}
	passed := b.plan.Since(time.UnixMicro(b.now.Cursor), b.at.Add(-b.jitter), b.keep())
	if passed.Older > 0 {
		b.skipOlder(passed)
		b.now.Cursor = passed.Last.UnixMicro()
	}
	b.markMissed(passed.Newest)
	for i, due := range passed.Newest {
		if b.isExhausted() {
			break
		}
		b.decide(due, i == len(passed.Newest)-1)
		b.now.Cursor = due.UnixMicro()
	}
}

// write records what the batch has gathered.
func (r *Reconciler) write(ctx context.Context, b *batch) error {
	d, record := b.schedule, b.record
	d.now.Times = effectplan.Times(&d.object.Spec)
	record.Schedule = d.now
	for i := range b.skipped {
		record.Skips = append(record.Skips, b.skipped[i].EffectSkip)
	}
	if err := r.Store.RecordDue(ctx, *record); err != nil {
		return fmt.Errorf("record what is due: %w", err)
	}
	d.was, d.recorded = &record.Schedule, true
	newest := slices.Clone(record.Firings)
	slices.Reverse(newest)
	d.active, d.recent = slices.Concat(newest, d.active), slices.Concat(newest, d.recent)
	d.active = without(d.active, record.Cancel)
	r.recordSkips(b)
	if len(record.Firings) > 0 {
		r.Engine.WakeEffects()
	}
	return nil
}

// without returns the firings that have none of the keys.
func without(all []store.Firing, keys []store.FiringKey) []store.Firing {
	not := make(map[store.FiringKey]bool, len(keys))
	for _, k := range keys {
		not[k] = true
	}
	return slices.DeleteFunc(all, func(f store.Firing) bool { return not[f.Key()] })
}

// batch gathers what one reconcile records.
type batch struct {
	*schedule
	record  *store.DueRecord
	skipped []skipRecord // what did not fire
	at      time.Time
	missed  time.Time                 // due times up to it are beyond the limit of catching up; zero if there are none
	left    []store.EffectSkip        // the threads for which the due time that is being worked on does not fire
	answer  *answer                   // to the request by hand that is being worked on; nil for the schedule itself
	under   map[string][]store.Firing // by thread what is under way, the oldest first; nil until it is read
}

// limit returns how many late due times All fires.
func (d *schedule) limit() int {
	if c := d.object.Spec.CatchUp; c != nil && c.Policy == skeinv1.CatchUpAll && c.Limit > 0 {
		return int(c.Limit)
	}
	return maxDue
}

// keep returns how many of the passed due times are looked at one by one: some may be punctual.
func (d *schedule) keep() int {
	if c := d.object.Spec.CatchUp; c != nil && c.Policy == skeinv1.CatchUpAll {
		return d.limit() + maxDue
	}
	return maxDue
}

// markMissed sets b.missed to the newest of the due times that are too many to catch up on. passed is sorted, the oldest first.
func (b *batch) markMissed(passed []time.Time) {
	late := 0
	for _, due := range passed {
		if b.lateness(due) > onTime {
			late++
		}
	}
	if beyond := late - b.limit(); beyond > 0 {
		b.missed = passed[beyond-1]
	}
}

// lateness returns how late a due time is.
func (b *batch) lateness(due time.Time) time.Duration { return b.at.Sub(due.Add(b.jitter)) }

// create fires once more for the creation of the object.
func (b *batch) create(at time.Time) {
	if b.object.Spec.Suspend {
		b.skip(at, at, 1, skeinv1.ReasonSuspended, "")
		return
	}
	b.fire(at, store.OriginCreation)
}

// skipOlder records the due times that are too many to look at one by one.
func (b *batch) skipOlder(passed recurrence.Passed) {
	reason, detail := b.stopReason()
	if reason == "" {
		reason = skeinv1.ReasonMissed
	}
	b.skip(passed.First, passed.Last, int64(passed.Older), reason, detail)
}

// isExhausted reports whether the schedule has fired as often as it may.
func (b *batch) isExhausted() bool {
	most := b.object.Spec.MaxFirings
	return most != nil && b.now.Fired >= *most
}

// decide fires a due time or records why it does not fire. newest reports whether no later due time has passed.
func (b *batch) decide(due time.Time, newest bool) {
	spec := &b.object.Spec
	late := b.lateness(due)
	reason, detail := b.stopReason()
	if reason == "" && (!b.inTime(late, newest) || !b.missed.IsZero() && !due.After(b.missed)) {
		reason = skeinv1.ReasonMissed
	}
	if why := b.limitOfDay(b.dayOf(due)); reason == "" && why != "" {
		reason, detail = skeinv1.ReasonLimitReached, why
	}
	switch {
	case reason != "":
		b.skip(due, due, 1, reason, detail)
	case late > onTime && len(spec.Schedules) > 0:
		b.fire(due, store.OriginCatchUp)
	default:
		b.fire(due, store.OriginSchedule)
	}
}

// pausedNow returns why the schedule is paused, or "".
func (d *schedule) pausedNow() string {
	if n := d.object.Spec.PauseAfterFailures; n != nil && d.now.Failures >= int64(*n) {
		return fmt.Sprintf("%d firings failed in a row", d.now.Failures)
	}
	return ""
}

// inTime reports whether a due time that is late may still fire (EFF-05).
func (b *batch) inTime(late time.Duration, newest bool) bool {
	spec := &b.object.Spec
	if deadline := spec.StartingDeadlineSeconds; deadline != nil && late > time.Duration(*deadline)*time.Second {
		return false
	}
	if late <= onTime || len(spec.Schedules) == 0 {
		return true
	}
	policy, window := skeinv1.CatchUpLast, defaultWindow
	if c := spec.CatchUp; c != nil {
		if c.Policy != "" {
			policy = c.Policy
		}
		if c.Window != nil {
			window = c.Window.Duration
		}
	}
	switch {
	case late > window, policy == skeinv1.CatchUpNone:
		return false
	case policy == skeinv1.CatchUpAll:
		return true
	}
	return newest
}

// fire records firings of a due time, and counts it.
func (b *batch) fire(due time.Time, origin store.FiringOrigin) {
	if b.add(due, origin) {
		b.day(due)
		b.now.DayFired++
		b.now.Fired++
	}
}

// add adds firings, one for each thread, as the concurrency policy says. It reports whether there are any.
func (b *batch) add(due time.Time, origin store.FiringOrigin) (fires bool) {
	for i, t := range b.threads {
		pace := time.Duration(i) * b.spacing()
		f := b.newFiring(due, origin, t, pace)
		if origin != store.OriginManual {
			f.TakesArgs = b.object.Spec.ArgsRef
		}
		// The clock that found it due says when that was. The store's may be a little behind it.
		f.FiredAt = b.at.UnixMicro()
		f.AvailableAt = b.at.Add(pace).UnixMicro()
		if b.admit(&f) {
			b.record.Firings = append(b.record.Firings, f)
			b.under[f.ThreadID] = append(b.under[f.ThreadID], f)
			b.answer.addFiring(&f)
			fires = true
		}
	}
	if n := len(b.beyond); n > 0 {
		b.skipThread(due, b.beyond[0].id, skeinv1.ReasonTooManyThreads, fmt.Sprintf("%d threads from %q on were left out: raise spec.maxThreads", n, b.beyond[0].name))
	}
	if len(b.threads) == 0 {
		b.skipThread(due, "", skeinv1.ReasonNoThreadMatches, noThreads)
	}
	b.noteLeft()
	return fires
}

// spacing returns the time between the firings of one due time.
func (b *batch) spacing() time.Duration {
	if n := b.object.Spec.ThreadsPerSecond; n > 0 && b.object.Spec.ThreadSelector != nil {
		return time.Second / time.Duration(n)
	}
	return 0
}

// admit applies the concurrency policy to a firing. It reports whether to record it.
func (b *batch) admit(f *store.Firing) bool {
	under := b.underWayFor(f.ThreadID)
	if len(under) == 0 {
		return b.room(f)
	}
	due, policy := time.UnixMicro(f.Due), b.object.Spec.ConcurrencyPolicy
	if f.Origin == store.OriginBackfill && policy != skeinv1.ConcurrencyAllow && policy != "" {
		f.Status = store.FiringQueued // a backfill fires its due times one after the other
		return true
	}
	switch policy {
	case skeinv1.ConcurrencyForbid:
		b.skipThread(due, f.ThreadID, skeinv1.ReasonForbidden, "an earlier firing was under way")
		return false
	case skeinv1.ConcurrencyQueue:
		for i := range under {
			if waitsInTurn(&under[i]) {
				b.skipThread(due, f.ThreadID, skeinv1.ReasonForbidden, "another firing waited already")
				return false
			}
		}
		f.Status = store.FiringQueued
		return b.room(f)
	case skeinv1.ConcurrencyReplace:
		for i := range under {
			if under[i].Status != store.FiringQueued || under[i].Origin != store.OriginBackfill { // a backfill goes on afterwards
				b.record.Cancel = append(b.record.Cancel, under[i].Key())
			}
		}
	default:
		return b.room(f)
	}
	return true
}

// room reports whether another firing may be under way. It records that there is none.
func (b *batch) room(f *store.Firing) bool {
	most := mostActive(f)
	if len(b.active)+len(b.record.Firings) < most {
		return true
	}
	b.skipThread(time.UnixMicro(f.Due), f.ThreadID, skeinv1.ReasonLimitReached, fmt.Sprintf("%d%s", most, tooManyUnderWay))
	return false
}

// tooManyUnderWay ends the detail of a record of due times for which there was no room.
const tooManyUnderWay = " firings were under way"

const (
	// maxActive bounds how many firings of one object may be under way. Due times beyond it are skipped.
	maxActive = 10000
	// maxActiveBytes bounds what they have in the store, since each has a copy of its arguments.
	maxActiveBytes = 128 << 20
)

// mostActive returns how many firings such as this one may be under way.
func mostActive(f *store.Firing) int {
	return min(maxActive, maxActiveBytes/max(len(f.Args)+len(f.Target), 1))
}

// underWayFor returns the firings of a thread that are under way, those of this batch included, the oldest first.
func (b *batch) underWayFor(threadID string) []store.Firing {
	if b.under == nil {
		b.under = map[string][]store.Firing{}
		for _, f := range slices.Backward(b.active) {
			b.under[f.ThreadID] = append(b.under[f.ThreadID], f)
		}
	}
	return b.under[threadID]
}

// waitsInTurn reports whether a firing is the one that may wait for an earlier one. Those of a backfill do not count.
func waitsInTurn(f *store.Firing) bool {
	return f.Status == store.FiringQueued && f.Origin != store.OriginBackfill
}
