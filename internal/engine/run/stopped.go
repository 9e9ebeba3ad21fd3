package run

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
	r.parentEnded = s.ParentEnded
	r.hooks.DropCut()
	awaited, err := r.service.opts.Stops.AwaitedChildren(ctx, r.Thread, r.record.ID, r.State.Waits, r.conv)
	if err == nil {
		r.childStops = stop.ChildOps(awaited)
		if s.ParentEnded {
			var done []store.Op
			done, r.unawaited, err = r.service.opts.Stops.TakeRequests(ctx, r.Thread.ID, r.State.ReplyTo)
			r.childStops = append(r.childStops, done...)
		}
	}
	if err == nil {
		err = r.endStopped(ctx, s)
	}
	s.Written, s.Err = err == nil, err
	if err != nil {
		return err
	}
	return r.service.opts.Stops.StopAwaited(context.WithoutCancel(ctx), awaited)
}

// endStopped ends the run as the kind of the stop says: it gives way to another message, or is stopped with a note that names the
// reason.
func (r *run) endStopped(ctx context.Context, s *cancelcause.Stop) error {
	text, reason := stoppedText, skeinv1.ReasonStoppedByUser
	switch s.Kind {
	case cancelcause.Interrupt, cancelcause.Rollback:
		return r.giveWay(ctx, s)
	case cancelcause.Cancel:
		text, reason = cancelledText, skeinv1.ReasonCancelled
	case cancelcause.ByUser:
	}
	r.record.Status, r.record.Reason, r.record.Message = store.RunStopped, reason, s.Reason
	return r.end(ctx, "stop", r.Note(r.record.ID, r.service.now(), text, store.MessageCompleted, nil), text, nil)
}

// giveWay ends the run and queues the message that replaces it, in one transaction (RUN-09). A parent that waits for
// this run then waits for the next one.
func (r *run) giveWay(ctx context.Context, s *cancelcause.Stop) error {
	record := r.record
	record.Status, record.Reason, record.Message = store.RunStopped, skeinv1.ReasonInterrupted, s.Reason
	record.EndedAt, record.State = r.service.now(), r.service.opts.PostRun.EndState(r.Thread, r.Agent)
	tx := r.newTransaction("stop")
	if s.Kind == cancelcause.Rollback {
		gone, taken, err := r.service.opts.Stops.TakeBack(ctx, &r.record, r.State.Waits)
		if err != nil {
			return err
		}
		record.Reason, record.Message = skeinv1.ReasonRolledBack, clip.Text(taken.String(), runlog.MaxMessage)
		tx.add(gone...)
		tx.add(runlog.Event(r.record.ID, store.EventRunRolledBack, "", taken))
	} else {
		tx.createMessage(ctx, r.Note(r.record.ID, r.service.now(), interruptedText, store.MessageCompleted, nil))
	}
	tx.saveScopes(true)
	if err := stop.HandOn(s.With, r.State.ReplyTo); err != nil {
		return err
	}
	tx.putRun(record)
	tx.add(s.With)
	tx.add(r.childStops...)
	if err := tx.commit(ctx); err != nil {
		return err
	}
	runtrace.RecordEnd(r.Thread, &record, r.State.Telemetry)
	r.active.Ended = append(r.active.Ended, store.RunRef{ThreadID: r.Thread.ID, RunID: record.ID})
	if session := r.code.Session(); session != nil {
		session.Complete(context.WithoutCancel(ctx))
	}
	return nil
}

// End ends a run that no worker executes. The caller holds the lease of the thread.
func (s *Service) End(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, last *store.Run, how *cancelcause.Stop) (err error) {
	r := s.newRun(t, fence, active)
	r.record = *last
	if r.State, err = runstate.Read(last); err != nil {
		return err
	}
	setLogValues(r, r.State.Telemetry)
	// Hooks see this end like any other. A definition that is not ready must not prevent the stop.
	r.Agent, _ = s.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	return r.stop(context.WithoutCancel(ctx), how)
}
