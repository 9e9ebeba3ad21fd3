package recurrence

import "time"

// date is a day of the proleptic Gregorian calendar.
type date struct {
	year  int
	month time.Month
	day   int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, m, d}
}

// add returns the date some days later, or earlier when days is negative.
func (d date) add(days int) date {
	return dateOf(time.Date(d.year, d.month, d.day+days, 12, 0, 0, 0, time.UTC))
}

func (d date) weekday() time.Weekday {
	return time.Date(d.year, d.month, d.day, 12, 0, 0, 0, time.UTC).Weekday()
}

// resolve returns the instant of a local time: the first of two when the local time occurs twice, and the end of the
// gap when it does not exist.
func resolve(d date, hour, minute int, loc *time.Location) time.Time {
	t := time.Date(d.year, d.month, d.day, hour, minute, 0, 0, loc)
	if lh, lm, _ := t.Clock(); lh != hour || lm != minute || dateOf(t) != d {
		return endOfGap(t)
	}
	// time.Date does not say which of two instants it returns, so look for the same local time before a change of the
	// offset.
	start, _ := t.ZoneBounds()
	if start.IsZero() {
		return t
	}
	_, now := t.Zone()
	_, before := start.Add(-time.Nanosecond).In(loc).Zone()
	if earlier := t.Add(time.Duration(now-before) * time.Second); before > now && earlier.Before(start) {
		return earlier
	}
	return t
}

// endOfGap returns the change of the offset nearest to an instant that time.Date returned for a local time in the gap.
// That instant lies on one side of the change, by less than the length of the gap.
func endOfGap(t time.Time) time.Time {
	start, end := t.ZoneBounds()
	if end.IsZero() || (!start.IsZero() && t.Sub(start) < end.Sub(t)) {
		return start
	}
	return end
}
