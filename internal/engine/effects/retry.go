package effects

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// While a firing waits, it is looked at again after firstWait, and later after up to longestWait.
const (
	firstWait   = time.Second
	longestWait = 30 * time.Second
)

// mostEnds is how often the manager may end while a handler runs. After that the handler is not run again, so a handler that ends the
// manager does limited harm. It is more than the attempts of a handler that could not run: managers end for other reasons too, several
// times a minute while a node fails, and then the handler may not even have begun.
const mostEnds = 10

// outcome decides what is recorded of an attempt that ended with err.
func (w *Worker) outcome(f *store.Firing, target Target, err error) store.FiringEnd {
	end := store.FiringEnd{Key: f.Key(), Namespace: f.Namespace, Epoch: f.Epoch, Status: store.FiringFailed, Counts: target.Counts}
	var final *FinalError
	var canceled *CanceledError
	var missed *MissedError
	var handler *HandlerError
	var service *ServiceError
	var wait *WaitError
	var notReady *definition.NotReadyError
	var cut *cutError
	switch {
	case err == nil:
		end.Status = store.FiringSucceeded
	case errors.As(err, &canceled):
		end.Status, end.Error = store.FiringCanceled, canceled.Error()
	case errors.As(err, &missed):
		end.Status, end.Error = store.FiringCanceled, missed.Error()
	case errors.As(err, &final):
		end.Error = final.Error()
	case errors.As(err, &wait), errors.As(err, &notReady):
		end.Status, end.Waiting, end.RetryAfter, end.Error = store.FiringPending, err.Error(), w.wait(f), f.Error
		end.Began = f.StartedAt != 0 // an earlier attempt had
	case errors.As(err, &cut), errors.Is(err, store.ErrUnavailable):
		end.Status, end.Waiting, end.RetryAfter, end.Error, end.Began = store.FiringPending, err.Error(), w.wait(f), f.Error, cut != nil || f.StartedAt != 0
	case errors.As(err, &service):
		policy := w.opts.Retry
		if target.Retry != nil {
			policy = *target.Retry
			policy.Attempts = cmp.Or(policy.Attempts, w.opts.Retry.Attempts)
		}
		end.Error = service.Error()
		if f.Attempts < policy.Attempts {
			end.Status, end.RetryAfter = store.FiringPending, max(policy.delay(f.Attempts), min(service.After, policy.maxDelay()))
		} else if f.Attempts > 1 {
			end.Error = fmt.Sprintf("gave up after %d attempts: %s", f.Attempts, end.Error)
		}
	case errors.As(err, &handler):
		end.Error = handler.Error()
		if target.Retry != nil && f.Attempts < target.Retry.Attempts {
			end.Status, end.RetryAfter = store.FiringPending, target.Retry.delay(f.Attempts)
		} else if f.Attempts > 1 {
			end.Error = fmt.Sprintf("gave up after %d attempts: %s", f.Attempts, end.Error)
		}
	case f.Attempts >= w.attempts(target):
		end.Error = fmt.Sprintf("gave up after %d attempts: %v", f.Attempts, err)
	default:
		end.Status, end.Error, end.RetryAfter = store.FiringPending, err.Error(), w.opts.Retry.delay(f.Attempts)
	}
	return end
}

// attempts returns how often a firing is attempted in all.
func (w *Worker) attempts(target Target) int {
	if target.Retry != nil {
		return max(w.opts.Retry.Attempts, target.Retry.Attempts)
	}
	return w.opts.Retry.Attempts
}

// wait returns the time until a waiting firing is looked at again. It grows with the time that the firing has waited.
func (w *Worker) wait(f *store.Firing) time.Duration {
	waited := w.opts.Clock.Since(time.UnixMicro(f.FiredAt))
	return min(max(firstWait, waited/4), longestWait)
}

// longestDelay bounds the delays of policies that have no bound of their own.
const longestDelay = 24 * time.Hour

// The defaults of retry policies. DefaultAttempts is how often a service that failed is called in all, and how often a handler that could
// not be run is tried; a handler that failed is not tried again by default.
const (
	DefaultAttempts   = 3
	DefaultBackoff    = time.Second
	DefaultMaxBackoff = 10 * time.Minute
)

// Retry is a retry policy.
type Retry struct {
	// Attempts is how often a firing is attempted. 0 means that a handler that failed is not tried again, and that a
	// service that failed is tried as often as a handler that could not run.
	Attempts int `json:"attempts"`
	// First is the delay before the second attempt. It doubles with each attempt.
	First time.Duration `json:"first"`
	// Max bounds the delay, without the part that is added at random; a day when 0.
	Max time.Duration `json:"max,omitempty"`
	// Statuses of HTTP answers after which a call of a Tool is tried again; when there are none, those of RetriesStatus.
	Statuses []int `json:"statuses,omitempty"`
}

// maxDelay bounds the delay that a service may ask for. That of a policy without a bound is DefaultMaxBackoff.
func (r Retry) maxDelay() time.Duration {
	if r.Max > 0 {
		return r.Max
	}
	return DefaultMaxBackoff
}

// RetriesStatus reports whether a call of a Tool is tried again after an answer with this status. 0 stands for no answer.
func (t Target) RetriesStatus(status int) bool {
	switch {
	case status == 0:
		return true
	case t.Retry != nil && len(t.Retry.Statuses) > 0:
		return slices.Contains(t.Retry.Statuses, status)
	}
	return status >= http.StatusInternalServerError || status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}

// delay returns the delay after a number of attempts. Up to a tenth is added at random, so that firings that failed
// together are not tried again together.
func (r Retry) delay(attempts int) time.Duration {
	most := r.Max
	if most <= 0 {
		most = max(r.First, longestDelay)
	}
	d := min(r.First, most)
	for n := 1; n < attempts && d < most; n++ {
		d += min(d, most-d)
	}
	return d + rand.N(d/10+1)
}
