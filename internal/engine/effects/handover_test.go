package effects

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// stage is a Runner whose first call of an effect begins, or waits for a sandbox, until the worker stops. Later calls end with later, and then succeed.
type stage struct {
	Runner
	begins bool
	calls  chan int
	n      int
	later  []error
}

func (r *stage) call(ctx context.Context) error {
	r.n++
	r.calls <- r.n
	if r.n == 1 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if len(r.later) > 0 {
		err := r.later[0]
		r.later = r.later[1:]
		return err
	}
	return nil
}

func (r *stage) CallTool(ctx context.Context, _ Call) error { return r.call(ctx) }

func (r *stage) RunEffect(ctx context.Context, c Call) error {
	if r.begins {
		c.Waits("")
	} else {
		c.Waits("the pool is full")
	}
	return r.call(ctx)
}

// anyEffect defines every effect.
type anyEffect struct{}

func (anyEffect) Effect(context.Context, string, string) (*definition.Effect, error) {
	return &definition.Effect{}, nil
}

// TestHandOver covers EFF-04: a handler that had begun when its replica stopped runs again in another one, although its deadline to begin has
// passed. One that had not begun is late then.
func TestHandOver(t *testing.T) {
	full := &WaitError{errors.New("the pool is full")}
	for name, c := range map[string]struct {
		target Target
		stage  stage
		calls  int
		status store.FiringStatus
	}{
		"a tool that was called":               {toolTarget(), stage{}, 2, store.FiringSucceeded},
		"an effect that had begun":             {Target{}, stage{begins: true}, 2, store.FiringSucceeded},
		"an effect that then waits once more":  {Target{}, stage{begins: true, later: []error{full, full}}, 4, store.FiringSucceeded},
		"an effect that waited for a sandbox":  {Target{}, stage{}, 1, store.FiringCanceled},
		"a tool that is tried again afterward": {retrying(), stage{later: []error{&HandlerError{"no"}}}, 3, store.FiringSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// A step of the worker's clock writes into the store, which must not wait for that clock.
			clk, stored := clocktesting.NewFakeClock(noon), clocktesting.NewFakePassiveClock(noon)
			step := func() {
				stored.SetTime(stored.Now().Add(time.Minute))
				clk.Step(time.Minute)
			}
			st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir(), Clock: stored})
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = st.Close() }()
			c.target.Deadline = 30 * time.Second
			f := store.Firing{EffectID: "e", Due: noon.UnixMicro(), Namespace: "n", Effect: "x", Target: c.target.Encode()}
			g.Expect(st.RecordDue(t.Context(), store.DueRecord{Schedule: store.EffectSchedule{EffectID: "e"}, Firings: []store.Firing{f}})).To(Succeed())
			r := &c.stage
			r.calls = make(chan int, 10)
			run := func(owner string) (stop func()) {
				w := NewWorker(Options{
					Store: st, Definitions: anyEffect{}, Runner: r, Clock: clk, Log: logr.Discard(), Owner: owner, Workers: 1, ClaimTTL: time.Hour,
					Retry: Retry{Attempts: 3, First: time.Second}, Fault: func(string) {}, Missed: func(*store.Firing, store.EffectSkip, bool) {},
				})
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan struct{})
				go func() { defer close(over); w.Run(ctx) }()
				return func() { cancel(); <-over }
			}
			stop := run("a")
			g.Eventually(r.calls, time.Minute).Should(Receive(Equal(1)))
			step()
			stop()
			defer run("b")()
			for n := 2; n <= c.calls; n++ {
				g.Eventually(r.calls, time.Minute).Should(Receive(Equal(n)))
				if n < c.calls { // the next one is due after a pause
					g.Eventually(func() (*store.Firing, error) { return st.Firing(t.Context(), f.Key()) }, time.Minute).Should(HaveField("AvailableAt", And(
						BeNumerically(">", stored.Now().UnixMicro()), BeNumerically("<", stored.Now().Add(time.Hour).UnixMicro()))))
					g.Eventually(clk.Waiters, time.Minute).Should(BeNumerically(">=", 2), "the ticker and the next look")
					step()
				}
			}
			g.Eventually(func() (*store.Firing, error) { return st.Firing(t.Context(), f.Key()) }, time.Minute).Should(HaveField("Status", c.status))
			g.Expect(r.calls).NotTo(Receive())
		})
	}
}

// retrying returns the target of a tool that is called again after it has failed.
func retrying() Target {
	t := toolTarget()
	t.Retry = &Retry{Attempts: 2, First: time.Second}
	return t
}
