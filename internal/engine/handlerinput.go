package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// A handler answers each accepted message with one answer, in order. A run takes one message out of the inbox for it, and
// leaves the others there for the runs that follow. So each message has its own run with its own outcome, and after a
// crash the other messages are still in the inbox.

// withheldFor is how long messages that a waiting run leaves in the inbox are held. Correctness does not depend on it,
// because the inbox is read again when the run ends.
const withheldFor = time.Minute

// admit returns the inbox items that the run takes now. In a handler's turn that is at most one message. Later items that
// would start a run by themselves stay in the inbox too.
func (r *run) admit(ctx context.Context, items []store.InboxItem) ([]store.InboxItem, error) {
	r.withholds = false
	if r.Side().Handler == nil || r.Frame != nil {
		return items, nil
	}
	full := r.Checkpoint.Input != "" || r.Checkpoint.Handoffs > 0
	var now []store.InboxItem
	var later []store.Op
	for _, item := range items {
		message := r.asMessage(item)
		if full && (message || item.Kind == store.InboxTool) {
			r.withholds = true
			if item.HeldUntil <= r.engine.now() {
				later = append(later, &store.Hold{Seq: item.Seq, Until: r.engine.now() + withheldFor.Microseconds(), Tries: item.Tries})
			}
			continue
		}
		full = full || message
		now = append(now, item)
	}
	if len(later) == 0 || len(now) > 0 || r.record.Status != store.RunWaiting {
		return now, nil
	}
	// The run may wait for a long time, and the items that it leaves must not keep waking it.
	r.engine.timers.Expect(r.engine.now() + withheldFor.Microseconds())
	s := r.newStep("park")
	s.add(later...)
	return now, s.commit(ctx)
}

// asMessage reports whether an inbox item becomes a message for a side to answer.
func (r *run) asMessage(item store.InboxItem) bool {
	switch item.Kind {
	case store.InboxMessage, store.InboxRerun:
		return true
	case store.InboxChildResult:
		var result store.ChildResult
		if json.Unmarshal(item.Payload, &result) != nil {
			return false
		}
		_, waits := r.Checkpoint.Waits[result.ToolCallID]
		return !waits && !slices.ContainsFunc(r.conv.Outstanding(r.record.ID), func(c store.ToolCall) bool { return c.ID == result.ToolCallID })
	}
	return false
}

// answersNothing reports whether a handler has no message to answer: the run began with a queued tool call, or the message
// was deleted before the handler was called.
func (r *run) answersNothing() bool {
	if r.Side().Handler == nil || r.Frame != nil || r.Checkpoint.Turn.Over > 0 || r.Checkpoint.Handoffs > 0 {
		return false
	}
	if r.Checkpoint.Input != "" {
		return r.conv.Message(r.Checkpoint.Input) == nil
	}
	for i := range r.conv.Messages {
		if m := &r.conv.Messages[i]; m.RunID == r.record.ID && m.Metadata[transcript.MetadataQueuedTool] != nil {
			return true
		}
	}
	return false
}

// handlerInput returns the message that a handler answers: in the first turn of a session the message that the run took in,
// and in later turns what the other side has said.
func (r *run) handlerInput(c *transcript.Conversation, side *definition.Side) *store.Message {
	turn := r.Checkpoint.Turn
	if turn.Over > 0 && r.Agent.Dual() {
		if m := c.Message(turn.After); m != nil && transcript.WriterOf(m) != side.Name && transcript.ContentOf(m) != "" {
			return m
		}
	} else if m := c.Message(r.Checkpoint.Input); m != nil {
		return m
	}
	return newestInput(c, side)
}

// newestInput returns the newest message that a person or the other side has written.
func newestInput(c *transcript.Conversation, side *definition.Side) *store.Message {
	for i := len(c.Messages) - 1; i >= 0; i-- {
		m := &c.Messages[i]
		if m.Silent {
			continue
		}
		if m.Role == store.RoleUser || m.Role == store.RoleAssistant && transcript.WriterOf(m) != side.Name && transcript.ContentOf(m) != "" {
			return m
		}
	}
	return nil
}

// unanswered returns the results of the parent's calls whose messages the run leaves in the inbox of a child that ends now.
// The results say that the messages get no answer.
func (r *run) unanswered(ctx context.Context) (ops []store.Op, err error) {
	items, err := r.engine.store.Inbox(ctx, r.Thread.ID)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		var m store.Message
		if item.Kind != store.InboxMessage || json.Unmarshal(item.Payload, &m) != nil {
			continue
		}
		for i, call := range runlog.RepliesOf(&m) {
			ops = append(ops, runlog.ResultOp(r.Thread, fmt.Sprintf("child:%s:%s:left:%d:%d", r.Thread.ID, r.record.ID, item.Seq, i), store.ChildResult{
				Reference: r.Thread.Reference, ThreadID: r.Thread.ID, Name: r.Thread.Child.Name, ToolCallID: call, Status: tool.ChildTerminated,
				Content: "the subagent ended with its answer to the previous message, so this message has no answer",
			}))
		}
	}
	return ops, nil
}
