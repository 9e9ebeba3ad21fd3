package recurrence

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Plan is the union of schedules, without exclusions, within bounds.
type Plan struct {
	Schedules  []Schedule
	Exclusions []Exclusion
	// Start and End bound the due times, both included. The zero time sets no bound.
	Start, End time.Time
}

// Exclusion is a set of instants that are not due.
type Exclusion struct {
	expression *expression // nil when Start and End are set
	start, end time.Time
}

// Except returns an exclusion of the minutes whose local time a cron expression names.
func Except(text string, loc *time.Location) (Exclusion, error) {
	s, err := Parse(text, loc)
	if err != nil {
		return Exclusion{}, err
	}
	e, ok := s.(*expression)
	if !ok {
		return Exclusion{}, fmt.Errorf("exclusion %q: write a cron expression such as \"* * 25 12 *\", which names all minutes of a day, or start and end", text)
	}
	return Exclusion{expression: e}, nil
}

// Between returns an exclusion of the instants from start until before end.
func Between(start, end time.Time) Exclusion { return Exclusion{start: start, end: end} }

// covers reports whether t is excluded, and until when: the end of the interval, or of the day, hour or minute that the expression names.
func (x Exclusion) covers(t time.Time) (until time.Time, covered bool) {
	if x.expression == nil {
		return x.end, !t.Before(x.start) && t.Before(x.end)
	}
	if !x.expression.names(t) {
		return until, false
	}
	return x.expression.coveredUntil(t), true
}

// Bounds of a search for a due time that is not excluded. A plan that excludes all of itself has none, and the search has to end.
const (
	// maxExcluded is how many excluded times Next passes. It is the number of minutes of a year, after which the months and days
	// of an exclusion of single minutes repeat.
	maxExcluded = 366 * 24 * 60
	// maxYears is how far Next looks for more than fewExcluded times. Within it, each date falls on each day of the week, 29 February too.
	maxYears    = 40
	fewExcluded = 1000
	// maxWork is how many schedules and exclusions Next looks at, for all excluded times together. It takes about a second of a slow
	// processor, so that one object with many of both cannot hold up the schedules of others.
	maxWork = 1_000_000
)

// Next returns the first due time after an instant, or the zero time if there is none.
func (p *Plan) Next(after time.Time) time.Time {
	if !p.Start.IsZero() && after.Before(p.Start) {
		after = p.Start.Add(-time.Nanosecond)
	}
	next, other := p.nextCron(after), p.nextOther(after)
	if next.IsZero() || !other.IsZero() && other.Before(next) {
		return other
	}
	return next
}

// nextCron is Next for the cron expressions among the schedules. It passes whole days on which each due time is excluded.
func (p *Plan) nextCron(after time.Time) time.Time {
	var day time.Time // until when emptyUntil need not be asked again
	return p.nextAmong(after, isCron, func(due time.Time) (end time.Time) {
		if due.Before(day) {
			return end
		}
		if end = p.emptyUntil(due); end.IsZero() {
			day = due.Add(24 * time.Hour)
		} else {
			day = end
		}
		return end
	})
}

// nextOther is Next for the schedules that are no cron expressions.
func (p *Plan) nextOther(after time.Time) time.Time {
	return p.nextAmong(after, func(s Schedule) bool { return !isCron(s) }, func(time.Time) (end time.Time) { return end })
}

func isCron(s Schedule) bool {
	_, is := s.(*expression)
	return is
}

// nextAmong is Next for the schedules that among selects. emptyUntil returns the time before which all that is due after an excluded due
// time is excluded too, or the zero time.
func (p *Plan) nextAmong(after time.Time, among func(Schedule) bool, emptyUntil func(due time.Time) time.Time) time.Time {
	begin, looks := after, len(p.Schedules)+len(p.Exclusions)
	for n := range min(maxExcluded, maxWork/max(looks, 1)) {
		var next time.Time
		for _, s := range p.Schedules {
			if !among(s) {
				continue
			}
			if t := s.Next(after); !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
		if next.IsZero() || (!p.End.IsZero() && next.After(p.End)) || (n > fewExcluded && next.After(begin.AddDate(maxYears, 0, 0))) {
			return time.Time{}
		}
		until, covered := p.excluded(next)
		if !covered {
			return next.UTC()
		}
		after = later(until, emptyUntil(next)).Add(-time.Nanosecond)
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// emptyUntil returns the end of the day of an instant when the exclusions that are cron expressions name each minute of that day that the
// schedules name. Else it returns the zero time, as on a day on which clocks change. Without it, a plan that excludes all of itself
// would be searched minute by minute.
func (p *Plan) emptyUntil(t time.Time) (end time.Time) {
	const minutes = 1<<60 - 1
	var loc *time.Location
	var due, out [24]uint64 // the minutes of each hour
	name := func(e *expression, in *[24]uint64) (same bool) {
		if loc == nil {
			loc = e.loc
		}
		if d := dateOf(t.In(loc)); e.matches(d) {
			for hour := range in {
				if has(e.Hour, hour) {
					in[hour] |= e.Minute
				}
			}
		}
		return e.loc == loc
	}
	for _, s := range p.Schedules {
		if e, ok := s.(*expression); ok && !name(e, &due) {
			return end
		}
	}
	for _, x := range p.Exclusions {
		if x.expression != nil && !name(x.expression, &out) {
			return end
		}
	}
	for hour := range due {
		if due[hour]&^out[hour]&minutes != 0 {
			return end
		}
	}
	d := dateOf(t.In(loc))
	first, last := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, loc), time.Date(d.year, d.month, d.day+1, 0, 0, 0, 0, loc)
	if from, to := first.ZoneBounds(); !from.IsZero() && !from.Before(first) || !to.IsZero() && to.Before(last) {
		return end
	}
	return last
}

// excluded reports whether an instant is excluded, and until when.
func (p *Plan) excluded(t time.Time) (until time.Time, covered bool) {
	for _, x := range p.Exclusions {
		if end, ok := x.covers(t); ok {
			covered = true
			if end.After(until) {
				until = end
			}
		}
	}
	return until, covered
}

// Upcoming returns up to n due times after an instant.
func (p *Plan) Upcoming(after time.Time, n int) []time.Time {
	var out []time.Time
	for len(out) < n {
		next := p.Next(after)
		if next.IsZero() {
			break
		}
		out = append(out, next)
		after = next
	}
	return out
}

// Passed is what Since returns.
type Passed struct {
	// Newest are the newest of the due times, in order.
	Newest []time.Time
	// Older is how many came before those. The first was due at First, and the last at Last.
	Older       int
	First, Last time.Time
}

// Since returns the due times after an instant, up to and including another: the newest of them, at most keep, and how
// many came before these. The cost grows with the number of due times, but not for @every.
func (p *Plan) Since(after, until time.Time, keep int) Passed {
	var out Passed
	if skipTo, n, first := p.skip(after, until, keep); n > 0 {
		out.Older, out.First = n, first
		out.Last = skipTo
		after = skipTo
	}
	for t := p.Next(after); !t.IsZero() && !t.After(until); t = p.Next(t) {
		out.Newest = append(out.Newest, t)
		if len(out.Newest) <= keep {
			continue
		}
		if out.Older == 0 {
			out.First = out.Newest[0]
		}
		out.Older++
		out.Last = out.Newest[0]
		out.Newest = out.Newest[1:]
	}
	return out
}

// skip counts by arithmetic, for a plan that is a single @every without exclusions, the due times of Since that are older than the newest
// keep. It returns the last of them, how many they are, and the first. n is 0 when Since must enumerate all.
func (p *Plan) skip(after, until time.Time, keep int) (last time.Time, n int, first time.Time) {
	if len(p.Schedules) != 1 || len(p.Exclusions) > 0 {
		return last, 0, first
	}
	e, ok := p.Schedules[0].(every)
	if !ok {
		return last, 0, first
	}
	if !p.End.IsZero() && until.After(p.End) {
		until = p.End
	}
	first = p.Next(after)
	if first.IsZero() || first.After(until) {
		return last, 0, first
	}
	all := int(until.Sub(first)/e.interval) + 1
	if n = all - keep; n <= 0 {
		return last, 0, first
	}
	return first.Add(time.Duration(n-1) * e.interval), n, first
}

// Jitter returns the delay of an object's due times, from 0 up to but excluding limit. It depends on the key alone, so
// that it is the same for each firing and after a restart.
func Jitter(key string, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return time.Duration(mix(h.Sum64()) % uint64(limit)).Truncate(time.Microsecond)
}

// mix spreads the low bits of a hash (the finaliser of MurmurHash3), because keys that differ in their last byte only
// would get almost equal delays.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Bounds returns an error when the end of a plan is before its start.
func (p *Plan) Bounds() error {
	if !p.Start.IsZero() && !p.End.IsZero() && p.End.Before(p.Start) {
		return fmt.Errorf("endTime %s is before startTime %s", p.End.Format(time.RFC3339), p.Start.Format(time.RFC3339))
	}
	return nil
}
