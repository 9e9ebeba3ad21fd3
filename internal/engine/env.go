package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// awaitEnv resolves the thread's variables before anything of it runs, so that its secrets are known to all that
// keeps them out of what is written (SPEC ENV-03). When required ones are missing the run is parked until
// somebody sets them (SPEC ENV-06); waits is true then.
func (r *run) awaitEnv(ctx context.Context, items []store.InboxItem) (waits bool, err error) {
	missing, err := r.loadEnv(ctx)
	if err != nil || len(missing) == 0 {
		return false, err
	}
	if r.resumed && len(items) > 0 {
		// Whatever woke it is taken in all the same: nothing is to be left that keeps waking it.
		now, err := r.admit(ctx, r.takeDue(items))
		if err != nil {
			return false, err
		}
		if len(now) > 0 || !r.withholds {
			if err := r.takeIn(ctx, now); err != nil {
				return false, err
			}
		}
	}
	r.snapshotContext(ctx)
	r.record.Status, r.record.Reason = store.RunWaiting, skeinv1.ReasonEnvMissing
	r.record.Message = fmt.Sprintf("the agent %s needs values for %s: set them with kubectl skein env set, with setEnv, or in a Secret of the user or the instance",
		r.agent.Name, strings.Join(missing, ", "))
	r.record.State, r.record.WakeAt = r.checkpoint.Encode(), 0
	s := r.newStep("park")
	s.checkpoint(r.record)
	s.saveScopes(false)
	if err := s.commit(ctx); err != nil {
		return false, err
	}
	// What was set between the look and the parking has woken nobody.
	if missing, err = r.loadEnv(ctx); err != nil || len(missing) > 0 {
		return true, err
	}
	return true, r.engine.store.Apply(ctx, r.thread.ID, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}, IgnoreTerminated: true})
}

// reader is who reads variables now: the side, or the prompt that it calls as a tool.
func (r *run) reader() thread.EnvReader {
	e := thread.EnvReader{Side: r.side().Name}
	if r.frame != nil {
		e.Called = r.frame.path
	}
	return e
}

func (r *run) loadEnv(ctx context.Context) (missing []string, err error) {
	missing, err = r.engine.threads.LoadEnv(ctx, r.thread)
	r.envLoaded = err == nil
	var unreadable *thread.EnvUnreadableError
	if errors.As(err, &unreadable) {
		return nil, failf(ReasonEnvUnreadable, "%s", unreadable.Error())
	}
	return missing, err
}
