package run

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// finish ends the session with an answer. m is the message of the answer when it is not in the log yet.
func (r *run) finish(ctx context.Context, end *plan.Ending, m *store.Message) error {
	m, err := r.recordAhead(ctx, m)
	if err != nil {
		return err
	}
	if m, err = r.finishWork(ctx, m); err != nil {
		return err
	}
	r.record.Status, r.record.Reason, r.record.Message = store.RunSucceeded, "", ""
	if end.Failed {
		r.record.Status, r.record.Reason, r.record.Message = store.RunFailed, skeinv1.ReasonSessionFailed, end.Text
	}
	if end.Turns > 0 {
		r.record.Reason = skeinv1.ReasonMaxSessionTurnsReached
		r.record.Message = fmt.Sprintf("the session had %d turns, which is its limit (maxSessionTurns)", end.Turns)
	}
	if end.Append {
		if m, err = r.answerOf(ctx, end); err != nil {
			return err
		}
	}
	return r.end(ctx, "finish", m, end.Text, end.Attachments)
}

// answerOf returns the message of an answer that is the argument of a call.
func (r *run) answerOf(ctx context.Context, end *plan.Ending) (*store.Message, error) {
	st, err := r.code.State(ctx)
	if err != nil {
		return nil, err
	}
	m := r.Note(r.record.ID, r.service.now(), end.Text, store.MessageCompleted, nil)
	for _, path := range end.Attachments {
		rec, err := st.StatFile(ctx, path)
		if err != nil && !thread.IsInvalid(err) {
			return nil, err
		}
		if rec != nil { // nil when it was deleted since the call
			m.Attachments = append(m.Attachments, store.Attachment{Path: rec.Path, Name: rec.Name, MimeType: rec.MimeType, Size: rec.Size})
		}
	}
	if err := r.hooks.BeforeCreate(ctx, m); err != nil {
		return nil, err
	}
	end.Text = transcript.ContentOf(m)
	return m, nil
}

// fail ends the run with a failure, which goes into the log as the answer (RUN-05).
func (r *run) fail(ctx context.Context, f *failure.Error) error {
	r.log.Info("run failed", "run", r.record.ID, "reason", f.Reason)
	r.record.Status, r.record.Reason, r.record.Message = store.RunFailed, f.Reason, f.Message
	text := "(error: " + f.Message + ")"
	return r.end(ctx, "fail", r.Note(r.record.ID, r.service.now(), text, store.MessageFailed, f.Metadata), text, nil)
}

// endCancelled ends a run whose context has ended, in the way that its cause requires.
func (r *run) endCancelled(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, cancelcause.ReleaseTimeout)
	defer cancel()
	if r.record.Status.Ended() {
		return nil
	}
	switch stopped := cancelcause.StopOf(cause); {
	case stopped != nil:
		return r.stop(ctx, stopped)
	case errors.Is(cause, cancelcause.ErrTerminal):
		return r.service.opts.Stops.EndTerminated(ctx, r.Thread, r.fence, &r.record)
	case errors.Is(cause, cancelcause.ErrAborted), errors.Is(cause, cancelcause.ErrDestroyed):
		return nil
	}
	return cause // the run stays as it is in the log
}

// end writes the end of the run in one transaction: its last message, its row and, for a child, the result for the
// parent.
func (r *run) end(ctx context.Context, point string, m *store.Message, text string, attachments []string) error {
	if r.code.Lines != nil {
		r.code.Lines.Flush() // lines of code precede the end
	}
	record := r.record
	record.EndedAt = r.service.now()
	record.State = r.service.opts.PostRun.EndState(r.Thread, r.Agent)
	record.Message = clip.Text(record.Message, runlog.MaxMessage)
	if m != nil {
		r.hooks.AfterCreate(ctx, m)
	}
	ends, err := r.commitEnd(ctx, point, record, m, text, attachments)
	if errors.Is(err, store.ErrHasParent) { // it has become a child while the run was under way, and now tells its parent
		var t *store.Thread
		if t, err = r.service.opts.Store.Thread(ctx, r.Thread.ID); err == nil {
			r.Thread = t
			ends, err = r.commitEnd(ctx, point, record, m, text, attachments)
		}
	}
	if err != nil {
		r.record.Status = store.RunRunning // nothing was written
		return err
	}
	runtrace.RecordEnd(r.Thread, &record, r.State.Telemetry)
	if ends {
		// The thread is terminated, and now so are the children that it may have left. They do not wait for hooks.
		if err := r.service.opts.Stops.TerminateChildren(context.WithoutCancel(ctx), r.Thread.ID); err != nil {
			r.log.Error(err, "cannot terminate the children of a thread whose session ended")
		}
		if point != "stop" {
			r.callFinalHooks(ctx)
		}
	}
	if postrun.HasTasksDue(&record) {
		r.active.Ended = append(r.active.Ended, store.RunRef{ThreadID: r.Thread.ID, RunID: record.ID})
	}
	if session := r.code.Session(); session != nil {
		session.Complete(context.WithoutCancel(ctx))
	}
	return nil
}

// commitEnd writes the end of the run. It fails with store.ErrHasParent, and writes nothing, when the thread has become a child
// since it was read. ends reports that the thread is a child that has ended with its run.
func (r *run) commitEnd(ctx context.Context, point string, record store.Run, m *store.Message, text string, attachments []string) (ends bool, err error) {
	tx := r.newTransaction(point)
	if r.Thread.ParentID == "" {
		tx.add(&store.ExpectRoot{})
	}
	tx.clear()
	if m != nil {
		tx.appendMessage(m)
	}
	tx.saveScopes(true)
	tx.putRun(record)
	if record.Reason == skeinv1.ReasonStoppedByUser && !stop.EndsWithResult(r.Thread) {
		park := &store.Park{} // MSG-08
		if r.parentEnded {
			park = stop.ParkOnly(r.unawaited)
		}
		tx.add(park)
	}
	child, err := r.service.opts.Stops.ResultOps(ctx, stop.Ended{
		Thread: r.Thread, Run: &r.record, ReplyTo: r.State.ReplyTo, Text: text, Attachments: attachments, ParentEnded: r.parentEnded, Unawaited: r.unawaited,
	})
	if err != nil {
		return false, err
	}
	tx.add(child...)
	tx.add(r.childStops...)
	if err := tx.commit(ctx); err != nil {
		return false, err
	}
	return stop.EndsChild(child), nil
}

// recordAhead writes the answer that ends a turn into the log before the run ends, if there is a hook for it. So the hook is called during
// the run. m is nil if the answer is in the log already. recordAhead returns nil after it has written m, and otherwise m.
func (r *run) recordAhead(ctx context.Context, m *store.Message) (*store.Message, error) {
	if r.hooks.Hook(skeinv1.HookAfterCreateMessage) == nil {
		return m, nil
	}
	if m != nil {
		tx := r.newTransaction("answer")
		tx.clear()
		tx.createMessage(ctx, m)
		tx.putRun(r.record)
		if err := tx.commit(ctx); err != nil {
			return m, err
		}
	}
	return nil, r.hooks.CallDue(ctx)
}

// callFinalHooks calls the hooks for the final messages of a thread that ends with them.
func (r *run) callFinalHooks(ctx context.Context) {
	if len(r.hooks.Pending()) == 0 || ctx.Err() != nil && !errors.Is(context.Cause(ctx), cancelcause.ErrTerminal) {
		return
	}
	ctx, cancel := cancelcause.PastTermination(ctx, r.service.opts.Life)
	defer cancel()
	r.hooks.CallFinal(ctx, func(ctx context.Context) error { return r.code.Reach(ctx, r.hooks.Pending()[0].DelayedUntil != 0) })
}
