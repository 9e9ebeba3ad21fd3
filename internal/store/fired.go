package store

import (
	"cmp"
	"slices"
)

// maxFiredRuns bounds the runs of FiredTimes. A schedule of working days needs one a week.
const maxFiredRuns = 500

// FiredTimes is the set of due times at which a schedule fired and whose firings its history no longer has. It is exact while its runs
// have room, and counts everything up to Until as fired then.
type FiredTimes struct {
	Until int64      `json:"until,omitempty"`
	Runs  []FiredRun `json:"runs,omitempty"`
}

// FiredRun is a number of due times at the same distance from each other.
type FiredRun struct {
	First int64 `json:"f"`
	Step  int64 `json:"s,omitempty"` // 0 when there is one time only
	Count int64 `json:"n"`
}

func (r *FiredRun) last() int64 { return r.First + r.Step*(r.Count-1) }

func (r *FiredRun) has(due int64) bool {
	return due == r.First || (r.Step > 0 && due > r.First && due <= r.last() && (due-r.First)%r.Step == 0)
}

// extend adds a due time that continues the run, and reports whether it does.
func (r *FiredRun) extend(due int64) bool {
	switch {
	case r.Count == 1 && due > r.First:
		r.Step = due - r.First
	case r.Count == 1 || due != r.last()+r.Step:
		return false
	}
	r.Count++
	return true
}

// Has reports whether a due time counts as fired.
func (t *FiredTimes) Has(due int64) bool {
	return (t.Until != 0 && due <= t.Until) || slices.ContainsFunc(t.Runs, func(r FiredRun) bool { return r.has(due) })
}

// Add adds a due time.
func (t *FiredTimes) Add(due int64) {
	if t.Has(due) {
		return
	}
	// The newest run comes last. Most due times continue it. One that was removed late may continue an older one.
	for i := range slices.Backward(t.Runs) {
		if newest := i == len(t.Runs)-1; (newest || t.Runs[i].Count > 1) && t.Runs[i].extend(due) {
			return
		}
	}
	t.Runs = append(t.Runs, FiredRun{First: due, Count: 1})
	slices.SortStableFunc(t.Runs, func(a, b FiredRun) int { return cmp.Compare(a.last(), b.last()) })
	if len(t.Runs) > maxFiredRuns {
		t.Until = max(t.Until, t.Runs[0].last())
		t.Runs = t.Runs[1:]
	}
}
