// Package effectplan reads the schedule of a ScheduledEffect's spec.
package effectplan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/recurrence"
)

// Of returns the due times that a spec describes. due is that of at and after, which does not depend on the spec alone.
// The error says which field is wrong and what to write.
func Of(spec *skeinv1.ScheduledEffectSpec, due time.Time) (*recurrence.Plan, error) {
	if len(spec.Schedules) == 0 {
		return &recurrence.Plan{Schedules: []recurrence.Schedule{recurrence.Once(due)}}, nil
	}
	loc, err := recurrence.Location(spec.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("spec.timeZone: %w", err)
	}
	p := &recurrence.Plan{}
	for i, text := range spec.Schedules {
		s, err := recurrence.Parse(text, loc)
		if err != nil {
			return nil, fmt.Errorf("spec.schedules[%d]: %w", i, err)
		}
		p.Schedules = append(p.Schedules, s)
	}
	for i, x := range spec.Exclusions {
		e, err := exclusion(x, loc)
		if err != nil {
			return nil, fmt.Errorf("spec.exclusions[%d]: %w", i, err)
		}
		p.Exclusions = append(p.Exclusions, e)
	}
	if spec.StartTime != nil {
		p.Start = spec.StartTime.Time
	}
	if spec.EndTime != nil {
		p.End = spec.EndTime.Time
	}
	if err := p.Bounds(); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	return p, nil
}

func exclusion(x skeinv1.ScheduleExclusion, loc *time.Location) (recurrence.Exclusion, error) {
	if x.Start != nil && x.End != nil {
		if !x.Start.Before(x.End.Time) {
			return recurrence.Exclusion{}, fmt.Errorf("end %s is not after start %s", x.End.Format(time.RFC3339), x.Start.Format(time.RFC3339))
		}
		return recurrence.Between(x.Start.Time, x.End.Time), nil
	}
	return recurrence.Except(x.Schedule, loc)
}

// Times returns the fields of a spec that describe its due times, in JSON.
func Times(spec *skeinv1.ScheduledEffectSpec) string {
	data, err := json.Marshal(timeFields(spec))
	if err != nil { // plain data cannot fail
		panic(err)
	}
	return string(data)
}

// timeFields are pointers to the fields that describe due times. Their number and order are part of what is stored.
func timeFields(spec *skeinv1.ScheduledEffectSpec) []any {
	return []any{&spec.Schedules, &spec.TimeZone, &spec.Exclusions, &spec.StartTime, &spec.EndTime, &spec.At, &spec.After}
}

// Fingerprint identifies due times, as Times returns them.
func Fingerprint(times string) string {
	sum := sha256.Sum256([]byte(times))
	return hex.EncodeToString(sum[:8])
}

// OfTimes returns the due times of schedules that Times returned. It returns nil when the fingerprint is not theirs: another release may have
// stored one without the other.
func OfTimes(times, fingerprint string) *recurrence.Plan {
	var spec skeinv1.ScheduledEffectSpec
	fields := timeFields(&spec)
	if Fingerprint(times) != fingerprint || json.Unmarshal([]byte(times), &fields) != nil || len(spec.Schedules) == 0 {
		return nil
	}
	plan, err := Of(&spec, time.Time{})
	if err != nil { // a time zone that is gone, say
		return nil
	}
	return plan
}

// Jitter returns the delay of each due time of an object.
func Jitter(o *skeinv1.ScheduledEffect) time.Duration {
	if o.Spec.Jitter == nil {
		return 0
	}
	return recurrence.Jitter(string(o.UID), o.Spec.Jitter.Duration)
}

// ThreadName returns the name of the Thread that a template makes for a due time: that of the ScheduledEffect, and the minutes since 1970 of a
// due time that is a whole minute, or else the microseconds. queries.SpentRunning of the store makes the same names.
func ThreadName(effect string, due int64) string {
	if minute := time.Minute.Microseconds(); due%minute == 0 {
		due /= minute
	}
	return threadPrefix(effect) + strconv.FormatInt(due, 10)
}

// DuesOf returns the due times for which ThreadName makes this name of a Thread: as minutes and as microseconds. There are none when it makes
// no such name.
func DuesOf(effect, thread string) (dues []int64) {
	text, _ := strings.CutPrefix(thread, threadPrefix(effect))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	for _, due := range []int64{n * time.Minute.Microseconds(), n} {
		if ThreadName(effect, due) == thread {
			dues = append(dues, due)
		}
	}
	return dues
}

// ThreadDeleted is the error of a firing whose Thread was deleted before its run had ended.
const ThreadDeleted = "its Thread was deleted before its run ended"

// IsThreadName reports whether a name is one that ThreadName makes for a ScheduledEffect.
func IsThreadName(effect, thread string) bool {
	due, ok := strings.CutPrefix(thread, threadPrefix(effect))
	_, err := strconv.ParseInt(due, 10, 64)
	return ok && err == nil
}

func threadPrefix(effect string) string { return effect[:min(len(effect), 200)] + "-" }
