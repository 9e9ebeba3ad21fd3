package run

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// intake collects what inbox items add to the log in one transaction. It belongs to the goroutine of the run.
type intake struct {
	run   *run
	ops   []store.Op
	seqs  []int64
	state runstate.State
	// freed reports that calls can be made now which could not be made before.
	freed bool
	// inner holds the messages of called prompts whose calls have no result yet. It is loaded when needed.
	inner *transcript.Conversation
	// answered are the calls that got their results in this intake, and results are those results.
	answered map[string]bool
	results  []arrival
}

// arrival is a result that has arrived for a call.
type arrival struct {
	call    store.ToolCall
	message *store.Message
}

// takeIn moves inbox items into the conversation. One transaction adds the messages, removes the items from the inbox
// and changes the row of the run, so that no message is lost or doubled.
func (r *run) takeIn(ctx context.Context, items []store.InboxItem) error {
	items = r.hooks.TakeDue(items)
	in := &intake{run: r, state: r.State, answered: map[string]bool{}}
	in.state.Waits = maps.Clone(r.State.Waits)
	in.state.Decisions = maps.Clone(r.State.Decisions)
	if err := in.readInner(ctx, items); err != nil {
		return err
	}
	for _, item := range items {
		if err := in.item(item); err != nil { // the store of the engine leaves out what it cannot read
			return fmt.Errorf("inbox item %d: %w", item.Seq, err)
		}
		in.seqs = append(in.seqs, item.Seq)
	}
	in.times()
	// The hook depth applies from here on, also to hooks that are asked about the new messages.
	r.State.HookDepth = in.state.HookDepth
	if err := in.hooks(ctx); err != nil {
		return err
	}
	record := r.record
	if c := r.Thread.Child; c != nil && !r.resumed && len(in.state.ReplyTo) == 0 && c.Blocking && c.ToolCallID != "" && !r.conv.HasAnswer() {
		in.state.ReplyTo = []string{c.ToolCallID} // the parent's call that created this child
	}
	record.State = in.state.Encode()
	record.Status = store.RunRunning
	record.Reason, record.Message = "", "" // they said why the run waited
	if len(in.state.Waits) > 0 && r.record.Status == store.RunWaiting && !in.freed {
		record.Status = store.RunWaiting // other calls still wait
		if r.code.SnapshotContext(ctx) { // hooks have changed it just now, and are not asked again
			in.state.Context = r.State.Context
			record.State = in.state.Encode()
		}
		record.Reason, record.Message = in.state.WaitsFor(r.Thread.Name)
		record.WakeAt = in.state.WakeAt()
	}
	if len(in.seqs) > 0 {
		in.ops = append(in.ops, &store.Dequeue{Seqs: in.seqs})
	}
	tx := r.newTransaction("intake")
	tx.putRun(record) // the start of the run precedes what it takes in
	tx.add(in.ops...)
	if r.Thread.Child != nil && !r.resumed {
		running := tool.ChildRunning
		tx.add(&store.UpdateThread{RegistryStatus: &running})
	}
	if err := tx.commit(ctx); err != nil {
		return err
	}
	r.State = in.state
	return nil
}

func (in *intake) item(item store.InboxItem) error {
	switch item.Kind {
	case store.InboxMessage:
		var m store.Message
		if err := json.Unmarshal(item.Payload, &m); err != nil {
			return fmt.Errorf("not a message: %w", err)
		}
		in.state.ReplyTo = append(in.state.ReplyTo[:len(in.state.ReplyTo):len(in.state.ReplyTo)], runlog.RepliesOf(&m)...)
		depth, _ := m.Metadata[runlog.MetadataHookDepth].(float64)
		in.state.HookDepth = int(depth)
		in.message(m)
	case store.InboxChildResult:
		var r store.ChildResult
		if err := json.Unmarshal(item.Payload, &r); err != nil {
			return fmt.Errorf("not a child's result: %w", err)
		}
		in.childResult(r)
	case store.InboxTool:
		var q store.QueuedTool
		if err := json.Unmarshal(item.Payload, &q); err != nil {
			return fmt.Errorf("not a tool call: %w", err)
		}
		in.queuedTool(q)
	case store.InboxApproval:
		var d store.ApprovalDecision
		if err := json.Unmarshal(item.Payload, &d); err != nil {
			return fmt.Errorf("not a decision: %w", err)
		}
		in.decision(d)
	case store.InboxRerun:
		var again store.Rerun
		if err := json.Unmarshal(item.Payload, &again); err != nil {
			return fmt.Errorf("not a rerun: %w", err)
		}
		in.input(again.Input)
		if again.Side == definition.SideB {
			in.state.Turn.Side = again.Side
		}
	case store.InboxResume:
	default:
		return fmt.Errorf("unknown kind %q", item.Kind)
	}
	return nil
}

func (in *intake) message(m store.Message) *store.Message {
	m.RunID = in.run.record.ID
	m.Status = store.MessageCompleted
	if m.Role != store.RoleTool && len(m.ToolCalls) == 0 {
		in.input(m.ID)
	}
	in.ops = append(in.ops, &store.AppendMessage{Message: &m})
	return &m
}

// input records the message that a handler is to answer.
func (in *intake) input(messageID string) {
	if in.run.Agent.HasHandlers() {
		in.state.Input = messageID
	}
}

// hooks passes what has arrived to the hooks that run before it is stored, and queues the hooks that run afterwards.
func (in *intake) hooks(ctx context.Context) error {
	results := map[*store.Message]bool{}
	for _, a := range in.results {
		results[a.message] = true
		if err := in.run.hooks.BeforeResult(ctx, a.call, a.message); err != nil {
			return err
		}
		in.run.hooks.AfterResult(ctx, a.call, a.message)
		in.event(store.EventToolEnded, a.message.ID, toolEvent{Name: a.call.Name, ToolCallID: a.call.ID, Status: a.message.ToolStatus})
	}
	for _, op := range in.ops {
		if a, ok := op.(*store.AppendMessage); ok && !results[a.Message] {
			if err := in.run.hooks.BeforeCreate(ctx, a.Message); err != nil {
				return err
			}
			in.run.hooks.AfterCreate(ctx, a.Message)
		}
	}
	return nil
}

// childResult turns a child's result into the result of the call that waits for it, else into a silent message
// (SUB-04).
func (in *intake) childResult(r store.ChildResult) {
	m := store.Message{
		ID: runlog.NewMessageID(), CreatedAt: in.run.service.now(), Content: &r.Content, Attachments: r.Attachments,
		Metadata: map[string]any{thread.MetadataSubagent: r.Reference, thread.MetadataStatusKind: r.Status},
	}
	if call, awaited := in.findOpenCall(r.ToolCallID); awaited {
		m.ToolStatus = string(tool.StatusSuccess)
		if r.Status != tool.ChildCompleted {
			m.ToolStatus = string(tool.StatusError)
		}
		if r.Content == "" && r.Status != tool.ChildCompleted {
			text := fmt.Sprintf("(the subagent %s %s)", r.Reference, r.Status)
			m.Content = &text
		}
		in.result(call, m)
		return
	}
	if _, waits := in.state.Waits[r.ToolCallID]; waits { // the message with the call was deleted
		in.endWait(r.ToolCallID)
	}
	// What a child says has no more weight than what a person says, so it never gets the role system.
	m.Role, m.Name, m.Silent = store.RoleUser, r.Name, true
	text := fmt.Sprintf("[subagent %s (%s) %s]", r.Name, r.Reference, r.Status)
	if r.Content != "" {
		text += "\n" + r.Content
	}
	m.Content = &text
	in.message(m)
}

// queuedTool adds a message that makes the queued call, as if the model had asked for it (TOL-01).
func (in *intake) queuedTool(q store.QueuedTool) {
	call := store.ToolCall{ID: "call_" + uuid.NewString(), Name: q.Name, Arguments: string(q.Arguments)}
	m := store.Message{
		ID: runlog.NewMessageID(), CreatedAt: in.run.service.now(), Role: store.RoleAssistant, ToolCalls: []store.ToolCall{call},
		Metadata: map[string]any{transcript.MetadataQueuedTool: true}, Side: in.run.Agent.MessageSide(in.run.Agent.Side(q.Side)),
	}
	in.state.HookDepth = q.HookDepth
	in.freed = true // after a crash too, nothing else says that this call is still to be made
	in.message(m)
	in.event(store.EventToolStarted, m.ID, toolEvent{Name: call.Name, ToolCallID: call.ID})
}

// toolEvent is the data of tool.started and tool.ended.
type toolEvent struct {
	Name       string `json:"name"`
	ToolCallID string `json:"toolCallId"`
	Status     string `json:"status,omitempty"`
	DurationMs int64  `json:"durationMs,omitempty"`
}

func (in *intake) event(kind, messageID string, data toolEvent) {
	in.ops = append(in.ops, runlog.Event(in.run.record.ID, kind, messageID, data))
}
