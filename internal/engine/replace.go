package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/ending"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runtrace"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Texts that a run leaves in the log when it is ended by an external request (RUN-04).
const (
	stoppedText     = "(stopped by user)"
	cancelledText   = "(cancelled by user)"
	interruptedText = "(interrupted by a new message)"
)

// stop ends the run in the way that s requests.
func (r *run) stop(ctx context.Context, s *ending.Stop) error {
	if s.RunID != "" && s.RunID != r.record.ID {
		return nil // another run is under way by now, and continues
	}
	r.quiet = s.Quiet
	r.hooks.DropCut()
	awaited, err := r.awaited(ctx)
	if err == nil {
		r.childStops = stopChildOps(awaited)
		if s.Quiet {
			var done []store.Op
			done, r.over, err = r.finishStopRequests(ctx)
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
	return r.engine.stopAwaited(context.WithoutCancel(ctx), awaited)
}

func (r *run) stopFor(ctx context.Context, s *ending.Stop) error {
	text, reason := stoppedText, failure.ReasonStoppedByUser
	switch s.Kind {
	case ending.Interrupt, ending.Rollback:
		return r.giveWay(ctx, s)
	case ending.Cancel:
		text, reason = cancelledText, failure.ReasonCancelled
	case ending.ByUser:
	}
	r.record.Status, r.record.Reason, r.record.Message = store.RunStopped, reason, s.Reason
	return r.end(ctx, "stop", r.note(text, store.MessageCompleted, nil), text, nil)
}

// giveWay ends the run and queues the message that replaces it, in one transaction (RUN-09). A parent that waits for
// this run then waits for the next one.
func (r *run) giveWay(ctx context.Context, s *ending.Stop) error {
	record := r.record
	record.Status, record.Reason, record.Message = store.RunStopped, failure.ReasonInterrupted, s.Reason
	record.EndedAt, record.State = r.engine.now(), r.engine.postRun.Mark(r.thread, r.agent)
	step := r.newStep("stop")
	if s.Kind == ending.Rollback {
		gone, taken, err := r.takeBack(ctx)
		if err != nil {
			return err
		}
		record.Reason, record.Message = failure.ReasonRolledBack, clip.Text(taken.String(), maxRunMessage)
		step.add(gone...)
		step.add(runlog.Event(r.record.ID, store.EventRunRolledBack, "", taken))
	} else {
		step.createMessage(ctx, r.note(interruptedText, store.MessageCompleted, nil))
	}
	step.saveScopes(true)
	if err := handOn(s.With, r.checkpoint.ReplyTo); err != nil {
		return err
	}
	step.checkpoint(record)
	step.add(s.With)
	step.add(r.childStops...)
	if err := step.commit(ctx); err != nil {
		return err
	}
	runtrace.Ended(r.thread, &record, r.checkpoint.Telemetry)
	r.active.Ended = append(r.active.Ended, store.RunRef{ThreadID: r.thread.ID, RunID: record.ID})
	if session := r.scopes(); session != nil {
		session.Complete(context.WithoutCancel(ctx))
	}
	return nil
}

// takenBack is the data of run.rolledback: what a run had appended, and what it did that is not undone.
type takenBack struct {
	Messages int         `json:"messages"`
	Calls    []calledOne `json:"calls,omitempty"`
	Children []string    `json:"children,omitempty"` // references
}

type calledOne struct {
	Name       string `json:"name"`
	ToolCallID string `json:"toolCallId"`
	Status     string `json:"status"` // success, error, or interrupted when it had no result
}

func (t takenBack) String() string {
	text := fmt.Sprintf("%d messages were taken back", t.Messages)
	if len(t.Calls) == 0 {
		return text
	}
	names := make([]string, 0, len(t.Calls))
	for _, c := range t.Calls {
		names = append(names, fmt.Sprintf("%s (%s, %s)", c.Name, c.ToolCallID, c.Status))
	}
	return text + "; what these calls did is not undone: " + strings.Join(names, ", ")
}

// takeBack returns the operations that delete what the run has appended, including its input.
func (r *run) takeBack(ctx context.Context) (ops []store.Op, t takenBack, err error) {
	results := map[string]string{}
	var calls []store.ToolCall
	for offset := 0; ; offset += transcript.PageSize {
		page, err := r.engine.store.Messages(ctx, r.thread.ID, store.MessageQuery{Order: "desc", Limit: transcript.PageSize, Offset: offset, IncludeSilent: true, AllDepths: true})
		if err != nil {
			return nil, t, fmt.Errorf("read what the run has appended: %w", err)
		}
		newer := false
		for i := range page.Messages {
			m := &page.Messages[i]
			newer = newer || m.CreatedAt >= r.record.StartedAt
			if m.RunID != r.record.ID {
				continue
			}
			newer = true
			ops = append(ops, &store.DeleteMessage{ID: m.ID})
			calls = append(append([]store.ToolCall{}, m.ToolCalls...), calls...)
			if m.Role == store.RoleTool {
				results[m.ToolCallID] = m.ToolStatus
			}
		}
		if len(page.Messages) < transcript.PageSize || !newer {
			break
		}
	}
	t.Messages = len(ops)
	for _, call := range calls {
		status, done := results[call.ID]
		if w, waits := r.checkpoint.Waits[call.ID]; waits && w.Kind == tool.WaitApproval {
			continue // it was never made
		} else if !done {
			status = "interrupted"
		}
		t.Calls = append(t.Calls, calledOne{Name: call.Name, ToolCallID: call.ID, Status: status})
	}
	children, err := r.engine.store.Children(ctx, r.thread.ID)
	if err != nil {
		return nil, t, err
	}
	for _, c := range children {
		if c.Child != nil && c.Child.SpawnGroupID == r.record.ID {
			t.Children = append(t.Children, c.Reference)
		}
	}
	return ops, t, nil
}

// handOn records in a message the parent's calls that waited for the replaced run, so that the run that takes the
// message answers them.
func handOn(op *store.Enqueue, replyTo []string) error {
	if len(replyTo) == 0 {
		return nil
	}
	var m store.Message
	if err := json.Unmarshal(op.Item.Payload, &m); err != nil {
		return fmt.Errorf("cannot read the message that replaces a run: %w", err)
	}
	if m.Metadata == nil {
		m.Metadata = map[string]any{}
	}
	m.Metadata[runlog.MetadataReplyTo] = replyTo
	var err error
	op.Item.Payload, err = json.Marshal(&m)
	return err
}

// repliesOf returns the parent's calls that wait for the answer to a message.
func repliesOf(m *store.Message) []string {
	switch v := m.Metadata[runlog.MetadataReplyTo].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, id := range v {
			if s, ok := id.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// Queue queues a message on a thread that may have a run under way. policy says what then happens (RUN-09). When
// policy is empty, the policy of the thread applies, else that of its agent, else enqueue. It returns the errors of
// State.Queue, and store.ErrRunning under the policy reject.
func (e *Engine) Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error) {
	if policy == "" && (n.Role == "" || n.Role == store.RoleUser) {
		policy = e.policyOf(ctx, t)
	}
	switch policy {
	case skeinv1.RunPolicyReject:
		n.Commit = func(ctx context.Context, op *store.Enqueue) error {
			op.IfIdle = true
			return st.Apply(ctx, op)
		}
	case skeinv1.RunPolicyInterrupt:
		n.Commit = func(ctx context.Context, op *store.Enqueue) error {
			return e.takeOver(ctx, st, t.ID, op, ending.Interrupt)
		}
	case skeinv1.RunPolicyRollback:
		n.Commit = func(ctx context.Context, op *store.Enqueue) error {
			return e.takeOver(ctx, st, t.ID, op, ending.Rollback)
		}
	case skeinv1.RunPolicyEnqueue, "":
	}
	return st.Queue(ctx, n)
}

// takeOver queues a message in place of the run that is under way. That run ends in the same transaction, so that a
// crash leaves both done or neither.
func (e *Engine) takeOver(ctx context.Context, st *thread.State, threadID string, op *store.Enqueue, kind ending.Kind) error {
	for {
		op.IfNoRun = true
		if err := st.Apply(ctx, op); !errors.Is(err, store.ErrRunning) {
			return err
		}
		last, err := e.store.Run(ctx, threadID, "")
		if err != nil {
			return err
		}
		if last.Status.Ended() {
			continue // it has ended in the meantime
		}
		with := *op
		with.IfNoRun = false
		ended, err := e.endRun(ctx, threadID, &ending.Stop{Kind: kind, Reason: "a new message took its place", RunID: last.ID, With: &with})
		if err != nil {
			return err
		}
		if ended {
			*op = with
			return nil
		}
	}
}

// policyOf returns the policy of a thread for messages that set none.
func (e *Engine) policyOf(ctx context.Context, t *store.Thread) skeinv1.RunPolicy {
	rules, err := e.opts.Definitions.Rules(ctx, t.Namespace, t.Name, t.Agent)
	if err != nil {
		e.log.Error(err, "cannot read the run policy of a thread: the message is queued", "thread", t.ID)
		return skeinv1.RunPolicyEnqueue
	}
	return rules.Policy
}

// CancelRun ends one run of a thread, under way or parked, and nothing else: the thread then continues with what
// waits in its inbox (RUN-10). A run that has ended stays as it is. It returns store.ErrNotFound when the thread has
// no such run.
func (e *Engine) CancelRun(ctx context.Context, threadID, runID, reason string) error {
	r, err := e.store.Run(ctx, threadID, runID)
	if err != nil {
		return err
	}
	if r.Status.Ended() {
		return nil
	}
	_, err = e.endRun(ctx, threadID, &ending.Stop{Kind: ending.Cancel, Reason: reason, RunID: runID})
	return err
}
