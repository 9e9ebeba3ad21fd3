package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// limits bounds a run (RUN-10). Each limit is the lower one of the thread's and the agent's; 0 is none.
type limits struct {
	steps    int
	tokens   int64
	cost     model.Cost
	duration time.Duration
}

// limitsOf returns the lowest of each limit.
func limitsOf(all []skeinv1.RunLimits) (limits, error) {
	var l limits
	for _, o := range all {
		if o.MaxSteps != nil {
			lower(&l.steps, int(*o.MaxSteps))
		}
		if o.MaxTokens != nil {
			lower(&l.tokens, *o.MaxTokens)
		}
		if o.MaxCost != nil {
			cost, err := model.ParseCost(o.MaxCost.AsDec().String())
			if err != nil {
				return l, fmt.Errorf("limits.maxCost: %w", err)
			}
			lower(&l.cost, max(cost, 1))
		}
		if o.MaxDuration != nil {
			lower(&l.duration, o.MaxDuration.Duration)
		}
	}
	return l, nil
}

func lower[T ~int | ~int64](to *T, v T) {
	if *to == 0 || v < *to {
		*to = v
	}
}

// loadLimits reads the current limits of the run.
func (r *run) loadLimits(ctx context.Context) error {
	rules, err := r.engine.opts.Definitions.Rules(ctx, r.Thread.Namespace, r.Thread.Name, r.Thread.Agent)
	if err != nil {
		return err
	}
	r.limits, err = limitsOf(rules.Limits)
	if err != nil {
		return failure.New(failure.ReasonInvalidLimits, "%v", err)
	}
	return nil
}

// overLimit returns a *failure.Error that names the limit that the run has reached, or nil. It is called before each model call.
func (r *run) overLimit() error {
	l := &r.limits
	switch {
	case l.steps > 0 && r.record.Steps >= l.steps:
		return failure.New(failure.ReasonMaxStepsReached, "the run made %d model calls, which is its limit (limits.maxSteps), and has not ended", l.steps)
	case l.tokens > 0 && r.usage.Tokens() >= l.tokens:
		return failure.New(failure.ReasonMaxTokensReached, "the run used %d tokens; its limit (limits.maxTokens) is %d", r.usage.Tokens(), l.tokens)
	case l.cost > 0 && r.usage.Cost >= l.cost:
		return failure.New(failure.ReasonMaxCostReached, "the run cost %s; its limit (limits.maxCost) is %s", r.usage.Cost, l.cost)
	}
	return nil
}

// errOverTime is the cause with which the context of a run ends when the run has reached limits.maxDuration.
var errOverTime = errors.New("the run has reached its time limit (limits.maxDuration)")

// keepTime cancels the run with errOverTime once it has worked for as long as limits.maxDuration allows, no matter what it
// does then. Call stop when the run ends or is parked. The time that a run is parked does not count.
func (r *run) keepTime(cancel context.CancelCauseFunc) (stop func()) {
	r.since = r.engine.now()
	if r.limits.duration == 0 {
		return func() {}
	}
	left := r.limits.duration - time.Duration(r.Checkpoint.Worked)*time.Microsecond
	timer := r.engine.opts.Clock.AfterFunc(max(left, 0), func() { cancel(errOverTime) })
	return func() { timer.Stop() }
}

// countTime adds the time that the run has worked since the last count to its checkpoint, if the time is limited. The next
// step writes it with the run's row, so that it survives waits and crashes.
func (r *run) countTime() {
	if r.limits.duration == 0 {
		return
	}
	now := r.engine.now()
	r.Checkpoint.Worked += now - r.since
	r.since = now
	r.record.State = r.Checkpoint.Encode()
}

// overTime returns the failure of a run that took too long.
func (r *run) overTime() *failure.Error {
	return failure.New(failure.ReasonMaxDurationReached, "the run worked for %s, which is its limit (limits.maxDuration)", r.limits.duration)
}

// withinTime executes the run within its time limit.
func (r *run) withinTime(ctx context.Context, items []store.InboxItem) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.life = ctx
	if err := r.loadLimits(ctx); err != nil {
		return err
	}
	defer r.keepTime(cancel)()
	err := r.loop(ctx, items)
	parked := err == nil && r.record.Status == store.RunWaiting // a parked run that could not continue returns an error
	if errors.Is(context.Cause(ctx), errOverTime) && !r.record.Status.Ended() && !parked {
		return r.overTime()
	}
	return err
}
