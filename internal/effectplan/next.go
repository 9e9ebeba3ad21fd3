package effectplan

import (
	"errors"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Next returns the due times of an object after an instant, at most n, with its jitter. An object without a UID has not been applied yet: its delay
// counts from now, and it has no jitter. The times do not say whether the object is suspended, paused, or at a limit of the day.
func Next(o *skeinv1.ScheduledEffect, now time.Time, n int) ([]time.Time, error) {
	due, err := dueTime(o, now)
	if err != nil {
		return nil, err
	}
	plan, err := Of(&o.Spec, due)
	if err != nil {
		return nil, err
	}
	var jitter time.Duration
	if o.UID != "" {
		jitter = Jitter(o)
	}
	if most := o.Spec.MaxFirings; most != nil {
		n = int(min(int64(n), max(*most-firedOf(o), 0)))
	}
	from := now.Add(-jitter)
	if o.UID == "" {
		from = from.Add(-time.Nanosecond) // an object that is applied now and has no delay is due now
	}
	times := plan.Upcoming(from, n)
	for i := range times {
		times[i] = times[i].Add(jitter)
	}
	return times, nil
}

// firedOf returns how many of its maxFirings an object has used. One that is not applied yet fires once more when it is created, if it says so.
func firedOf(o *skeinv1.ScheduledEffect) int64 {
	if o.UID == "" && o.Spec.RunOnCreation && !o.Spec.Suspend {
		return 1
	}
	return o.Status.Fired
}

// dueTime returns when a one-time effect is due. The delay of an object that is not applied yet counts from now.
func dueTime(o *skeinv1.ScheduledEffect, now time.Time) (time.Time, error) {
	switch {
	case len(o.Spec.Schedules) > 0:
		return time.Time{}, nil
	case o.Spec.At != nil:
		return o.Spec.At.Time, nil
	case o.Spec.After != nil && o.Status.ScheduledAt > 0:
		return time.UnixMicro(o.Status.ScheduledAt), nil
	case o.Spec.After != nil && !o.CreationTimestamp.IsZero():
		return o.CreationTimestamp.Add(o.Spec.After.Duration), nil
	case o.Spec.After != nil:
		return now.Add(o.Spec.After.Duration), nil
	}
	return time.Time{}, errors.New("spec: set exactly one of at, after and schedules")
}
