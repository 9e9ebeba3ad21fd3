package recurrence

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
)

// MinInterval and MaxInterval are the shortest and the longest interval of @every.
const (
	MinInterval = time.Second
	MaxInterval = 87600 * time.Hour // ten years
)

// Schedule is a set of instants.
type Schedule interface {
	// Next returns the first instant after another, or the zero time if there is none.
	Next(after time.Time) time.Time
}

// Location returns a time zone of the IANA database by its name. "" is UTC.
func Location(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil || strings.EqualFold(name, "local") {
		return nil, fmt.Errorf("time zone %q is unknown: write a name of the IANA database such as Europe/Berlin, or UTC", name)
	}
	return loc, nil
}

// Parse returns the schedule that a text describes. The error says what to write instead.
func Parse(text string, loc *time.Location) (Schedule, error) {
	name := strings.TrimSpace(text)
	if full, ok := descriptors[strings.ToLower(name)]; ok {
		return parseCron(full, loc)
	}
	if rest, ok := strings.CutPrefix(name, "@every"); ok {
		return parseEvery(name, rest)
	}
	if strings.HasPrefix(name, "@") {
		return nil, fmt.Errorf("schedule %q is unknown: write @yearly, @monthly, @weekly, @daily, @hourly or @every with a duration such as \"@every 10m\"", name)
	}
	return parseCron(name, loc)
}

// every is the schedule of @every: the instants at which the time since 1970 is a multiple of the interval, later by the
// offset. So neither an edit nor a restart moves them.
type every struct{ interval, offset time.Duration }

func parseEvery(text, rest string) (Schedule, error) {
	interval, offset, found := strings.Cut(strings.TrimSpace(rest), "/")
	e := every{}
	var err error
	if e.interval, err = parseDuration(interval); err != nil {
		return nil, fmt.Errorf("schedule %q: %w, such as \"@every 10m\", with an offset after a slash if you want one, as in \"@every 1h/15m\"", text, err)
	}
	if e.interval < MinInterval || e.interval > MaxInterval {
		return nil, fmt.Errorf("schedule %q: write an interval of at least %s and at most %dh, which is ten years", text, MinInterval, int(MaxInterval.Hours()))
	}
	if found {
		if e.offset, err = parseDuration(offset); err != nil {
			return nil, fmt.Errorf("schedule %q: the offset after the slash: %w", text, err)
		}
		if e.offset < 0 || e.offset >= e.interval {
			return nil, fmt.Errorf("schedule %q: the offset after the slash must be a duration shorter than the interval, as in \"@every 1h/15m\"", text)
		}
	}
	return e, nil
}

// parseDuration reads a duration. Its error says which units there are: people write days, which are not always 24 hours.
func parseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		return d, nil
	case text == "":
		return 0, errors.New("write a duration")
	case strings.HasPrefix(strings.TrimLeft(text, "+-0123456789.hmsuµn"), "d"):
		return 0, fmt.Errorf("%q is not a duration: its units are h, m and s; for days write hours, as in 24h, or a cron expression", text)
	case strings.TrimLeft(text, "0123456789.hmsuµn") == "" && strings.ContainsAny(text, "hmsun"):
		return MaxInterval + 1, nil // more than a duration can hold
	}
	return 0, fmt.Errorf("%q is not a duration: write hours, minutes and seconds, with the units h, m and s", text)
}

// Next implements Schedule.
func (e every) Next(after time.Time) time.Time {
	epoch := time.Unix(0, 0)
	since := after.Sub(epoch)
	// A Duration has 292 years, and Sub returns the nearest one for what is further away.
	if since <= math.MinInt64+e.offset || since >= math.MaxInt64-e.interval-e.offset {
		return e.nextFar(after)
	}
	since -= e.offset
	n := since / e.interval
	if since < 0 && since%e.interval != 0 {
		n--
	}
	return epoch.Add((n+1)*e.interval + e.offset).UTC()
}

// lastYear is the last year that RFC 3339 can write.
const lastYear = 9999

// nextFar is Next for instants whose distance from 1970 is no Duration.
func (e every) nextFar(after time.Time) time.Time {
	const second = int64(time.Second)
	nanos := func(seconds, rest int64) *big.Int {
		n := new(big.Int).Mul(big.NewInt(seconds), big.NewInt(second))
		return n.Add(n, big.NewInt(rest))
	}
	interval, offset := big.NewInt(int64(e.interval)), big.NewInt(int64(e.offset))
	n := nanos(after.Unix(), int64(after.Nanosecond()))
	n.Div(n.Sub(n, offset), interval) // rounds down
	n.Add(n.Mul(n.Add(n, big.NewInt(1)), interval), offset)
	seconds, rest := n.DivMod(n, big.NewInt(second), new(big.Int))
	if t := time.Unix(seconds.Int64(), rest.Int64()).UTC(); t.Year() <= lastYear {
		return t
	}
	return time.Time{}
}

// once is the schedule of a single time.
type once struct{ at time.Time }

// Once returns a schedule that is due at one time.
func Once(at time.Time) Schedule { return once{at} }

// Next implements Schedule.
func (o once) Next(after time.Time) time.Time {
	if o.at.After(after) {
		return o.at
	}
	return time.Time{}
}
