package messages

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// rest holds the fields of a message that most messages lack, stored in one column, which is NULL when all are empty.
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
	Summary          *store.Summary     `json:"summary,omitempty"`
}

func restOf(m *store.Message) (any, error) {
	if m.Name == "" && m.ParentID == "" && m.ToolStatus == "" && m.ReasoningContent == "" && m.Side == "" && m.Summary == nil &&
		len(m.ToolCalls)+len(m.Metadata)+len(m.Attachments)+len(m.Usage) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(rest{m.Name, m.ToolCalls, m.ParentID, m.Metadata, m.Attachments, m.ToolStatus, m.ReasoningContent, m.Usage, m.Side, m.Summary})
	if err != nil {
		return nil, fmt.Errorf("message %s cannot be written as JSON: %w", m.ID, err)
	}
	if string(data) == "{}" {
		return nil, nil
	}
	return string(data), nil
}

// sizeOf returns how many bytes of a message are stored. more is what restOf returned.
func sizeOf(m *store.Message, more any) int {
	n := 0
	if m.Content != nil {
		n = len(*m.Content)
	}
	text, _ := more.(string)
	return n + len(text)
}

func (r *rest) into(m *store.Message) {
	m.Name, m.ToolCalls, m.ParentID, m.Metadata, m.Attachments = r.Name, r.ToolCalls, r.ParentID, r.Metadata, r.Attachments
	m.ToolStatus, m.ReasoningContent, m.Usage, m.Side, m.Summary = r.ToolStatus, r.ReasoningContent, r.Usage, r.Side, r.Summary
}

// Row is a message as its columns hold it.
type Row struct {
	Message    store.Message
	ToolCallID sql.NullString
	Content    sql.NullString
	Rest       sqldb.Text
}

// Decode returns the message of the row.
func (r *Row) Decode() (*store.Message, error) {
	r.Message.ToolCallID = r.ToolCallID.String
	if r.Content.Valid {
		r.Message.Content = &r.Content.String
	}
	if r.Rest.Valid {
		var more rest
		if err := json.Unmarshal([]byte(r.Rest.String), &more); err != nil {
			return nil, fmt.Errorf("message %s is damaged: %w", r.Message.ID, err)
		}
		more.into(&r.Message)
	}
	return &r.Message, nil
}

// Scan reads a message.
func Scan(scan sqldb.Scanner) (*store.Message, error) {
	var r Row
	if err := scan(&r.Message.Seq, &r.Message.ID, &r.Message.Role, &r.Message.Silent, &r.Message.Depth, &r.Message.Status, &r.Message.CreatedAt, &r.Message.RunID,
		&r.ToolCallID, &r.Content, &r.Rest); err != nil {
		return nil, err
	}
	return r.Decode()
}
