package scheduledeffect

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/skein-dev/skein/internal/recurrence"
)

// limitOfDay returns which daily limit keeps the due times of a day from firing, or "".
func (d *schedule) limitOfDay(day string) string {
	limit := d.object.Spec.DailyLimit
	if limit == nil {
		return ""
	}
	if fired := d.firedOn(day); limit.Firings != nil && fired >= *limit.Firings {
		return fmt.Sprintf("%d firings on %s, which is the limit", fired, day)
	}
	if limit.Cost != nil {
		most, err := strconv.ParseFloat(*limit.Cost, 64)
		if cost := d.spent[day]; err == nil && billionths(cost) >= billionths(most) {
			return fmt.Sprintf("the cost of %s has reached the limit of %s", day, *limit.Cost) // the cost may still grow: see stillHolds
		}
	}
	return ""
}

// limitedNow returns which daily limit keeps the next due time from firing, and when its day ends; "" if none does.
func (d *schedule) limitedNow() (why string, ends time.Time) {
	if d.object.Spec.DailyLimit == nil || d.over {
		return "", ends
	}
	next := d.plan.Next(time.UnixMicro(d.now.Cursor))
	if next.IsZero() {
		return "", ends
	}
	if why = d.limitOfDay(d.dayOf(next)); why == "" {
		return "", ends
	}
	_, ends = d.dayBounds(next)
	return why, ends.In(d.zone())
}

// billionths returns an amount in the unit in which amounts are compared, the smallest that a limit can have. 0.1 and 0.7 are a little
// less than 0.8.
func billionths(amount float64) float64 { return math.Round(amount * 1e9) }

// firedOn returns how many due times of a day have fired. Only the newest day is counted.
func (d *schedule) firedOn(day string) int64 {
	if day != d.now.Day {
		return 0
	}
	return d.now.DayFired
}

// day starts to count the day of a due time.
func (b *batch) day(due time.Time) {
	if day := b.dayOf(due); day != b.now.Day {
		b.now.Day, b.now.DayFired = day, 0
	}
}

func (d *schedule) dayOf(t time.Time) string { return t.In(d.zone()).Format(time.DateOnly) }

// zone returns the time zone of the schedule.
func (d *schedule) zone() *time.Location {
	loc, err := recurrence.Location(d.object.Spec.TimeZone)
	if err != nil {
		return time.UTC
	}
	return loc
}

// longestDay is more than any day has: clocks are set back and, rarely, the date is.
const longestDay = 50 * time.Hour

// dayBounds returns when the day of a time begins, and when the next one does. Neither need be at 00:00, which some days do not have.
func (d *schedule) dayBounds(t time.Time) (begins, ends time.Time) {
	loc := d.zone()
	day := t.In(loc).Format(time.DateOnly)
	t = t.Truncate(time.Second)
	first := func(from time.Time, is func(date string) bool) time.Time {
		n := sort.Search(int(longestDay/time.Second), func(i int) bool {
			return is(from.Add(time.Duration(i) * time.Second).In(loc).Format(time.DateOnly))
		})
		return from.Add(time.Duration(n) * time.Second)
	}
	return first(t.Add(-longestDay), func(date string) bool { return date >= day }), first(t, func(date string) bool { return date > day })
}

// costsOfDays returns what the firings of each day cost, those by hand and those under way included, when a limit asks for it. It looks at the days of the due times
// that have passed, of the last one before them and of the next one.
func (r *Reconciler) costsOfDays(ctx context.Context, d *schedule) (map[string]float64, error) {
	if l := d.object.Spec.DailyLimit; l == nil || l.Cost == nil {
		return nil, nil
	}
	cursor := time.UnixMicro(d.now.Cursor)
	times := slices.Concat([]time.Time{cursor}, d.plan.Since(cursor, r.Clock.Now().Add(-d.jitter), d.keep()).Newest)
	if next := d.plan.Next(cursor); !next.IsZero() {
		times = append(times, next)
	}
	spent := map[string]float64{}
	for _, at := range times {
		day := d.dayOf(at)
		if _, known := spent[day]; known {
			continue
		}
		begins, ends := d.dayBounds(at)
		cost, err := r.Store.FiringCost(ctx, d.now.EffectID, begins.UnixMicro(), ends.UnixMicro())
		if err != nil {
			return nil, fmt.Errorf("read the cost of the day: %w", err)
		}
		spent[day] = cost
	}
	return spent, nil
}

// costsSince returns the time from which the costs of firings may be needed: the beginning of the day of the next due time, or of today
// if that is earlier.
func (d *schedule) costsSince() time.Time {
	from := d.at
	if next := d.plan.Next(time.UnixMicro(d.now.Cursor)); !next.IsZero() && next.Before(from) {
		from = next
	}
	begins, _ := d.dayBounds(from)
	return begins
}
