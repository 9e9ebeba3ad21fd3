package engine

import (
	"context"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/store"
)

// Texts that a run leaves in the log when it is ended by an external request (RUN-04).
const (
	stoppedText     = "(stopped by user)"
	cancelledText   = "(cancelled by user)"
	interruptedText = "(interrupted by a new message)"
)

// stop ends the run in the way that s requests.
func (r *run) stop(ctx context.Context, s *cancelcause.Stop) error {
	if s.RunID != "" && s.RunID != r.record.ID {
		return nil // another run is under way by now, and continues
	}
	r.quiet = s.Quiet
	r.hooks.DropCut()
	awaited, err := r.engine.stops.Awaited(ctx, r.Thread, r.record.ID, r.Checkpoint.Waits, r.conv)
	if err == nil {
		r.childStops = stop.ChildOps(awaited)
		if s.Quiet {
			var done []store.Op
			done, r.over, err = r.engine.stops.Finish(ctx, r.Thread.ID, r.Checkpoint.ReplyTo)
			r.childStops = append(r.childStops, done...)
		}
	}
	if err == nil {
		err = r.stopFor(ctx, s)
	}
	s.Written, s.Err = err == nil, err
	if err != nil {
		return err
	}
	return r.engine.stops.StopAwaited(context.WithoutCancel(ctx), awaited)
}

func (r *run) stopFor(ctx context.Context, s *cancelcause.Stop) error {
	text, reason := stoppedText, skeinv1.ReasonStoppedByUser
	switch s.Kind {
	case cancelcause.Interrupt, cancelcause.Rollback:
		return r.giveWay(ctx, s)
	case cancelcause.Cancel:
		text, reason = cancelledText, skeinv1.ReasonCancelled
	case cancelcause.ByUser:
	}
	r.record.Status, r.record.Reason, r.record.Message = store.RunStopped, reason, s.Reason
	return r.end(ctx, "stop", r.Note(r.record.ID, r.engine.now(), text, store.MessageCompleted, nil), text, nil)
}

// giveWay ends the run and queues the message that replaces it, in one transaction (RUN-09). A parent that waits for
// this run then waits for the next one.
func (r *run) giveWay(ctx context.Context, s *cancelcause.Stop) error {
	record := r.record
	record.Status, record.Reason, record.Message = store.RunStopped, skeinv1.ReasonInterrupted, s.Reason
	record.EndedAt, record.State = r.engine.now(), r.engine.postRun.Mark(r.Thread, r.Agent)
	tx := r.newTransaction("stop")
	if s.Kind == cancelcause.Rollback {
		gone, taken, err := r.engine.stops.TakeBack(ctx, &r.record, r.Checkpoint.Waits)
		if err != nil {
			return err
		}
		record.Reason, record.Message = skeinv1.ReasonRolledBack, clip.Text(taken.String(), runlog.MaxMessage)
		tx.add(gone...)
		tx.add(runlog.Event(r.record.ID, store.EventRunRolledBack, "", taken))
	} else {
		tx.createMessage(ctx, r.Note(r.record.ID, r.engine.now(), interruptedText, store.MessageCompleted, nil))
	}
	tx.saveScopes(true)
	if err := stop.HandOn(s.With, r.Checkpoint.ReplyTo); err != nil {
		return err
	}
	tx.putRun(record)
	tx.add(s.With)
	tx.add(r.childStops...)
	if err := tx.commit(ctx); err != nil {
		return err
	}
	runtrace.Ended(r.Thread, &record, r.Checkpoint.Telemetry)
	r.active.Ended = append(r.active.Ended, store.RunRef{ThreadID: r.Thread.ID, RunID: record.ID})
	if session := r.code.Session(); session != nil {
		session.Complete(context.WithoutCancel(ctx))
	}
	return nil
}

// endings implements stop.Runs.
type endings struct{ engine *Engine }

// End implements stop.Runs.
func (n endings) End(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, last *store.Run, how *cancelcause.Stop) (err error) {
	e := n.engine
	r := e.newRun(t, fence, active, e.log.WithValues("thread", t.ID))
	r.record = *last
	if r.Checkpoint, err = runstate.Read(last); err != nil {
		return err
	}
	// Hooks see this end like any other. A definition that is not ready must not prevent the stop.
	r.Agent, _ = e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	return r.stop(context.WithoutCancel(ctx), how)
}

// LetGo implements stop.Runs.
func (n endings) LetGo(ctx context.Context, threadID string, active *activethreads.Active) {
	n.engine.dispatch.LetGo(ctx, threadID, active)
}
