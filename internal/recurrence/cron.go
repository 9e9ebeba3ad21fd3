package recurrence

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// horizon is how many days Next looks ahead. 29 February on a given weekday occurs at least once in 40 years.
const horizon = 41 * 366

// descriptors are the names of frequent expressions.
var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// star is the bit by which the cron library marks a field that is a wildcard without a step.
const star = 1 << 63

// expression is a cron expression in a time zone.
type expression struct {
	*cron.SpecSchedule
	loc *time.Location
	// elapsed reports that the hour is a wildcard or has a step.
	elapsed bool
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

var spaces = regexp.MustCompile(`\s+`)

func parseCron(text string, loc *time.Location) (*expression, error) {
	fields := spaces.Split(strings.TrimSpace(text), -1)
	if strings.Contains(fields[0], "=") {
		return nil, fmt.Errorf("schedule %q: set spec.timeZone instead of a time zone within the schedule", text)
	}
	if len(fields) != 5 {
		return nil, fmt.Errorf("schedule %q has %d fields: write five (minute, hour, day of the month, month, day of the week) such as \"30 9 * * MON-FRI\", "+
			"a name such as @hourly or @daily, or @every with a duration such as \"@every 10m\"", text, len(fields))
	}
	s, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, fmt.Errorf("schedule %q: %s", text, wrongField(fields, err))
	}
	spec, ok := s.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("schedule %q is not a cron expression", text)
	}
	e := &expression{SpecSchedule: spec, loc: loc, elapsed: strings.ContainsAny(fields[1], "*/?")}
	if !e.possible() {
		return nil, fmt.Errorf("schedule %q is never due: none of its months has such a day", text)
	}
	return e, nil
}

// fieldsOf describes the fields of an expression in their order.
var fieldsOf = []struct{ name, values string }{
	{"minute", "numbers from 0 to 59"},
	{"hour", "numbers from 0 to 23"},
	{"day of the month", "numbers from 1 to 31"},
	{"month", "numbers from 1 to 12 or names such as JAN"},
	{"day of the week", "numbers from 0, which is Sunday, to 6 or names such as SUN"},
}

// wrongField returns a text that says which field the parser does not understand, and what to write there.
func wrongField(fields []string, err error) string {
	for i, f := range fields {
		alone := slices.Repeat([]string{"*"}, len(fields))
		alone[i] = f
		if _, err := parser.Parse(strings.Join(alone, " ")); err != nil {
			return fmt.Sprintf("the %s %q is wrong: write %s, a range from the lower to the higher one, a list with commas, or * or a range with a step such as */2",
				fieldsOf[i].name, f, fieldsOf[i].values)
		}
	}
	return err.Error()
}

// possible reports whether any date matches.
func (e *expression) possible() bool {
	for d := (date{2000, time.January, 1}); d.year < 2001; d = d.add(1) { // a leap year
		if has(e.Month, int(d.month)) && (has(e.Dom, d.day) || (e.Dom&star == 0 && e.Dow&star == 0)) {
			return true
		}
	}
	return false
}

func has(bits uint64, n int) bool { return bits&(1<<uint(n)) != 0 }

// matches reports whether the expression is due on a date. As in every cron, when both the day of the month and the day
// of the week are restricted, one of them suffices.
func (e *expression) matches(d date) bool {
	if !has(e.Month, int(d.month)) {
		return false
	}
	dom, dow := has(e.Dom, d.day), has(e.Dow, int(d.weekday()))
	if e.Dom&star != 0 || e.Dow&star != 0 {
		return dom && dow
	}
	return dom || dow
}

// names reports whether the expression names the local time of an instant.
func (e *expression) names(t time.Time) bool {
	local := t.In(e.loc)
	return has(e.Minute, local.Minute()) && has(e.Hour, local.Hour()) && e.matches(dateOf(local))
}

// coveredUntil returns the end of the day, the hour or the minute of an instant: the longest of them all of whose minutes the expression
// names, if it names that instant. Where clocks change before that, it is the change.
func (e *expression) coveredUntil(t time.Time) time.Time {
	const minutes, hours = 1<<60 - 1, 1<<24 - 1
	end := t.Truncate(time.Minute).Add(time.Minute)
	if e.Minute&minutes != minutes {
		return end
	}
	local := t.In(e.loc)
	rest := time.Hour - time.Duration(local.Minute())*time.Minute - time.Duration(local.Second())*time.Second - time.Duration(local.Nanosecond())
	if e.Hour&hours == hours {
		rest += time.Duration(23-local.Hour()) * time.Hour
	}
	longer := t.Add(rest)
	// The local time passes as time does until clocks change. That may be within an hour, so that the next hour begins twice.
	if _, change := local.ZoneBounds(); !change.IsZero() && change.Before(longer) {
		longer = change
	}
	return later(end, longer)
}

// Next implements Schedule.
func (e *expression) Next(after time.Time) time.Time {
	local := after.In(e.loc)
	// The day before is looked at too: a date that a time zone skips is due on the following one.
	for d, n := dateOf(local).add(-1), 0; n < horizon; d, n = d.add(1), n+1 {
		if !e.matches(d) {
			continue
		}
		next := e.fixed(d, after)
		if e.elapsed {
			next = e.walk(d, after)
		}
		if !next.IsZero() {
			return next
		}
	}
	return time.Time{}
}

// fixed returns the first due time of a date after an instant, by local time.
func (e *expression) fixed(d date, after time.Time) time.Time {
	for hour := range 24 {
		if !has(e.Hour, hour) || !resolve(d, hour, 59, e.loc).After(after) {
			continue
		}
		for minute := range 60 {
			if !has(e.Minute, minute) {
				continue
			}
			if t := resolve(d, hour, minute, e.loc); t.After(after) {
				return t
			}
		}
	}
	return time.Time{}
}

// walk returns the first due time of a date after an instant, by elapsed time. It looks at each minute from the evening before, because an
// hour of the date may come twice, or not at all.
func (e *expression) walk(d date, after time.Time) time.Time {
	// No zone changes its offset by more than a day, so that the date is within these bounds.
	noon := time.Date(d.year, d.month, d.day, 12, 0, 0, 0, e.loc)
	t := noon.Add(-36 * time.Hour)
	if first := after.Truncate(time.Minute).Add(time.Minute); first.After(t) {
		t = first
	}
	for end := noon.Add(36 * time.Hour); t.Before(end); {
		local := t.In(e.loc)
		switch on := dateOf(local); {
		case before(on, d) && local.Hour() < 21:
			t = t.Add(time.Hour)
		case on == d && has(e.Hour, local.Hour()) && has(e.Minute, local.Minute()) && local.Second() == 0:
			return t
		case before(d, on):
			return time.Time{}
		case local.Second() != 0: // an offset of the nineteenth century
			t = t.Add(time.Duration(60-local.Second()) * time.Second)
		default:
			t = t.Add(time.Minute)
		}
	}
	return time.Time{}
}

func before(a, b date) bool {
	if a.year != b.year {
		return a.year < b.year
	}
	if a.month != b.month {
		return a.month < b.month
	}
	return a.day < b.day
}
