package sqlstore

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// text is a nullable column of text or JSON.
type text struct{ sql.NullString }

func (t text) raw() json.RawMessage {
	if !t.Valid {
		return nil
	}
	return json.RawMessage(t.String)
}

func nullJSON(data []byte) any {
	if len(data) == 0 {
		return nil
	}
	return string(data)
}

func nullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

type scanner func(dst ...any) error

func scanThread(scan scanner) (*store.Thread, error) {
	var t store.Thread
	var arguments, child, fields text
	var counted, scoped string
	var asleep sleep
	if err := scan(&t.ID, &t.Namespace, &t.Name, &t.Agent, &t.OriginAgent, &t.DeclaredAgent, &t.UserID, &t.TaskID, &t.Title, &arguments, &t.CreatedAt,
		&t.ParentID, &t.Reference, &t.RootID, &t.Depth, &t.OriginID, &t.ForkIndex, &child, &t.TerminatedAt, &t.TerminatedReason, &t.RegistryStatus,
		&scoped, &t.Version, &counted, &t.Queued, &t.LastActivityAt, &t.LastSeq,
		&t.ArchivedAt, &fields, &t.Appended, &t.UserActivityAt, &t.Diff.Added, &t.Diff.Changed, &t.Diff.Removed,
		&t.ObjectUID, &t.RetainedAt, &t.DestroyedAt, &t.DestroyedReason, &t.IdleExpiry, &asleep); err != nil {
		return nil, err
	}
	t.Arguments = arguments.raw()
	t.ScopedEnv = splitNames(scoped)
	if child.Valid {
		if err := json.Unmarshal([]byte(child.String), &t.Child); err != nil {
			return nil, fmt.Errorf("thread %s: its child record is damaged: %w", t.ID, err)
		}
	}
	if err := fieldsFrom(fields, &t.Fields); err != nil {
		return nil, fmt.Errorf("thread %s: %w", t.ID, err)
	}
	c, err := parseCounts(counted)
	if err != nil {
		return nil, fmt.Errorf("thread %s: %w", t.ID, err)
	}
	t.Messages = c.total(true, 0, true)
	t.Parked = asleep&asleepParked != 0
	return &t, nil
}

// rest holds the fields of a message that most messages lack, stored in one column.
type rest struct {
	Name             string             `json:"name,omitempty"`
	ToolCalls        []store.ToolCall   `json:"calls,omitempty"`
	ParentID         string             `json:"parent,omitempty"`
	Metadata         map[string]any     `json:"metadata,omitempty"`
	Attachments      []store.Attachment `json:"attachments,omitempty"`
	ToolStatus       string             `json:"toolStatus,omitempty"`
	ReasoningContent string             `json:"reasoning,omitempty"`
	Usage            json.RawMessage    `json:"usage,omitempty"`
	Side             string             `json:"side,omitempty"`
}

func restOf(m *store.Message) (any, error) {
	if m.Name == "" && len(m.ToolCalls) == 0 && m.ParentID == "" && len(m.Metadata) == 0 && len(m.Attachments) == 0 &&
		m.ToolStatus == "" && m.ReasoningContent == "" && len(m.Usage) == 0 && m.Side == "" {
		return nil, nil
	}
	data, err := json.Marshal(rest{m.Name, m.ToolCalls, m.ParentID, m.Metadata, m.Attachments, m.ToolStatus, m.ReasoningContent, m.Usage, m.Side})
	if err != nil {
		return nil, fmt.Errorf("message %s cannot be written as JSON: %w", m.ID, err)
	}
	return string(data), nil
}

func (r *rest) into(m *store.Message) {
	m.Name, m.ToolCalls, m.ParentID, m.Metadata, m.Attachments = r.Name, r.ToolCalls, r.ParentID, r.Metadata, r.Attachments
	m.ToolStatus, m.ReasoningContent, m.Usage, m.Side = r.ToolStatus, r.ReasoningContent, r.Usage, r.Side
}

// messageRow is a message as its columns hold it.
type messageRow struct {
	m          store.Message
	toolCallID sql.NullString
	content    sql.NullString
	rest       text
}

func (r *messageRow) message() (*store.Message, error) {
	r.m.ToolCallID = r.toolCallID.String
	if r.content.Valid {
		r.m.Content = &r.content.String
	}
	if r.rest.Valid {
		var more rest
		if err := json.Unmarshal([]byte(r.rest.String), &more); err != nil {
			return nil, fmt.Errorf("message %s is damaged: %w", r.m.ID, err)
		}
		more.into(&r.m)
	}
	return &r.m, nil
}

func scanMessage(scan scanner) (*store.Message, error) {
	var r messageRow
	if err := scan(&r.m.Seq, &r.m.ID, &r.m.Role, &r.m.Silent, &r.m.Depth, &r.m.Status, &r.m.CreatedAt, &r.m.RunID,
		&r.toolCallID, &r.content, &r.rest); err != nil {
		return nil, err
	}
	return r.message()
}

func scanInbox(scan scanner) (*store.InboxItem, error) {
	var i store.InboxItem
	var payload text
	if err := scan(&i.Seq, &i.Key, &i.Kind, &payload, &i.CreatedAt, &i.HeldUntil, &i.Tries); err != nil {
		return nil, err
	}
	i.Payload = payload.raw()
	return &i, nil
}

// runOf returns the function that reads a run of a thread.
func runOf(threadID string) func(scanner) (*store.Run, error) {
	return func(scan scanner) (*store.Run, error) {
		r := store.Run{ThreadID: threadID}
		var state, usage, session text
		if err := scan(&r.ID, &r.Agent, &r.Status, &r.Reason, &r.Message, &r.Steps, &r.StartedAt, &r.EndedAt, &r.WakeAt, &state, &usage, &session); err != nil {
			return nil, err
		}
		r.State, r.Usage, r.SessionState = state.raw(), usage.raw(), session.raw()
		return &r, nil
	}
}

func scanFile(scan scanner) (*store.File, error) {
	var f store.File
	var metadata text
	if err := scan(&f.Path, &f.Dir, &f.MimeType, &f.Digest, &f.Size, &metadata, &f.Width, &f.Height, &f.CreatedAt); err != nil {
		return nil, err
	}
	f.Metadata = metadata.raw()
	return &f, nil
}

func scanFiring(scan scanner) (*store.Firing, error) {
	var f store.Firing
	var args text
	if err := scan(&f.EffectID, &f.Due, &f.ThreadID, &f.Namespace, &f.Name, &f.Effect, &args, &f.Status, &f.Attempts,
		&f.Error, &f.FiredAt, &f.EndedAt, &f.HookDepth); err != nil {
		return nil, err
	}
	f.Args = args.raw()
	return &f, nil
}
