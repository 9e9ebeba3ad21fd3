package stop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// TakenBack is the data of run.rolledback: what a run had appended, and what it did that is not undone.
type TakenBack struct {
	Messages int         `json:"messages"`
	Calls    []calledOne `json:"calls,omitempty"`
	Children []string    `json:"children,omitempty"` // references
}

type calledOne struct {
	Name       string `json:"name"`
	ToolCallID string `json:"toolCallId"`
	Status     string `json:"status"` // success, error, or interrupted when it had no result
}

// String returns the text for the run's message.
func (t TakenBack) String() string {
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

// maxClockSkew is more than the clocks of two replicas differ, of which one began the run, and the other stored a child.
const maxClockSkew = 5 * time.Minute

// TakeBack returns the operations that delete what a run has appended, including its input. waits are what its calls wait for.
func (s *Service) TakeBack(ctx context.Context, run *store.Run, waits map[string]tool.Wait) (ops []store.Op, t TakenBack, err error) {
	results := map[string]string{}
	var calls []store.ToolCall
	for offset := 0; ; offset += transcript.PageSize {
		page, err := s.opts.Store.Messages(ctx, run.ThreadID, store.MessageQuery{Order: "desc", Limit: transcript.PageSize, Offset: offset, IncludeSilent: true, AllDepths: true})
		if err != nil {
			return nil, t, fmt.Errorf("read what the run has appended: %w", err)
		}
		withinRun := false
		for i := range page.Messages {
			m := &page.Messages[i]
			withinRun = withinRun || m.CreatedAt >= run.StartedAt
			if m.RunID != run.ID {
				continue
			}
			withinRun = true
			ops = append(ops, &store.DeleteMessage{ID: m.ID})
			calls = append(append([]store.ToolCall{}, m.ToolCalls...), calls...)
			if m.Role == store.RoleTool {
				results[m.ToolCallID] = m.ToolStatus
			}
		}
		if len(page.Messages) < transcript.PageSize || !withinRun {
			break
		}
	}
	t.Messages = len(ops)
	for _, call := range calls {
		status, done := results[call.ID]
		if w, waiting := waits[call.ID]; waiting && w.Kind == tool.WaitApproval {
			continue // it was never made
		} else if !done {
			status = "interrupted"
		}
		t.Calls = append(t.Calls, calledOne{Name: call.Name, ToolCallID: call.ID, Status: status})
	}
	children, err := s.opts.Store.ChildrenSince(ctx, run.ThreadID, run.StartedAt-maxClockSkew.Microseconds())
	if err != nil {
		return nil, t, err
	}
	for _, c := range children {
		if c.Child != nil && c.Child.SpawnGroupID == run.ID {
			t.Children = append(t.Children, c.Reference)
		}
	}
	return ops, t, nil
}

// HandOn records in a message the parent's calls that waited for the replaced run, so that the run that takes the
// message answers them.
func HandOn(op *store.Enqueue, replyTo []string) error {
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

// Queue queues a message on a thread that may have a run under way. policy says what then happens (RUN-09). When
// policy is empty, the policy of the thread applies, else that of its agent, else enqueue. It returns the errors of
// State.Queue, and store.ErrRunning under the policy reject.
func (s *Service) Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error) {
	if policy == "" && (n.Role == "" || n.Role == store.RoleUser) {
		policy = s.policyOf(ctx, t)
	}
	q, err := st.PrepareQueue(ctx, n)
	if err != nil {
		return nil, err
	}
	switch policy {
	case skeinv1.RunPolicyInterrupt:
		err = s.takeOver(ctx, st, t.ID, q.Op, cancelcause.Interrupt)
	case skeinv1.RunPolicyRollback:
		err = s.takeOver(ctx, st, t.ID, q.Op, cancelcause.Rollback)
	default:
		q.Op.IfIdle = policy == skeinv1.RunPolicyReject
		err = st.Apply(ctx, q.Op)
	}
	return q.Done(ctx, err)
}

// takeOver queues a message in place of the run that is under way. That run ends in the same transaction, so that a
// crash leaves both done or neither.
func (s *Service) takeOver(ctx context.Context, st *thread.State, threadID string, op *store.Enqueue, kind cancelcause.Kind) error {
	for {
		op.IfNoRun = true
		if err := st.Apply(ctx, op); !errors.Is(err, store.ErrRunning) {
			return err
		}
		last, err := s.opts.Store.Run(ctx, threadID, "")
		if err != nil {
			return err
		}
		if last.Status.Ended() {
			continue // it has ended in the meantime
		}
		with := *op
		with.IfNoRun, with.Bounded = false, false // there was room for it, and the run that gives way ends either way
		ended, err := s.endRun(ctx, threadID, &cancelcause.Stop{Kind: kind, Reason: "a new message took its place", RunID: last.ID, With: &with})
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
func (s *Service) policyOf(ctx context.Context, t *store.Thread) skeinv1.RunPolicy {
	rules, err := s.opts.Definitions.Rules(ctx, t.Namespace, t.Name, t.Agent)
	if err != nil {
		s.opts.Log.Error(err, "cannot read the run policy of a thread: the message is queued", "thread", t.ID)
		return skeinv1.RunPolicyEnqueue
	}
	return rules.Policy
}

// CancelRun ends one run of a thread, under way or parked, and nothing else: the thread then continues with what
// waits in its inbox (RUN-10). A run that has ended stays as it is. It returns store.ErrNotFound when the thread has
// no such run.
func (s *Service) CancelRun(ctx context.Context, threadID, runID, reason string) error {
	r, err := s.opts.Store.Run(ctx, threadID, runID)
	if err != nil {
		return err
	}
	if r.Status.Ended() {
		return nil
	}
	_, err = s.endRun(ctx, threadID, &cancelcause.Stop{Kind: cancelcause.Cancel, Reason: reason, RunID: runID})
	return err
}
