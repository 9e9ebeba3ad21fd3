package effects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// runner is a Runner that returns an error and counts its calls. Other calls than those of tools panic.
type runner struct {
	Runner
	err   error
	calls int
}

func (r *runner) CallTool(_ context.Context, c Call) error {
	r.calls++
	c.Log.Add(fmt.Sprint("call ", r.calls))
	return r.err
}

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func newWorker(r Runner) (*Worker, *clocktesting.FakeClock) {
	c := clocktesting.NewFakeClock(noon)
	return NewWorker(Options{Runner: r, Clock: c, Log: logr.Discard(), Retry: Retry{Attempts: 3, First: time.Second}}), c
}

func toolTarget() Target { return Target{Tool: &ToolCall{Name: "t"}} }

func TestOutcome(t *testing.T) {
	w, _ := newWorker(nil)
	own := &Retry{Attempts: 2, First: time.Minute}
	for name, c := range map[string]struct {
		err      error
		attempts int
		retry    *Retry
		status   store.FiringStatus
		error    string
		waiting  string
		after    time.Duration // at least, and a tenth more at most
	}{
		"success":                            {nil, 1, nil, store.FiringSucceeded, "", "", 0},
		"a final failure":                    {&FinalError{"gone"}, 1, own, store.FiringFailed, "gone", "", 0},
		"the end of its thread":              {&CanceledError{"terminated"}, 1, own, store.FiringCanceled, "terminated", "", 0},
		"too late to begin":                  {&MissedError{"late"}, 1, own, store.FiringCanceled, "late", "", 0},
		"a handler's failure":                {&HandlerError{"no"}, 1, nil, store.FiringFailed, "no", "", 0},
		"a handler's failure with a policy":  {&HandlerError{"no"}, 1, own, store.FiringPending, "no", "", time.Minute},
		"a policy's second failure":          {&HandlerError{"no"}, 2, &Retry{Attempts: 3, First: time.Minute}, store.FiringPending, "no", "", 2 * time.Minute},
		"the last failure of a policy":       {&HandlerError{"no"}, 2, own, store.FiringFailed, "gave up after 2 attempts: no", "", 0},
		"a service's failure":                {&ServiceError{Text: "503"}, 1, nil, store.FiringPending, "503", "", time.Second},
		"a service that says when":           {&ServiceError{Text: "429", After: 100 * time.Second}, 1, own, store.FiringPending, "429", "", 100 * time.Second},
		"a service that asks for too long":   {&ServiceError{Text: "429", After: time.Hour}, 1, nil, store.FiringPending, "429", "", 10 * time.Minute},
		"longer than its policy allows":      {&ServiceError{Text: "429", After: time.Hour}, 1, &Retry{Attempts: 2, First: time.Second, Max: time.Minute}, store.FiringPending, "429", "", time.Minute},
		"a service's third failure":          {&ServiceError{Text: "503"}, 3, nil, store.FiringFailed, "gave up after 3 attempts: 503", "", 0},
		"a service's failure of one":         {&ServiceError{Text: "503"}, 1, &Retry{Attempts: 1}, store.FiringFailed, "503", "", 0},
		"of a policy without attempts":       {&ServiceError{Text: "503"}, 2, &Retry{First: time.Minute}, store.FiringPending, "503", "", 2 * time.Minute},
		"what kept the handler from running": {errors.New("lost"), 2, nil, store.FiringPending, "lost", "", 2 * time.Second},
		"that for the third time":            {errors.New("lost"), 3, own, store.FiringFailed, "gave up after 3 attempts: lost", "", 0},
		"waiting":                            {&WaitError{errors.New("full")}, 3, nil, store.FiringPending, "before", "full", time.Second},
		"waiting for a definition":           {&definition.NotReadyError{Message: "not there"}, 3, own, store.FiringPending, "before", "not there", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := &store.Firing{EffectID: "e", Due: 1, ThreadID: "t", Namespace: "n", Epoch: 7, Attempts: c.attempts, Error: "before", FiredAt: noon.UnixMicro()}
			end := w.outcome(f, Target{Retry: c.retry, Counts: true}, c.err)
			g.Expect(end.RetryAfter).To(And(BeNumerically(">=", c.after), BeNumerically("<=", c.after+c.after/10)))
			end.RetryAfter = 0
			g.Expect(end).To(Equal(store.FiringEnd{Key: f.Key(), Namespace: "n", Epoch: 7, Status: c.status, Error: c.error, Waiting: c.waiting, Counts: true}))
		})
	}
}

func TestWait(t *testing.T) {
	g := NewWithT(t)
	w, clock := newWorker(nil)
	f := &store.Firing{FiredAt: noon.UnixMicro()}
	g.Expect(w.wait(f)).To(Equal(firstWait))
	clock.Step(40 * time.Second)
	g.Expect(w.wait(f)).To(Equal(10 * time.Second))
	clock.Step(time.Hour)
	g.Expect(w.wait(f)).To(Equal(longestWait))
}

func TestAttempt(t *testing.T) {
	g := NewWithT(t)
	r := &runner{}
	w, clock := newWorker(r)
	f := &store.Firing{Due: noon.UnixMicro(), Attempts: 1, Waiting: "no sandbox"}
	late := toolTarget()
	late.Deadline = time.Minute

	clock.Step(time.Minute)
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: late, Log: &Log{}})).To(Succeed(), "just in time")
	clock.Step(time.Microsecond)
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: late, Log: &Log{}})).To(MatchError("it could not begin within 1m0s of its due time: no sandbox"))
	g.Expect(r.calls).To(Equal(1))
	delayed := late
	delayed.Jitter = time.Microsecond
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: delayed, Log: &Log{}})).To(Succeed(), "jitter does not count as lateness")
	clock.Step(time.Microsecond)
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: delayed, Log: &Log{}})).To(MatchError(HavePrefix("it could not begin within 1m0s")))
	f.Attempts = 2
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: late, Log: &Log{}})).To(Succeed(), "it has begun in time")
	f.Attempts = 10
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: toolTarget(), Log: &Log{}})).To(Succeed(), "managers end for reasons of their own")
	f.Attempts = 11
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: toolTarget(), Log: &Log{}})).To(MatchError(ContainSubstring("the manager ended 10 times")))
	longer := toolTarget()
	longer.Retry = &Retry{Attempts: 11}
	g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: longer, Log: &Log{}})).To(Succeed(), "its own policy allows more attempts")
	g.Expect(r.calls).To(Equal(5))

	f.Attempts = 1
	var final *FinalError
	g.Expect(errors.As(w.attempt(t.Context(), &Call{Firing: f, Target: Target{Message: &Message{}}, Log: &Log{}}), &final)).To(BeTrue(), "a panic is not repeated")
}

func TestJoinLogs(t *testing.T) {
	g := NewWithT(t)
	g.Expect(joinLogs("", "a\n")).To(Equal("a\n"))
	g.Expect(joinLogs("a\n", "")).To(Equal("a\n"), "an attempt that waits wrote nothing")
	g.Expect(joinLogs("a\n", "b\n")).To(Equal("a\nb\n"))
	long := strings.Repeat("0123456789\n", MaxLog/11)
	joined := joinLogs(long, "the newest\n")
	g.Expect(len(joined)).To(BeNumerically("~", MaxLog, 11))
	g.Expect(len(joined)).To(BeNumerically("<=", MaxLog))
	g.Expect(joined).To(And(HavePrefix("earlier lines were left out\n0123456789\n"), HaveSuffix("0123456789\nthe newest\n")))
	g.Expect(strings.Count(joinLogs(joined, "newer\n"), "left out")).To(Equal(1))
	full := strings.Repeat("x", MaxLog-3) + "\n"
	g.Expect(joinLogs("a\nb\n", full)).To(Equal(full))
}

func TestAgain(t *testing.T) {
	g := NewWithT(t)
	own := Target{Retry: &Retry{Statuses: []int{409, 503}}}
	for status, want := range map[int][2]bool{
		0: {true, true}, 304: {false, false}, 400: {false, false}, 404: {false, false}, 408: {true, false}, 409: {false, true}, 422: {false, false},
		425: {true, false}, 429: {true, false}, 500: {true, false}, 503: {true, true}, 599: {true, false},
	} {
		g.Expect([2]bool{Target{Retry: &Retry{}}.RetriesStatus(status), own.RetriesStatus(status)}).To(Equal(want), "%d by default, and of 409 and 503", status)
	}
}

func TestDelay(t *testing.T) {
	g := NewWithT(t)
	about := func(want time.Duration) OmegaMatcher {
		return And(BeNumerically(">=", want), BeNumerically("<=", want+want/10))
	}
	r := Retry{First: time.Second, Max: 5 * time.Second}
	g.Expect(r.delay(1)).To(about(time.Second))
	g.Expect(r.delay(2)).To(about(2 * time.Second))
	g.Expect(r.delay(3)).To(about(4 * time.Second))
	g.Expect(r.delay(4)).To(about(5 * time.Second))
	g.Expect(r.delay(1000)).To(about(5 * time.Second))
	g.Expect(Retry{First: time.Hour}.delay(1000)).To(about(24*time.Hour), "without a bound of its own")
	g.Expect(Retry{First: 48 * time.Hour}.delay(3)).To(about(48 * time.Hour))
	g.Expect(Retry{}.delay(3)).To(BeZero())
	g.Expect(Retry{First: 10 * time.Hour, Max: 20 * time.Hour}.delay(1000)).To(about(20 * time.Hour))
}

func TestTarget(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Target{}.Encode()).To(BeNil())
	g.Expect(TargetOf(&store.Firing{})).To(Equal(Target{}))
	full := Target{
		Tool: &ToolCall{Name: "s", Method: "m"}, Queue: &ToolCall{Name: "q"}, Message: &Message{Content: "c", Silent: true}, Pool: "p",
		Timeout: time.Second, Retry: &Retry{Attempts: 2, First: time.Second, Max: time.Minute}, Deadline: time.Hour, Counts: true,
	}
	g.Expect(TargetOf(&store.Firing{Target: full.Encode()})).To(Equal(full))
	_, err := TargetOf(&store.Firing{Target: []byte("{")})
	g.Expect(err).To(MatchError(ContainSubstring("cannot be read")))
}

func TestIdempotencyKey(t *testing.T) {
	g := NewWithT(t)
	g.Expect(idempotencyKey(&store.Firing{EffectID: "e", Due: 5, ThreadID: "t"})).To(Equal("effect:e:5"), "as earlier releases had it")
	g.Expect(idempotencyKey(&store.Firing{EffectID: "e", Due: 5, Origin: store.OriginSchedule})).To(Equal("effect:e:5"))
	g.Expect(idempotencyKey(&store.Firing{EffectID: "e", Due: 5, ThreadID: "t", Origin: store.OriginSchedule})).To(Equal("effect:e:5:t"))
	g.Expect(idempotencyKey(&store.Firing{EffectID: "e", Due: 5, ThreadID: "u", Origin: store.OriginSchedule})).To(Equal("effect:e:5:u"))
}
