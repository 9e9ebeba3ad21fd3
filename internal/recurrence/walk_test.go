package recurrence_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/recurrence"
)

// zones differ in whether, when and by how much their clocks change.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe",
	"Africa/Cairo", "America/Havana", "Pacific/Chatham",
}

// rule is a cron expression as sets, written by hand, so that the walk does not depend on a parser.
type rule struct {
	text                           string
	minutes, hours, months         []int // nil means any
	days, weekdays                 []int
	keepsIntervals                 bool
	minuteSet, hourSet, monthSet   [60]bool
	daySet, weekdaySet             [60]bool
	restrictsDay, restrictsWeekday bool
}

func (r *rule) prepare() {
	fill := func(set *[60]bool, values []int) {
		for i := range set {
			set[i] = values == nil
		}
		for _, v := range values {
			set[v] = true
		}
	}
	fill(&r.minuteSet, r.minutes)
	fill(&r.hourSet, r.hours)
	fill(&r.monthSet, r.months)
	fill(&r.daySet, r.days)
	fill(&r.weekdaySet, r.weekdays)
	r.restrictsDay, r.restrictsWeekday = r.days != nil, r.weekdays != nil
}

// matches reports whether the expression names a local time, which is given as if it were in UTC.
func (r *rule) matches(local time.Time) bool {
	if !r.minuteSet[local.Minute()] || !r.hourSet[local.Hour()] || !r.monthSet[local.Month()] {
		return false
	}
	day, weekday := r.daySet[local.Day()], r.weekdaySet[local.Weekday()]
	if r.restrictsDay && r.restrictsWeekday {
		return day || weekday
	}
	return day && weekday
}

// walk finds the due times of rules by looking at each minute.
func walk(loc *time.Location, from, until time.Time, rules []*rule, due func(*rule, time.Time)) {
	localOf := func(t time.Time) time.Time {
		_, offset := t.In(loc).Zone()
		return t.Add(time.Duration(offset) * time.Second).UTC()
	}
	newest := localOf(from.Add(-time.Minute)) // the latest local time seen so far
	for t := from; t.Before(until); t = t.Add(time.Minute) {
		local := localOf(t)
		for _, r := range rules {
			switch {
			case r.keepsIntervals:
				if r.matches(local) {
					due(r, t)
				}
			default:
				for l := newest.Add(time.Minute); !l.After(local); l = l.Add(time.Minute) { // more than one after a gap
					if r.matches(l) {
						due(r, t)
						break
					}
				}
			}
		}
		if local.After(newest) {
			newest = local
		}
	}
}

var _ = Describe("Ten years of schedules", Label("EFF-03"), func() {
	from, until := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range zones {
		It("are what a walk over every minute finds in "+zone, func() {
			loc, err := recurrence.Location(zone)
			Expect(err).NotTo(HaveOccurred())
			rules := []*rule{
				{text: "30 2 * * *", minutes: []int{30}, hours: []int{2}},
				{text: "0,30 0-3 * * SUN", minutes: []int{0, 30}, hours: []int{0, 1, 2, 3}, weekdays: []int{0}},
				{text: "0 0 1,15 * MON", minutes: []int{0}, hours: []int{0}, days: []int{1, 15}, weekdays: []int{1}},
				{text: "17 */3 * * *", minutes: []int{17}, hours: []int{0, 3, 6, 9, 12, 15, 18, 21}, keepsIntervals: true},
				{text: "*/20 * 25-31 3,10 *", minutes: []int{0, 20, 40}, days: []int{25, 26, 27, 28, 29, 30, 31}, months: []int{3, 10}, keepsIntervals: true},
				{text: "59 23 31 12 *", minutes: []int{59}, hours: []int{23}, days: []int{31}, months: []int{12}},
			}
			next := map[*rule]time.Time{}
			plans := map[*rule]*recurrence.Plan{}
			found := 0
			for _, r := range rules {
				r.prepare()
				plans[r] = plan(zone, r.text)
				next[r] = plans[r].Next(from.Add(-time.Second))
			}
			walk(loc, from, until, rules, func(r *rule, t time.Time) {
				if !next[r].Equal(t) {
					Fail(r.text + ": the walk is due at " + t.String() + ", the schedule at " + next[r].String())
				}
				next[r] = plans[r].Next(t)
				found++
			})
			for _, r := range rules {
				Expect(next[r]).To(BeTemporally(">=", until), r.text)
			}
			Expect(found).To(BeNumerically(">", 30000))
		})
	}
})
