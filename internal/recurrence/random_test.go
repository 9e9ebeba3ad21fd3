package recurrence_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/recurrence"
)

// field is a field of a cron expression, and what it means.
type field struct {
	text   string
	values []int // nil means any
}

// anyField draws a field whose values are from low to high. names are those of its values, if they have any.
func anyField(low, high int, names ...string) *rapid.Generator[field] {
	return rapid.Custom(func(t *rapid.T) field {
		name := func(v int) string {
			if len(names) > 0 && rapid.Bool().Draw(t, "by name") {
				return names[v-low]
			}
			return strconv.Itoa(v)
		}
		value := rapid.IntRange(low, high)
		var texts []string
		values, wild := []int{}, false
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "parts") {
			first, last, step := low, high, 1
			var text string
			switch rapid.SampledFrom([]string{"any", "any", "one", "one", "range", "from", "step"}).Draw(t, "part") {
			case "any":
				text = rapid.SampledFrom([]string{"*", "*", "?", "*/1"}).Draw(t, "wildcard")
				wild = true
			case "one":
				first = value.Draw(t, "value")
				last, text = first, name(first)
			case "range":
				first = value.Draw(t, "first")
				last = rapid.IntRange(first, high).Draw(t, "last")
				text = name(first) + "-" + name(last)
				if rapid.Bool().Draw(t, "steps") {
					step = rapid.IntRange(1, high).Draw(t, "step")
					text += fmt.Sprintf("/%d", step)
				}
			case "from":
				first, step = value.Draw(t, "first"), rapid.IntRange(1, high).Draw(t, "step")
				text = fmt.Sprintf("%s/%d", name(first), step)
			case "step":
				step = rapid.IntRange(2, high).Draw(t, "step")
				text = fmt.Sprintf("*/%d", step)
			}
			texts = append(texts, text)
			for v := first; v <= last; v += step {
				values = append(values, v)
			}
		}
		if wild {
			values = nil
		}
		return field{strings.Join(texts, ","), values}
	})
}

// anyRule draws a cron expression.
func anyRule() *rapid.Generator[*rule] {
	return rapid.Custom(func(t *rapid.T) *rule {
		minute, hour, day := anyField(0, 59).Draw(t, "minute"), anyField(0, 23).Draw(t, "hour"), anyField(1, 31).Draw(t, "day")
		month := anyField(1, 12, "JAN", "feb", "MAR", "APR", "May", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC").Draw(t, "month")
		weekday := anyField(0, 6, "SUN", "MON", "tue", "WED", "THU", "Fri", "SAT").Draw(t, "weekday")
		r := &rule{
			text:    strings.Join([]string{minute.text, hour.text, day.text, month.text, weekday.text}, " "),
			minutes: minute.values, hours: hour.values, days: day.values, months: month.values, weekdays: weekday.values,
			keepsIntervals: strings.ContainsAny(hour.text, "*/?"),
		}
		r.prepare()
		return r
	})
}

// possible reports whether any day matches, as 30 February does not.
func (r *rule) possible() bool {
	for day := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == 2000; day = day.AddDate(0, 0, 1) { // a leap year
		if r.monthSet[day.Month()] && (r.daySet[day.Day()] || r.restrictsDay && r.restrictsWeekday) {
			return true
		}
	}
	return false
}

// window draws the time in which due times are compared. It often has a change of the clock.
func window(t *rapid.T, loc *time.Location) (from, until time.Time) {
	minutes := rapid.Int64Range(time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC).Unix()/60, time.Date(2035, 1, 1, 0, 0, 0, 0, time.UTC).Unix()/60)
	from = time.Unix(minutes.Draw(t, "from")*60, 0).In(loc)
	if _, change := from.ZoneBounds(); !change.IsZero() && rapid.IntRange(0, 3).Draw(t, "near a change") > 0 {
		// The tables of some zones have a last change, which changes nothing, in the middle of a minute.
		from = change.Truncate(time.Minute).Add(-time.Duration(rapid.IntRange(0, 36*60).Draw(t, "before")) * time.Minute)
	}
	return from.UTC(), from.UTC().Add(3 * 24 * time.Hour)
}

// drawn is a random plan, and what it means.
type drawn struct {
	plan     recurrence.Plan
	rules    []*rule
	every    [][2]int64 // intervals and offsets in seconds
	excluded []func(local, t time.Time) bool
}

func draw(t *rapid.T, loc *time.Location, from, until time.Time) *drawn {
	d := &drawn{}
	add := func(text string) {
		s, err := recurrence.Parse(text, loc)
		if err != nil {
			t.Fatal(err)
		}
		d.plan.Schedules = append(d.plan.Schedules, s)
	}
	for _, r := range rapid.SliceOfN(anyRule(), 0, 3).Draw(t, "cron") {
		if !r.possible() {
			if _, err := recurrence.Parse(r.text, loc); err == nil || !strings.Contains(err.Error(), "is never due") {
				t.Fatalf("%s is never due: %v", r.text, err)
			}
			continue
		}
		d.rules = append(d.rules, r)
		add(r.text)
	}
	if len(d.rules) == 0 || rapid.IntRange(0, 3).Draw(t, "every") == 0 {
		interval := rapid.Int64Range(60, 40*3600).Draw(t, "interval")
		offset := rapid.Int64Range(0, interval-1).Draw(t, "offset")
		d.every = append(d.every, [2]int64{interval, offset})
		add(fmt.Sprintf("@every %ds/%ds", interval, offset))
	}
	for _, r := range rapid.SliceOfN(anyRule().Filter((*rule).possible), 0, 2).Draw(t, "exclusions") {
		x, err := recurrence.Except(r.text, loc)
		if err != nil {
			t.Fatal(err)
		}
		d.plan.Exclusions = append(d.plan.Exclusions, x)
		d.excluded = append(d.excluded, func(local, _ time.Time) bool { return r.matches(local) })
	}
	within := func(label string) time.Time {
		return from.Add(time.Duration(rapid.Int64Range(0, int64(until.Sub(from)/time.Second)).Draw(t, label)) * time.Second)
	}
	if rapid.Bool().Draw(t, "between") {
		start := within("start of an exclusion")
		end := start.Add(time.Duration(rapid.Int64Range(1, 48*3600).Draw(t, "length of an exclusion")) * time.Second)
		d.plan.Exclusions = append(d.plan.Exclusions, recurrence.Between(start, end))
		d.excluded = append(d.excluded, func(_, t time.Time) bool { return !t.Before(start) && t.Before(end) })
	}
	if rapid.Bool().Draw(t, "starts") {
		d.plan.Start = within("startTime")
	}
	// An end keeps Next from looking for a due time years ahead when the exclusions leave few.
	d.plan.End = until
	if rapid.Bool().Draw(t, "ends") {
		d.plan.End = within("endTime")
	}
	return d
}

// walk finds the due times by looking at each minute, and for intervals at each second.
func (d *drawn) walk(loc *time.Location, from, until time.Time) []time.Time {
	due := map[time.Time]bool{}
	add := func(t time.Time) {
		_, offset := t.In(loc).Zone()
		local := t.Add(time.Duration(offset) * time.Second)
		out := t.Before(d.plan.Start) || t.After(d.plan.End)
		for _, excluded := range d.excluded {
			out = out || excluded(local, t)
		}
		if !out {
			due[t] = true
		}
	}
	walk(loc, from, until, d.rules, func(_ *rule, t time.Time) { add(t) })
	for _, e := range d.every {
		for second := from.Unix(); second < until.Unix(); second++ {
			if (second-e[1])%e[0] == 0 {
				add(time.Unix(second, 0).UTC())
			}
		}
	}
	return slices.SortedFunc(maps.Keys(due), time.Time.Compare)
}

var _ = Describe("Random schedules", Label("EFF-03", "EFF-05"), func() {
	for _, zone := range zones {
		It("with exclusions and bounds are what a walk over every minute finds in "+zone, func() {
			loc, err := recurrence.Location(zone)
			Expect(err).NotTo(HaveOccurred())
			rapid.Check(GinkgoT(), func(t *rapid.T) {
				from, until := window(t, loc)
				d := draw(t, loc, from, until)
				want := d.walk(loc, from, until)
				at := from.Add(-time.Nanosecond)
				for _, w := range want {
					next := d.plan.Next(at)
					if !next.Equal(w) {
						t.Fatalf("after %s the walk is due at %s, the schedule at %s", at, w, next)
					}
					at = next
				}
				if next := d.plan.Next(at); !next.IsZero() && next.Before(until) {
					t.Fatalf("after %s the walk is never due, the schedule at %s", at, next)
				}

				keep := rapid.IntRange(0, 5).Draw(t, "keep")
				passed, older := d.plan.Since(from.Add(-time.Nanosecond), until.Add(-time.Nanosecond), keep), max(len(want)-keep, 0)
				if passed.Older != older || !slices.EqualFunc(passed.Newest, want[older:], time.Time.Equal) {
					t.Fatalf("%d due times have passed, and Since returns %+v", len(want), passed)
				}
				if older > 0 && (!passed.First.Equal(want[0]) || !passed.Last.Equal(want[older-1])) {
					t.Fatalf("the older ones are from %s to %s, and Since returns %+v", want[0], want[older-1], passed)
				}
			})
		})
	}
})
