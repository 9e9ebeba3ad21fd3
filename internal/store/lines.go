package store

import "encoding/json"

// Log lines are the entries of a thread's log that code writes for people: what it writes to the console or to its
// logger, and how hooks and tasks failed. Their types are EventCodeLog, EventHandlerLog, EventHookFailed and
// EventTaskFailed.

// LineQuery selects log lines.
type LineQuery struct {
	After int64  // only lines after this sequence number
	RunID string // only lines of this run
	Tail  int    // only this many of the newest lines; 0 for all
	Limit int    // at most this many lines, oldest first; 1000 when 0
}

// Selects reports whether the query is for an event, wherever it is in the log.
func (q *LineQuery) Selects(e *Event) bool {
	switch e.Type {
	case EventCodeLog, EventHandlerLog, EventHookFailed, EventTaskFailed:
		return q.RunID == "" || e.RunID == q.RunID
	}
	return false
}

// TrimLines keeps the Keep newest log lines of a thread. The newest line that it drops becomes a record of how many
// lines were dropped, in this transaction and in earlier ones.
type TrimLines struct{ Keep int }

func (*TrimLines) op() {}

// CodeLine is the data of EventCodeLog.
type CodeLine struct {
	Level   string `json:"level"` // debug, info, warn or error
	Message string `json:"message"`
	// Time is in microseconds. Lines are written in batches, so the log entry is slightly later.
	Time int64 `json:"time,omitempty"`
	// Source is what wrote the line: "tool/NAME", "hook/NAME", "effect/NAME", "endpoint/NAME" or "handler/SIDE". It is
	// empty when unknown.
	Source string `json:"source,omitempty"`
	// Call is the id of the call that wrote the line: the tool call's id when it belongs to a conversation.
	Call string `json:"call,omitempty"`
	// Firing is the firing whose handler wrote the line, as Firing.Text names it.
	Firing string `json:"firing,omitempty"`
	// Dropped is set in a record that stands for dropped lines.
	Dropped int64 `json:"dropped,omitempty"`
}

// DroppedIn returns the number of dropped lines that an entry stands for, and 0 for an ordinary line.
func DroppedIn(e *Event) int64 {
	if e.Type != EventCodeLog {
		return 0
	}
	var l struct {
		Dropped int64 `json:"dropped"`
	}
	_ = json.Unmarshal(e.Data, &l) // unreadable data counts as an ordinary line
	return l.Dropped
}
