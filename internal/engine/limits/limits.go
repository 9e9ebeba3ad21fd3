// Package limits bounds runs: their model calls, tokens, cost and working time.
package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/model"
)

// Run are the limits of a run (RUN-10). Each limit is the lower one of the thread's and the agent's; 0 is none.
type Run struct {
	steps    int
	tokens   int64
	cost     model.Cost
	duration time.Duration
	since    int64 // when working time was last counted, in microseconds
}

// Of returns the lowest of each limit.
func Of(all []skeinv1.RunLimits) (Run, error) {
	var l Run
	for _, o := range all {
		if o.MaxSteps != nil {
			lowerTo(&l.steps, int(*o.MaxSteps))
		}
		if o.MaxTokens != nil {
			lowerTo(&l.tokens, *o.MaxTokens)
		}
		if o.MaxCost != nil {
			cost, err := model.ParseCost(o.MaxCost.AsDec().String())
			if err != nil {
				return l, fmt.Errorf("limits.maxCost: %w", err)
			}
			lowerTo(&l.cost, max(cost, 1))
		}
		if o.MaxDuration != nil {
			lowerTo(&l.duration, o.MaxDuration.Duration)
		}
	}
	return l, nil
}

// lowerTo sets a limit to v if it is not set, or higher.
func lowerTo[T ~int | ~int64](to *T, v T) {
	if *to == 0 || v < *to {
		*to = v
	}
}

// Check returns a *failure.Error that names the limit that the run has reached with steps model calls, or nil.
func (l *Run) Check(steps int, used *usage.Run) error {
	switch {
	case l.steps > 0 && steps >= l.steps:
		return failure.New(skeinv1.ReasonMaxStepsReached, "the run made %d model calls, which is its limit (limits.maxSteps), and has not ended", l.steps)
	case l.tokens > 0 && used.Tokens() >= l.tokens:
		return failure.New(skeinv1.ReasonMaxTokensReached, "the run used %d tokens; its limit (limits.maxTokens) is %d", used.Tokens(), l.tokens)
	case l.cost > 0 && used.Cost >= l.cost:
		return failure.New(skeinv1.ReasonMaxCostReached, "the run cost %s; its limit (limits.maxCost) is %s", used.Cost, l.cost)
	}
	return nil
}

// ErrOverTime is the cause that ends the context of a run which has reached limits.maxDuration.
var ErrOverTime = errors.New("the run has reached its time limit (limits.maxDuration)")

// KeepTime cancels the run with ErrOverTime once it has worked for as long as limits.maxDuration allows, no matter what it
// does then. worked is how long it has worked before, in microseconds. Call stop when the run ends or is parked. The time that a
// run is parked does not count.
func (l *Run) KeepTime(clk clock.WithDelayedExecution, worked int64, cancel context.CancelCauseFunc) (stop func()) {
	l.since = clk.Now().UnixMicro()
	if l.duration == 0 {
		return func() {}
	}
	left := l.duration - time.Duration(worked)*time.Microsecond
	timer := clk.AfterFunc(max(left, 0), func() { cancel(ErrOverTime) })
	return func() { timer.Stop() }
}

// CountTime adds the time that the run has worked since the last count to worked, and reports whether the time is limited.
func (l *Run) CountTime(now int64, worked *int64) (limited bool) {
	if l.duration == 0 {
		return false
	}
	*worked += now - l.since
	l.since = now
	return true
}

// DurationFailure returns the failure of a run that took too long.
func (l *Run) DurationFailure() *failure.Error {
	return failure.New(skeinv1.ReasonMaxDurationReached, "the run worked for %s, which is its limit (limits.maxDuration)", l.duration)
}
