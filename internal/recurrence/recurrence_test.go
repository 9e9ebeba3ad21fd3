package recurrence_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/recurrence"
)

func TestRecurrence(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "recurrence")
}

func plan(zone string, texts ...string) *recurrence.Plan {
	GinkgoHelper()
	loc, err := recurrence.Location(zone)
	Expect(err).NotTo(HaveOccurred())
	p := &recurrence.Plan{}
	for _, text := range texts {
		s, err := recurrence.Parse(text, loc)
		Expect(err).NotTo(HaveOccurred())
		p.Schedules = append(p.Schedules, s)
	}
	return p
}

func at(text string) time.Time {
	GinkgoHelper()
	t, err := time.Parse(time.RFC3339, text)
	Expect(err).NotTo(HaveOccurred())
	return t.UTC()
}

func texts(times []time.Time) (out []string) {
	for _, t := range times {
		out = append(out, t.UTC().Format(time.RFC3339))
	}
	return out
}

var _ = Describe("Schedules", Label("EFF-03"), func() {
	It("are due at no time before the start, however far away that is", func() {
		p := plan("", "@every 1h")
		p.Start = at("2500-01-01T00:00:00Z")
		Expect(texts(p.Upcoming(at("2026-11-01T00:00:00Z"), 2))).To(Equal([]string{"2500-01-01T00:00:00Z", "2500-01-01T01:00:00Z"}))
		Expect(p.Since(at("2026-11-01T00:00:00Z"), at("2026-11-02T00:00:00Z"), 10)).To(Equal(recurrence.Passed{}))
	})

	// excluding returns a plan of New York.
	excluding := func(schedules, exclusions []string) *recurrence.Plan {
		GinkgoHelper()
		loc, err := recurrence.Location("America/New_York")
		Expect(err).NotTo(HaveOccurred())
		p := &recurrence.Plan{}
		for _, text := range schedules {
			s, err := recurrence.Parse(text, loc)
			Expect(err).NotTo(HaveOccurred())
			p.Schedules = append(p.Schedules, s)
		}
		for _, text := range exclusions {
			x, err := recurrence.Except(text, loc)
			Expect(err).NotTo(HaveOccurred())
			p.Exclusions = append(p.Exclusions, x)
		}
		return p
	}

	It("that exclude all of themselves are searched for days, not for minutes", func() {
		var schedules, exclusions []string
		for minute := range 20 {
			schedules = append(schedules, fmt.Sprintf("%d-59 * * * *", minute))
		}
		for minute := range 49 {
			exclusions = append(exclusions, fmt.Sprintf("%d * * * *", minute))
		}
		exclusions = append(exclusions, "49-59 * * * *")
		Expect(excluding(schedules, exclusions).Next(at("2026-11-01T00:00:00Z"))).To(BeZero())
		Expect(excluding(schedules, exclusions[1:]).Next(at("2026-11-01T00:30:00Z"))).To(Equal(at("2026-11-01T01:00:00Z")))
	})

	DescribeTable("pass no due time with the days that they exclude", func(begin string) {
		// Only Sundays, on which clocks change, and Mondays after 21:00 have times that are not excluded. Some are due at the end of a gap.
		schedules := []string{"*/20 * * * *", "30 2 * * *", "10 22 * * MON"}
		exclusions := []string{"*/20 * * * MON-SAT", "30 * * * MON-SAT", "0 * * * SUN"}
		loc, err := recurrence.Location("America/New_York")
		Expect(err).NotTo(HaveOccurred())
		var want []time.Time
		for _, t := range excluding(schedules, nil).Upcoming(at(begin), 1500) {
			local := t.In(loc)
			sunday := local.Weekday() == time.Sunday
			if sunday && local.Minute() != 0 || !sunday && local.Minute()%20 != 0 && local.Minute() != 30 {
				want = append(want, t)
			}
		}
		Expect(len(want)).To(BeNumerically(">", 100))
		Expect(excluding(schedules, exclusions).Upcoming(at(begin), len(want))).To(Equal(want))
	},
		Entry("when clocks go forward", "2027-03-05T12:00:00Z"),
		Entry("when clocks go back", "2026-10-28T12:00:00Z"),
	)

	It("end with the last year that can be written", func() {
		Expect(texts(plan("", "@every 1h").Upcoming(at("9999-12-31T22:30:00Z"), 5))).To(Equal([]string{"9999-12-31T23:00:00Z"}))
	})

	DescribeTable("are due at", func(zone, schedule, after string, want ...string) {
		Expect(texts(plan(zone, schedule).Upcoming(at(after), len(want)))).To(Equal(want))
	},
		Entry("names of days", "", "30 9 * * MON-FRI", "2026-11-20T09:30:00Z", "2026-11-23T09:30:00Z", "2026-11-24T09:30:00Z"),
		Entry("names of months", "", "0 0 1 JAN,jul *", "2026-02-01T00:00:00Z", "2026-07-01T00:00:00Z", "2027-01-01T00:00:00Z"),
		Entry("a day of the month or of the week", "", "0 0 13 * FRI", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"),
		Entry("29 February", "", "0 0 29 2 *", "2026-11-01T00:00:00Z", "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"),
		Entry("@hourly", "Europe/Berlin", "@hourly", "2026-11-01T00:10:00Z", "2026-11-01T01:00:00Z"),
		Entry("@daily", "Asia/Tokyo", "@daily", "2026-11-01T00:10:00Z", "2026-11-01T15:00:00Z"),
		Entry("@every", "", "@every 90m", "1970-01-01T00:00:00Z", "1970-01-01T01:30:00Z", "1970-01-01T03:00:00Z"),
		Entry("@every with an offset", "", "@every 1h/15m", "2026-11-01T00:15:00Z", "2026-11-01T01:15:00Z"),
		Entry("@every before 1970", "", "@every 1h", "1969-12-31T22:30:00Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"),
		Entry("@every in a time far away", "", "@every 1h", "2500-01-01T00:30:00Z", "2500-01-01T01:00:00Z", "2500-01-01T02:00:00Z"),
		Entry("@every in a time long ago", "", "@every 1h/15m", "0001-01-01T00:30:00Z", "0001-01-01T01:15:00Z", "0001-01-01T02:15:00Z"),

		// The clock of Berlin goes from 02:00 to 03:00 on 2027-03-28, and from 03:00 back to 02:00 on 2027-10-31.
		Entry("a fixed hour in the gap", "Europe/Berlin", "30 2 * * *", "2027-03-27T12:00:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"),
		Entry("a fixed hour that occurs twice", "Europe/Berlin", "30 2 * * *", "2027-10-30T12:00:00Z", "2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"),
		Entry("two times in one gap", "Europe/Berlin", "15,45 2 28 3 *", "2027-01-01T12:00:00Z", "2027-03-28T01:00:00Z", "2028-03-28T00:15:00Z"),
		Entry("a wildcard over the gap", "Europe/Berlin", "0 * * * *", "2027-03-28T00:00:00Z", "2027-03-28T01:00:00Z", "2027-03-28T02:00:00Z"),
		Entry("a wildcard over the hour that occurs twice", "Europe/Berlin", "0 * * * *", "2027-10-31T00:00:00Z", "2027-10-31T01:00:00Z", "2027-10-31T02:00:00Z"),
		Entry("a step over the gap", "Europe/Berlin", "0 */2 * * *", "2027-03-27T23:30:00Z", "2027-03-28T02:00:00Z", "2027-03-28T04:00:00Z"),
		// New York: from 02:00 to 03:00 on 2027-03-14, and from 02:00 back to 01:00 on 2027-11-07.
		Entry("a fixed hour in the gap of New York", "America/New_York", "30 2 * * *", "2027-03-13T12:00:00Z", "2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"),
		Entry("a fixed hour that occurs twice in New York", "America/New_York", "30 1 * * *", "2027-11-06T12:00:00Z", "2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"),
		// Lord Howe Island changes by half an hour: from 02:00 to 02:30 on 2027-10-03, and from 02:00 back to 01:30 on 2027-04-04.
		Entry("a fixed time in a gap of half an hour", "Australia/Lord_Howe", "15 2 * * *", "2027-10-02T00:00:00Z", "2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"),
		Entry("a wildcard over half an hour that occurs twice", "Australia/Lord_Howe", "45 * * * *", "2027-04-03T14:00:00Z", "2027-04-03T14:45:00Z", "2027-04-03T15:15:00Z", "2027-04-03T16:15:00Z"),
		Entry("a date that a zone skipped", "Pacific/Apia", "0 9 30 12 *", "2011-06-01T00:00:00Z", "2011-12-30T10:00:00Z", "2012-12-29T19:00:00Z"),
		Entry("a midnight that does not exist", "Africa/Cairo", "0 0 * * *", "2027-04-29T00:00:00Z", "2027-04-29T22:00:00Z", "2027-04-30T21:00:00Z"),
	)

	DescribeTable("that are wrong say what to write", func(schedule, want string) {
		_, err := recurrence.Parse(schedule, time.UTC)
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("30 February", "0 0 30 2 *", "is never due: none of its months has such a day"),
		Entry("31 April", "0 0 31 4 *", "is never due"),
		Entry("seconds", "0 0 9 * * *", "has 6 fields: write five"),
		Entry("nothing", "", "has 1 fields"),
		Entry("an hour of 25", "0 25 * * *", `schedule "0 25 * * *": the hour "25" is wrong: write numbers from 0 to 23, a range`),
		Entry("a range that is reversed", "0 9 * * FRI-MON", `the day of the week "FRI-MON" is wrong: write numbers from 0, which is Sunday, to 6 or names such as SUN, a range from the lower to the higher one`),
		Entry("a word", "tomorrow", "write five"),
		Entry("a name", "@fortnightly", "write @yearly, @monthly"),
		Entry("a zone in the schedule", "TZ=UTC 0 9 * * *", "set spec.timeZone"),
		Entry("@every without a duration", "@every", `such as "@every 10m"`),
		Entry("@every too often", "@every 10ms", "an interval of at least 1s"),
		Entry("@every backwards", "@every -1h", "an interval of at least 1s"),
		Entry("@every in days", "@every 1d", `schedule "@every 1d": "1d" is not a duration: its units are h, m and s; for days write hours, as in 24h, or a cron expression`),
		Entry("@every in days and hours", "@every 1d12h", "for days write hours"),
		Entry("@every in weeks", "@every 2w", "with the units h, m and s"),
		Entry("@every without a unit", "@every 10", "with the units h, m and s"),
		Entry("@every too rarely", "@every 87601h", "an interval of at least 1s and at most 87600h, which is ten years"),
		Entry("@every longer than a duration", "@every 9999999h", "at most 87600h, which is ten years"),
		Entry("an offset in days", "@every 48h/1d", `the offset after the slash: "1d" is not a duration: its units are`),
		Entry("an offset longer than a duration", "@every 48h/9999999h", "shorter than the interval"),
		Entry("an offset that is too long", "@every 1h/1h", "shorter than the interval"),
		Entry("a step of 0", "*/0 * * * *", `the minute "*/0" is wrong: write numbers from 0 to 59`),
		Entry("a day of 7", "0 9 * * 7", `the day of the week "7" is wrong`),
		Entry("a name that is none", "0 9 * FOO *", `the month "FOO" is wrong: write numbers from 1 to 12 or names such as JAN`),
		Entry("a letter", "0 9 L * *", `the day of the month "L" is wrong`),
	)

	It("refuses unknown time zones", func() {
		for _, zone := range []string{"Europe/Berln", "Local", "local", "../etc/passwd"} {
			_, err := recurrence.Location(zone)
			Expect(err).To(MatchError(ContainSubstring("write a name of the IANA database such as Europe/Berlin")), zone)
		}
	})

	It("are merged, and due once where two agree", func() {
		p := plan("", "0 9 * * *", "0 */3 * * *")
		Expect(texts(p.Upcoming(at("2026-11-01T05:00:00Z"), 3))).To(Equal([]string{"2026-11-01T06:00:00Z", "2026-11-01T09:00:00Z", "2026-11-01T12:00:00Z"}))
	})

	It("leave out what is excluded", func() {
		p := plan("", "0 * * * *")
		x, err := recurrence.Except("* 10-11 * * *", time.UTC)
		Expect(err).NotTo(HaveOccurred())
		p.Exclusions = []recurrence.Exclusion{x, recurrence.Between(at("2026-11-01T13:00:00Z"), at("2026-11-01T15:00:00Z"))}
		Expect(texts(p.Upcoming(at("2026-11-01T09:00:00Z"), 3))).To(Equal([]string{"2026-11-01T12:00:00Z", "2026-11-01T15:00:00Z", "2026-11-01T16:00:00Z"}))
	})

	It("end when everything is excluded", func() {
		p := plan("", "* * * * *")
		x, err := recurrence.Except("* * * * *", time.UTC)
		Expect(err).NotTo(HaveOccurred())
		p.Exclusions = []recurrence.Exclusion{x}
		Expect(p.Upcoming(at("2026-11-01T09:00:00Z"), 3)).To(BeEmpty())
	})

	// The steps of a search grow with what is excluded, by days and hours and not by minutes, and end after some decades.
	DescribeTable("end when each due time is excluded", func(schedule, exclusion, zone string) {
		p := plan(zone, schedule)
		loc, err := recurrence.Location(zone)
		Expect(err).NotTo(HaveOccurred())
		x, err := recurrence.Except(exclusion, loc)
		Expect(err).NotTo(HaveOccurred())
		p.Exclusions = []recurrence.Exclusion{x}
		Expect(p.Next(at("2026-11-01T09:00:00Z"))).To(BeZero())
	},
		Entry("by days", "@hourly", "* * * * *", ""),
		Entry("by hours", "0 3 * * *", "* 0-5 * * *", "Europe/Berlin"),
		Entry("by minutes", "30 3 * * *", "29-31 * * * *", "America/New_York"),
		Entry("of leap years", "0 0 29 2 *", "* * 29 2 *", ""),
	)

	// Days of 23, 23.5, 24.5 and 25 hours, and days that begin at one o'clock.
	DescribeTable("leave out just what is excluded when clocks change", func(zone, from string) {
		loc, err := recurrence.Location(zone)
		Expect(err).NotTo(HaveOccurred())
		for exclusion, covers := range map[string]func(time.Time) bool{
			"* * * * SUN":    func(t time.Time) bool { return t.Weekday() == time.Sunday },
			"* 0-2 * * *":    func(t time.Time) bool { return t.Hour() <= 2 },
			"0-20 * * * *":   func(t time.Time) bool { return t.Minute() <= 20 },
			"* * 1-9 * *":    func(t time.Time) bool { return t.Day() <= 9 },
			"* 23,0,1 * * *": func(t time.Time) bool { return t.Hour() == 23 || t.Hour() <= 1 },
		} {
			p := plan(zone, "*/7 * * * *")
			var want []time.Time
			for _, t := range p.Upcoming(at(from), 800) {
				if !covers(t.In(loc)) {
					want = append(want, t)
				}
			}
			x, err := recurrence.Except(exclusion, loc)
			Expect(err).NotTo(HaveOccurred())
			p.Exclusions = []recurrence.Exclusion{x}
			Expect(p.Upcoming(at(from), len(want))).To(Equal(want), "%s, %s", zone, exclusion)
		}
	},
		Entry("in spring", "Europe/Berlin", "2026-03-28T00:00:00Z"),
		Entry("in autumn", "Europe/Berlin", "2026-10-24T00:00:00Z"),
		Entry("by half an hour, forwards", "Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
		Entry("by half an hour, back", "Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
		Entry("at midnight, forwards", "America/Santiago", "2026-09-05T00:00:00Z"),
		Entry("at midnight, back", "America/Santiago", "2026-04-04T00:00:00Z"),
		Entry("at one, back", "America/Havana", "2026-10-31T00:00:00Z"),
		Entry("within an hour, back", "Pacific/Chatham", "2026-04-04T00:00:00Z"),
		Entry("within an hour, forwards", "Pacific/Chatham", "2026-09-26T00:00:00Z"),
	)

	It("refuse an interval as an exclusion", func() {
		_, err := recurrence.Except("@every 1h", time.UTC)
		Expect(err).To(MatchError(ContainSubstring("write a cron expression such as")))
	})

	It("keep to their bounds, which are included", func() {
		p := plan("", "0 * * * *")
		p.Start, p.End = at("2026-11-01T10:00:00Z"), at("2026-11-01T12:00:00Z")
		Expect(texts(p.Upcoming(at("2026-01-01T00:00:00Z"), 9))).To(Equal([]string{"2026-11-01T10:00:00Z", "2026-11-01T11:00:00Z", "2026-11-01T12:00:00Z"}))
		Expect(p.Bounds()).To(Succeed())
		p.Start = at("2027-01-01T00:00:00Z")
		Expect(p.Bounds()).To(MatchError(ContainSubstring("is before startTime")))
	})

	It("count what passed, and keep the newest", Label("EFF-05"), func() {
		p := plan("", "* * * * *")
		got := p.Since(at("2026-11-01T00:00:00Z"), at("2026-11-01T01:00:30Z"), 3)
		Expect(texts(got.Newest)).To(Equal([]string{"2026-11-01T00:58:00Z", "2026-11-01T00:59:00Z", "2026-11-01T01:00:00Z"}))
		Expect(got).To(And(HaveField("Older", 57), HaveField("First", at("2026-11-01T00:01:00Z")), HaveField("Last", at("2026-11-01T00:57:00Z"))))
		Expect(p.Since(at("2026-11-01T00:00:00Z"), at("2026-11-01T00:00:30Z"), 3)).To(Equal(recurrence.Passed{}))
	})

	It("count a month of @every 1s at once", Label("EFF-05"), func() {
		p := plan("", "@every 1s")
		got := p.Since(at("2026-11-01T00:00:00Z"), at("2026-12-01T00:00:00Z"), 2)
		Expect(got.Older).To(Equal(30*86400 - 2))
		Expect(got).To(And(HaveField("First", at("2026-11-01T00:00:01Z")), HaveField("Last", at("2026-11-30T23:59:58Z"))))
		Expect(texts(got.Newest)).To(Equal([]string{"2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z"}))
	})

	It("jitter only delays, stays the same, and spreads", func() {
		var all []time.Duration
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			j := recurrence.Jitter(key, time.Minute)
			Expect(j).To(And(BeNumerically(">=", 0), BeNumerically("<", time.Minute), Equal(recurrence.Jitter(key, time.Minute))))
			all = append(all, j)
		}
		Expect(slices.Max(all) - slices.Min(all)).To(BeNumerically(">", 20*time.Second))
		Expect(recurrence.Jitter("a", 0)).To(BeZero())
	})
})
