package effects

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// Options of a Worker. All are required.
type Options struct {
	Store       store.Store
	Definitions Definitions
	Runner      Runner
	Clock       clock.WithTickerAndDelayedExecution
	Log         logr.Logger
	// Owner names this replica in claims.
	Owner string
	// Workers is how many handlers may run at once.
	Workers int
	// ClaimTTL is the time after which others may claim a firing whose claim is not renewed.
	ClaimTTL time.Duration
	// Retry is the policy for firings whose handler could not run.
	Retry Retry
	// Fault is called around durable writes.
	Fault func(point string)
	// Missed is called with each firing that could not begin in time, with the record of it, and whether that is new.
	Missed func(f *store.Firing, record store.EffectSkip, begins bool)
}

// Worker claims firings that are due and has their handlers called. A claim holds a firing, and is renewed while the handler
// runs. After a crash the claim expires, and the handler runs again with the same idempotency key (EFF-04). Each claim has
// an epoch, so that a replica whose claim has passed to another can record nothing. A Worker is safe for concurrent use.
type Worker struct {
	opts   Options
	store  store.Store
	log    logr.Logger
	fault  func(point string)
	wakeup chan struct{}
	meters *Metrics
	done   chan struct{} // a slot became free
	check  chan struct{} // a claim of suspects may be lost

	mu       sync.Mutex // guards running, suspects and begun
	running  map[store.FiringKey]*claim
	suspects map[store.FiringKey]struct{} // running firings that may have been canceled
	begun    []store.FiringKey            // firings that had begun when the shutdown cut them off
	group    sync.WaitGroup

	claiming sync.Mutex // held while firings are claimed; guards what follows
	drained  bool
	timer    clock.Timer // wakes the worker when another firing can be claimed; nil before the first
	failures int         // looks for firings that have failed one after the other
	retrying bool        // another look will follow a failed one
	from     string      // the namespace from which the next look searches, where many have firings
}

// NewWorker returns a worker that does nothing until Run is called.
func NewWorker(o Options) *Worker {
	return &Worker{
		opts: o, store: o.Store, log: o.Log, fault: o.Fault, meters: newMetrics(o.Store), running: map[store.FiringKey]*claim{}, suspects: map[store.FiringKey]struct{}{},
		wakeup: make(chan struct{}, 1), done: make(chan struct{}, 1), check: make(chan struct{}, 1),
	}
}

// Metrics returns the worker's metrics.
func (w *Worker) Metrics() *Metrics { return w.meters }

// Wake makes the worker look for firings, because one was recorded.
func (w *Worker) Wake() { signal(w.wakeup) }

// HandleChange makes the worker look for firings, and find out whether those of an effect and a thread that run here were canceled. Without a
// thread it asks about all of the effect, and for store.AnyEffect about all that run here.
func (w *Worker) HandleChange(effectID, threadID string) {
	w.mu.Lock()
	for key, c := range w.running {
		about := effectID == store.AnyEffect || (key.EffectID == effectID && (threadID == "" || key.ThreadID == threadID))
		if about && !c.isEnding() {
			w.suspects[key] = struct{}{}
			signal(w.check)
		}
	}
	w.mu.Unlock()
	signal(w.wakeup)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a signal is waiting already
	}
}

// claim is the claim of a firing that is under way here. It is not renewed any more when its end is being recorded.
type claim struct {
	namespace string
	epoch     int64
	cancel    context.CancelCauseFunc

	mu   sync.Mutex
	over bool
}

// isEnding reports whether the end of the firing is being recorded.
func (c *claim) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end sets whether the end of the firing is being recorded.
func (c *claim) end(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = over
}

// Run runs firings until ctx ends. It returns when none is under way any more, and gives up its claims, so that other
// replicas need not wait until they expire.
func (w *Worker) Run(ctx context.Context) {
	defer w.release(ctx)
	defer w.group.Wait()
	ticker := w.opts.Clock.NewTicker(w.opts.ClaimTTL / 3)
	defer ticker.Stop()
	for {
		w.claim(ctx)
		select {
		case <-ctx.Done():
			return
		case <-w.wakeup:
		case <-w.done:
		case <-w.check:
			w.renew(ctx, w.takeSuspects())
		case <-ticker.C():
			w.renew(ctx, w.claimsUnderWay())
		}
	}
}

// releaseTime bounds the giving up of claims at a shutdown.
const releaseTime = 2 * time.Second

func (w *Worker) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	w.mu.Lock()
	begun := w.begun
	w.mu.Unlock()
	if err := w.store.ReleaseFirings(ctx, w.opts.Owner, begun...); err != nil {
		w.log.Info("claims of effects were not given up, so they expire later", "error", err.Error())
	}
}

// claimsUnderWay returns the firings whose handlers run here.
func (w *Worker) claimsUnderWay() map[store.FiringKey]*claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.running)
}

// Drain makes the worker claim nothing more. It returns when no claim is being made.
func (w *Worker) Drain() {
	w.claiming.Lock()
	defer w.claiming.Unlock()
	w.drained = true
}

// Wait returns when no firing is under way. It is for after Drain.
func (w *Worker) Wait() { w.group.Wait() }

// claim claims firings as far as slots are free, and runs them. Namespaces share the slots.
func (w *Worker) claim(ctx context.Context) {
	w.claiming.Lock()
	defer w.claiming.Unlock()
	running := w.claimsUnderWay()
	free := w.opts.Workers - len(running)
	if free <= 0 || w.drained || ctx.Err() != nil {
		return
	}
	firings, err := w.claimDue(ctx, running, free)
	if err != nil {
		if ctx.Err() == nil {
			w.retry(err)
		}
		return
	}
	w.failures = 0
	for i := range firings {
		f := &firings[i]
		life, cancel := context.WithCancelCause(ctx)
		c := &claim{namespace: f.Namespace, epoch: f.Epoch, cancel: cancel}
		w.mu.Lock()
		w.running[f.Key()] = c
		w.mu.Unlock()
		w.group.Go(func() {
			defer func() {
				cancel(nil)
				w.mu.Lock()
				delete(w.running, f.Key())
				w.mu.Unlock()
				signal(w.done)
			}()
			w.fire(life, f, c)
		})
	}
}

// longestRetry bounds the pause before the next look for firings, so that they run soon after an outage of the store.
const longestRetry = 5 * time.Second

// retry makes the worker look for firings again after a look has failed. Only one such look is pending at a time. Each notification
// causes a look, so a pending look for each failed one would query the store more and more often during an outage.
func (w *Worker) retry(err error) {
	if w.retrying {
		return
	}
	w.retrying = true
	w.failures++
	w.log.Error(err, "cannot look for effects that are due", "failures", w.failures)
	w.opts.Clock.AfterFunc(Retry{First: w.opts.Retry.First, Max: longestRetry}.delay(w.failures), func() {
		w.claiming.Lock()
		w.retrying = false
		w.claiming.Unlock()
		w.Wake()
	})
}

// takeSuspects returns the firings that run here and may have been canceled. They are asked about once.
func (w *Worker) takeSuspects() map[store.FiringKey]*claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	claims := map[store.FiringKey]*claim{}
	for key := range w.suspects {
		if c := w.running[key]; c != nil {
			claims[key] = c
		}
	}
	clear(w.suspects)
	return claims
}

// renew extends the claims of firings that run here, and ends those that are lost.
func (w *Worker) renew(ctx context.Context, running map[store.FiringKey]*claim) {
	var claims []store.FiringClaim
	for key, c := range running {
		if !c.isEnding() {
			claims = append(claims, store.FiringClaim{Key: key, Epoch: c.epoch})
		}
	}
	if len(claims) == 0 {
		return
	}
	lost, err := w.store.RenewFirings(ctx, w.opts.ClaimTTL, claims)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Error(err, "cannot renew the claims of effects", "count", len(claims))
		}
		return
	}
	for _, key := range lost {
		if c := running[key]; !c.isEnding() { // the end of a firing may have been recorded meanwhile
			c.cancel(store.ErrFiringLost)
		}
	}
}

// wakeAfter looks for due effects again after a delay.
func (w *Worker) wakeAfter(d time.Duration) { w.opts.Clock.AfterFunc(d, w.Wake) }

// fire runs one firing and records its outcome.
func (w *Worker) fire(ctx context.Context, f *store.Firing, c *claim) {
	var written Log
	began := w.opts.Clock.Now()
	target, err := TargetOf(f)
	call := Call{Firing: f, Target: target, Key: idempotencyKey(f), HookDepth: f.HookDepth, Log: &written}
	if err == nil {
		err = w.attempt(ctx, &call)
	}
	defer func() {
		lost := errors.Is(context.Cause(ctx), store.ErrFiringLost)
		if ctx.Err() != nil && !lost && call.begun { // the store passes over those whose end was recorded
			w.mu.Lock()
			w.begun = append(w.begun, f.Key())
			w.mu.Unlock()
		}
	}()
	log := w.log.WithValues(logValues(&call)...)
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), store.ErrFiringLost) {
			log.Info("an effect was stopped: its firing was canceled, or passed to another replica", "cause", context.Cause(ctx).Error())
		}
		return // at a shutdown the claim is given up
	}
	end := w.outcome(f, target, err)
	end.Log = joinLogs(f.Log, written.String())
	if end.Status == store.FiringPending {
		log.Info("effect will be tried again", "attempt", f.Attempts, "waiting", end.Waiting != "", "after", end.RetryAfter.String(), "error", err.Error())
	}
	w.fault("effect.finish.before")
	finish := w.store.FinishFiring
	var missed *MissedError
	if errors.As(err, &missed) {
		finish = func(ctx context.Context, end store.FiringEnd) error { return w.miss(ctx, f, end) }
	}
	if !w.record(ctx, log, c, end, finish) {
		return
	}
	w.meters.countAttempt(f, target, began, &end)
	if end.Status == store.FiringPending {
		w.wakeAfter(end.RetryAfter)
	}
}

// miss records that a firing could not begin in time, and tells of it.
func (w *Worker) miss(ctx context.Context, f *store.Firing, end store.FiringEnd) error {
	record, begins, err := w.store.MissFiring(ctx, end)
	if err == nil {
		w.opts.Missed(f, record, begins)
	}
	return err
}

// logValues returns the keys and values of log lines about a firing. Its thread has no name before it is known.
func logValues(c *Call) []any {
	name := ""
	if c.Thread != nil {
		name = c.Thread.Name
	}
	f := c.Firing
	return append(telemetry.OfThread(f.Namespace, name, f.ThreadID), "scheduledEffect", f.Name, "effect", f.Effect, "due", f.Due)
}

// While the end of a firing cannot be recorded, it is tried again after firstRecord, and later after up to longestRecord.
const (
	firstRecord   = 100 * time.Millisecond
	longestRecord = 5 * time.Second
)

// record records the end of an attempt with finish, and reports whether it did. It tries until the store is available again, and the claim is
// renewed meanwhile. So an outage after the end of the handler does not make the handler run again.
func (w *Worker) record(ctx context.Context, log logr.Logger, c *claim, end store.FiringEnd, finish func(context.Context, store.FiringEnd) error) bool {
	for delay := firstRecord; ; delay = min(2*delay, longestRecord) {
		c.end(true)
		err := finish(ctx, end)
		if err == nil {
			return true
		}
		if !errors.Is(err, store.ErrFiringLost) {
			c.end(false)
			log.Error(err, "cannot record the end of an effect yet", "after", delay.String())
			timer := w.opts.Clock.NewTimer(delay)
			select {
			case <-timer.C():
				continue
			case <-ctx.Done():
				timer.Stop()
			}
			if !errors.Is(context.Cause(ctx), store.ErrFiringLost) {
				return false // at a shutdown the claim is given up, and the handler runs again
			}
		}
		log.Info("the end of an effect was not recorded: its firing was canceled, or passed to another replica")
		return false
	}
}
