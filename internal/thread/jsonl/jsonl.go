// Package jsonl is the format of exported and imported conversations (LOG-01, LOG-02; docs/export.md): lines of JSON,
// the first a manifest, then messages, tool uses, assistant texts and results in the order in which they were written.
// It does not use the store.
package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Types of lines. A line without a type is a message.
const (
	TypeMessage       = "message"
	TypeToolUse       = "tool_use"
	TypeAssistantText = "assistant_text"
	TypeResult        = "result"
)

// Manifest is the first line.
type Manifest struct {
	AgentID string `json:"agentId"`
	// SessionID is the provider's conversation that the next run continues.
	SessionID string `json:"sessionId,omitempty"`
	// SessionMessages is how many message lines that conversation has, from the first. Only Skein writes it. It is left
	// out when the conversation has all messages up to the last answer.
	SessionMessages int64  `json:"sessionMessages,omitempty"`
	TaskID          string `json:"taskId,omitempty"`
	Title           string `json:"title,omitempty"`
	CreatedAt       Time   `json:"createdAt"`
	UpdatedAt       Time   `json:"updatedAt"`
}

// Message is a line with a message. Name, Silent and Side, the model that said it ("a" or "b"), are Skein's own fields
// and left out when empty.
type Message struct {
	Type      string `json:"type"`
	Role      string `json:"role"`
	Text      string `json:"text"`
	Timestamp Time   `json:"timestamp"`
	Name      string `json:"name,omitempty"`
	Silent    bool   `json:"silent,omitempty"`
	Side      string `json:"side,omitempty"`
}

// ToolUse is a tool call.
type ToolUse struct {
	Type      string          `json:"type"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	Timestamp Time            `json:"timestamp"`
	Side      string          `json:"side,omitempty"`
}

// AssistantText is what the assistant says together with tool calls.
type AssistantText struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Timestamp Time   `json:"timestamp"`
	Side      string `json:"side,omitempty"`
}

// Result is what a run used. Unknown numbers are left out.
type Result struct {
	Type            string   `json:"type"`
	Cost            *float64 `json:"cost,omitempty"`
	DurationMs      *int64   `json:"durationMs,omitempty"`
	Turns           *int64   `json:"turns,omitempty"`
	InputTokens     *int64   `json:"inputTokens,omitempty"`
	OutputTokens    *int64   `json:"outputTokens,omitempty"`
	CacheReadTokens *int64   `json:"cacheReadTokens,omitempty"`
	Timestamp       Time     `json:"timestamp"`
}

// Time is microseconds since 1970, written in ISO 8601 with milliseconds, or with microseconds where needed.
type Time int64

// Times with years of four digits.
var (
	firstTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
)

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	layout := "2006-01-02T15:04:05.000Z07:00"
	us := min(max(int64(t), firstTime), lastTime)
	if us%1000 != 0 {
		layout = "2006-01-02T15:04:05.000000Z07:00"
	}
	return []byte(`"` + time.UnixMicro(us).UTC().Format(layout) + `"`), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("a time must be a text in ISO 8601, such as 2026-01-31T12:00:00.000Z")
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("%q is not a time in ISO 8601, such as 2026-01-31T12:00:00.000Z", text)
	}
	us := at.UnixMicro()
	if us < firstTime || us > lastTime {
		return fmt.Errorf("%q is not within the years 0 to 9999", text)
	}
	*t = Time(us)
	return nil
}

// Line is one line after the manifest. Raw is the whole line as compact JSON.
type Line struct {
	Type      string
	Message   *Message // of TypeMessage
	Timestamp Time
	Raw       json.RawMessage
}

// ParseManifest reads the first line. It ignores unknown fields, such as the old channel.
func ParseManifest(data []byte) (*Manifest, error) {
	fields, err := object(data)
	if err != nil {
		return nil, err
	}
	for _, of := range []string{"type", "role", "timestamp"} {
		if _, ok := fields[of]; ok {
			return nil, fmt.Errorf("the first line must be the manifest, with agentId, createdAt and updatedAt, and without the field %q", of)
		}
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, explain(err)
	}
	if _, ok := fields["createdAt"]; !ok {
		return nil, errors.New("the manifest has no createdAt")
	}
	if _, ok := fields["updatedAt"]; !ok {
		m.UpdatedAt = m.CreatedAt
	}
	if m.SessionMessages < 0 {
		return nil, errors.New("sessionMessages must not be negative")
	}
	for name, text := range map[string]string{"agentId": m.AgentID, "sessionId": m.SessionID, "taskId": m.TaskID, "title": m.Title} {
		if err := checkText(name, text); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// ParseLine reads a line after the manifest.
func ParseLine(data []byte) (*Line, error) {
	fields, err := object(data)
	if err != nil {
		return nil, err
	}
	l := Line{Type: TypeMessage}
	if kind, ok := fields["type"]; ok {
		if err := json.Unmarshal(kind, &l.Type); err != nil {
			return nil, errors.New("type must be a text")
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, err
	}
	l.Raw = compact.Bytes()
	if _, ok := fields["timestamp"]; !ok {
		return nil, errors.New("the line has no timestamp")
	}
	switch l.Type {
	case TypeMessage:
		return &l, l.message(fields)
	case TypeToolUse:
		var t ToolUse
		if err := json.Unmarshal(data, &t); err != nil {
			return nil, explain(err)
		}
		if t.Name == "" {
			return nil, errors.New("a tool_use needs the name of its tool")
		}
		if _, err := object(t.Input); err != nil {
			return nil, errors.New("the input of a tool_use must be an object")
		}
		l.Timestamp = t.Timestamp
		return &l, errors.Join(checkSide(t.Side), checkText("name", t.Name))
	case TypeAssistantText:
		var a AssistantText
		if err := json.Unmarshal(data, &a); err != nil {
			return nil, explain(err)
		}
		l.Timestamp = a.Timestamp
		return &l, errors.Join(checkSide(a.Side), checkText("text", a.Text))
	case TypeResult:
		var r Result
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, explain(err)
		}
		l.Timestamp = r.Timestamp
		return &l, nil
	}
	return nil, fmt.Errorf("unknown type %q: use message, tool_use, assistant_text or result", l.Type)
}

func (l *Line) message(fields map[string]json.RawMessage) error {
	var m Message
	if err := json.Unmarshal(l.Raw, &m); err != nil {
		return explain(err)
	}
	switch m.Role {
	case "user", "assistant", "system":
	default:
		return fmt.Errorf("the role of a message is user, assistant or system, not %q", m.Role)
	}
	if _, ok := fields["text"]; !ok {
		return errors.New("the message has no text")
	}
	m.Type, l.Message, l.Timestamp = TypeMessage, &m, m.Timestamp
	if err := checkSide(m.Side); err != nil {
		return err
	}
	if err := checkText("text", m.Text); err != nil {
		return err
	}
	return checkText("name", m.Name)
}

// object checks that data is one JSON object, and returns its fields.
func object(data []byte) (fields map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(data, &fields); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
		return nil, errors.New("it is not a JSON object")
	}
	if fields == nil {
		return nil, errors.New("it is not a JSON object")
	}
	return fields, nil
}

func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s cannot be a JSON %s", wrong.Field, wrong.Value)
	}
	return err
}

// checkSide refuses an invalid side.
func checkSide(side string) error {
	if side != "" && side != "a" && side != "b" {
		return fmt.Errorf(`the side must be "a" or "b", or left out, not %q`, side)
	}
	return nil
}

// checkText refuses text that databases cannot store.
func checkText(field, text string) error {
	for i := range len(text) {
		if text[i] == 0 {
			return fmt.Errorf("%s has a NUL character, which cannot be stored", field)
		}
	}
	return nil
}
