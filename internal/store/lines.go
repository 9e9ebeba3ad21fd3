package store

import "encoding/json"

// Log lines are the entries of a thread's log that code wrote for people: what it wrote to the console or to its logger, and
// how hooks and tasks failed. Their types are EventCodeLog, EventHandlerLog, EventHookFailed and EventTaskFailed.

// LineQuery selects log lines.
type LineQuery struct {
	After int64  // only lines after this sequence number
	RunID string // only lines of this run
	Tail  int    // only so many of the newest; all when 0
	Limit int    // at most so many, oldest first; 1000 when 0
}

// TrimLines keeps so many of the newest log lines of a thread. The newest line that goes becomes a record of how many went, in
// this and in earlier transactions.
type TrimLines struct{ Keep int }

func (*TrimLines) op() {}

// CodeLine is the data of EventCodeLog.
type CodeLine struct {
	Level   string `json:"level"` // debug, info, warn or error
	Message string `json:"message"`
	// Time in microseconds; lines are written in batches, so the entry itself is a little younger.
	Time int64 `json:"time,omitempty"`
	// Source is what wrote it: "tool/NAME", "hook/NAME", "effect/NAME", "endpoint/NAME" or "handler/SIDE"; empty where it cannot be known.
	Source string `json:"source,omitempty"`
	// Call is the id of the call that it belongs to: that of a tool call, where it is one of a conversation.
	Call string `json:"call,omitempty"`
	// Dropped is set in a record that stands for lines that were not kept.
	Dropped int64 `json:"dropped,omitempty"`
}

// DroppedIn tells how many lines an entry stands for that were not kept; 0 when it is an ordinary line.
func DroppedIn(e *Event) int64 {
	if e.Type != EventCodeLog {
		return 0
	}
	var l struct {
		Dropped int64 `json:"dropped"`
	}
	_ = json.Unmarshal(e.Data, &l) // what cannot be read is a line
	return l.Dropped
}
