package scheduledeffect

import (
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// recordEvery is how long due times that pass while a schedule is suspended are gathered before they are recorded together. A schedule of
// every second would otherwise cost a transaction and a status each second, as one that fires does.
const recordEvery = time.Minute

// newestSuspended returns the newest record if it says that the schedule was suspended at the last due time that was dealt with; else nil.
// Only then may due times wait to be recorded. So the store knows of them after a crash.
func (d *schedule) newestSuspended() *store.EffectSkip {
	if len(d.skips) == 0 {
		return nil
	}
	k := &d.skips[0]
	if k.Reason != skeinv1.ReasonSuspended || k.ThreadID != "" || k.Until != d.now.Cursor {
		return nil
	}
	return k
}

// gathersUntil returns the time before which due times that follow a record are gathered.
func gathersUntil(k *store.EffectSkip) time.Time { return time.UnixMicro(k.Until).Add(recordEvery) }

// nextRecorded returns the due time at which something is to be recorded next, or the zero time.
func (d *schedule) nextRecorded() time.Time {
	if k := d.newestSuspended(); k != nil && d.object.Spec.Suspend {
		if next := d.plan.Next(gathersUntil(k).Add(-time.Microsecond)); !next.IsZero() {
			return next
		}
	}
	return d.plan.Next(time.UnixMicro(d.now.Cursor))
}

// gathers reports whether the schedule is suspended and what has passed since its newest record is recorded later. A request by hand, or an
// edit, has it recorded now.
func (d *schedule) gathers(at time.Time) bool {
	if !d.object.Spec.Suspend || d.was == nil || d.now != *d.was || asked(d.object) || d.newestSuspended() == nil {
		return false
	}
	next := d.nextRecorded()
	return next.IsZero() || at.Add(-d.jitter).Before(next)
}

// resume records the due times that were gathered before the schedule was resumed. They are suspended ones, and are not caught up. Then it
// moves the cursor past the record, so that what is due from now on is not taken for one of them.
func (b *batch) resume() {
	k := b.newestSuspended()
	if k == nil || b.object.Spec.Suspend {
		return
	}
	now, last := b.at.Add(-b.jitter), gathersUntil(k).Add(-time.Microsecond)
	ends := now.Before(last)
	if ends {
		last = now
	}
	if passed := b.plan.Since(time.UnixMicro(b.now.Cursor), last, 0); passed.Older > 0 {
		b.skip(passed.First, passed.Last, int64(passed.Older), skeinv1.ReasonSuspended, "")
		b.now.Cursor = passed.Last.UnixMicro()
	}
	if ends {
		b.now.Cursor = max(b.now.Cursor+1, now.UnixMicro())
	}
}
