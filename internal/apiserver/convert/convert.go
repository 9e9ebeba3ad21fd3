// Package convert makes wire types of the runtime API from records of the store, and the domain's requests from wire types.
package convert

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// RetainedList returns a page of threads that have no object.
func RetainedList(page []store.Thread, more bool) *runtimev1.RetainedList {
	list := &runtimev1.RetainedList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRetainedList), Threads: make([]runtimev1.ThreadRecord, len(page)), HasMore: more}
	for i := range page {
		list.Threads[i] = *ThreadRecord(&page[i], nil)
	}
	return list
}

// ThreadRecord returns the record of a thread. last is its newest run, or nil.
func ThreadRecord(t *store.Thread, last *store.Run) *runtimev1.ThreadRecord {
	r := &runtimev1.ThreadRecord{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindThreadRecord),
		ObjectMeta: metav1.ObjectMeta{
			Name: t.Name, Namespace: t.Namespace, UID: types.UID(t.ID), CreationTimestamp: metav1.NewTime(time.UnixMicro(t.CreatedAt)),
		},
		ThreadID: t.ID, AgentID: t.Agent, OriginAgentID: t.OriginAgent, TaskID: t.TaskID, Title: t.Title, Arguments: t.Arguments,
		CreatedAt: t.CreatedAt, LastActivityAt: t.LastActivityAt,
		ParentID: t.ParentID, RootID: t.RootID, Reference: t.Reference, Depth: t.Depth,
		ThreadFields:     fieldsOf(t),
		TerminatedReason: t.TerminatedReason,
		V:                t.Version, MessageCount: t.Messages, QueuedCount: t.Queued, LastEvent: t.LastSeq,
	}
	if t.UserID != "" {
		r.UserID = &t.UserID
	}
	if len(r.Arguments) == 0 {
		r.Arguments = json.RawMessage("{}")
	}
	if t.OriginID != "" {
		r.OriginThreadID, r.ForkPointIndex = t.OriginID, &t.ForkIndex
	}
	if t.TerminatedAt != 0 {
		r.Terminated = &t.TerminatedAt
	}
	if t.DestroyedAt != 0 {
		r.Destroyed, r.DestroyedReason = &t.DestroyedAt, t.DestroyedReason
	}
	if t.RetainedAt != 0 {
		r.Retained = &t.RetainedAt
	}
	r.IdleExpiry, r.Parked = t.IdleExpiry, t.Parked
	if last != nil {
		run := Run(last)
		r.LastRun = &run
	}
	return r
}

// Run converts a run.
func Run(r *store.Run) runtimev1.Run {
	return runtimev1.Run{
		ID: r.ID, Agent: r.Agent, Status: string(r.Status), Reason: r.Reason, Message: r.Message,
		Steps: r.Steps, StartedAt: r.StartedAt, EndedAt: r.EndedAt, Usage: r.Usage, SessionState: r.SessionState,
	}
}

// Message converts a message.
func Message(m *store.Message) runtimev1.Message {
	return runtimev1.Message{
		ID: m.ID, Role: string(m.Role), Content: m.Content, Name: m.Name,
		ToolCalls: Slice(m.ToolCalls, func(t store.ToolCall) runtimev1.ToolCall { return runtimev1.ToolCall(t) }), ToolCallID: m.ToolCallID,
		CreatedAt: m.CreatedAt, ParentID: m.ParentID, Depth: m.Depth, Silent: m.Silent, Metadata: m.Metadata,
		Attachments: Slice(m.Attachments, func(a store.Attachment) runtimev1.Attachment { return runtimev1.Attachment(a) }),
		Status:      string(m.Status), ToolStatus: m.ToolStatus, ReasoningContent: m.ReasoningContent, Side: m.Side, RunID: m.RunID, Usage: m.Usage,
		Summary: summary(m.Summary),
	}
}

// NewMessage converts the description of a message that a client writes.
func NewMessage(n *runtimev1.NewMessage) thread.NewMessage {
	m := thread.NewMessage{
		ID: n.ID, Role: store.Role(n.Role), Name: n.Name, Silent: n.Silent, Metadata: n.Metadata,
		Attachments: Slice(n.Attachments, func(a runtimev1.Attachment) store.Attachment { return store.Attachment(a) }),
		ToolCalls:   Slice(n.ToolCalls, func(t runtimev1.ToolCall) store.ToolCall { return store.ToolCall(t) }),
		ToolCallID:  n.ToolCallID, ToolStatus: n.ToolStatus, IdempotencyKey: n.IdempotencyKey,
		ParentID: n.ParentID, Depth: n.Depth, Status: store.MessageStatus(n.Status), ReasoningContent: n.ReasoningContent,
	}
	if n.Content != "" || len(n.ToolCalls) == 0 && len(n.Attachments) == 0 && n.ToolCallID != "" {
		m.Content = &n.Content // the result of a tool may be empty; any other empty message has no meaning
	}
	return m
}

func summary(s *store.Summary) *runtimev1.MessageSummary {
	if s == nil {
		return nil
	}
	return &runtimev1.MessageSummary{From: s.From, To: s.To, Messages: s.Messages, Agent: s.Agent, Side: s.Side, Prompt: s.Prompt, Model: s.Model, Of: s.Of}
}

// Messages converts messages.
func Messages(list []store.Message) []runtimev1.Message {
	out := make([]runtimev1.Message, len(list))
	for i := range list {
		out[i] = Message(&list[i])
	}
	return out
}

// Slice converts each element of a slice. nil stays nil, so that JSON omits it.
func Slice[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i := range in {
		out[i] = f(in[i])
	}
	return out
}

// fieldsOf returns the fields of a thread's record that are in its row.
func fieldsOf(t *store.Thread) runtimev1.ThreadFields {
	f := runtimev1.ThreadFields{
		Archived: t.ArchivedAt != 0, Draft: t.Fields.Draft, AutoSubmitDraft: t.Fields.AutoSubmitDraft, AgentMode: t.Fields.AgentMode,
		MaxTokens: t.Fields.MaxTokens, Workspace: Workspace(t.Fields.Workspace), NextMessageID: t.Appended + 1,
		ActivatedSkills: Slice(t.Fields.ActivatedSkills, func(s store.SkillActivation) runtimev1.SkillActivation { return runtimev1.SkillActivation(s) }),
		OriginThreadID:  t.OriginID, MainThreadID: MainThread(t), UserLastInteractedAt: UserInteraction(t),
	}
	if t.OriginID != "" {
		f.ForkPointIndex = &t.ForkIndex
	}
	return f
}

// Workspace converts a workspace. nil stays nil.
func Workspace(w *store.Workspace) *runtimev1.Workspace { return (*runtimev1.Workspace)(w) }

// MainThread returns the id of the outermost ancestor of a subagent's thread. It returns "" for a thread without a parent.
func MainThread(t *store.Thread) string {
	if t.ParentID == "" {
		return ""
	}
	return t.RootID
}

// UserInteraction returns when a user last sent a message, or else when the thread was created.
func UserInteraction(t *store.Thread) int64 { return max(t.UserActivityAt, t.CreatedAt) }

// Relationships converts the links of a thread.
func Relationships(rs []store.Relationship) []runtimev1.Relationship {
	out := make([]runtimev1.Relationship, len(rs))
	for i := range rs {
		out[i] = Relationship(&rs[i])
	}
	return out
}

// Relationship converts one link of a thread.
func Relationship(r *store.Relationship) runtimev1.Relationship {
	out := runtimev1.Relationship{ThreadID: r.ThreadID, Type: string(r.Type), Role: r.Role, CreatedAt: r.CreatedAt, Comment: r.Comment}
	if r.MessageIndex >= 0 {
		out.MessageIndex = &r.MessageIndex
	}
	return out
}
