package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// defaultDrain is how long calls that are under way may take to end when the manager stops. It and shutdownTime fit into the
// terminationGracePeriodSeconds of config/manager.
const defaultDrain = time.Minute

// draining stops a replica without cutting off what is under way: calls of models and tools, handlers of effects, code, and the tasks
// that follow runs. Threads, claims and tasks pass to the other replicas as soon as each of them is free.
type draining struct {
	begun   context.Context // ends when the replica is told to stop
	timeout time.Duration
	log     logr.Logger
}

var errDraining = errors.New("this replica is stopping")

// check is the readiness check.
func (d *draining) check(*http.Request) error {
	if d.is() {
		return errDraining
	}
	return nil
}

// is reports whether the replica is stopping.
func (d *draining) is() bool { return d.begun.Err() != nil }

// drainer is the engine.
type drainer interface {
	Drain(ctx context.Context) error
}

// then returns a context that ends when the replica was told to stop and nothing is under way any more, or the time for that has
// passed. It also ends when stop is called.
func (d *draining) then(work drainer) (serving context.Context, stop func()) {
	serving, stop = context.WithCancel(context.WithoutCancel(d.begun))
	context.AfterFunc(d.begun, func() {
		defer stop()
		began := time.Now()
		d.log.Info("Stopping: this replica begins nothing new, and lets what is under way finish", "within", d.timeout.String())
		ctx, cancel := context.WithTimeout(serving, d.timeout)
		defer cancel()
		if err := work.Drain(ctx); err != nil {
			d.log.Info("Not everything that was under way has finished. The rest is cut off, and repeated by another replica, or by this one when it starts again. Raise --drain-timeout and terminationGracePeriodSeconds to give it more time", "waited", time.Since(began).Round(time.Millisecond).String())
			return
		}
		d.log.Info("Everything that was under way has finished", "waited", time.Since(began).Round(time.Millisecond).String())
	})
	return serving, stop
}
