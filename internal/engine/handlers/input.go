package handlers

import (
	"encoding/json"
	"slices"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
)

// IsInput reports whether an inbox item becomes a message for a side to answer. kept and conv are those of the run with the id runID.
func IsInput(item store.InboxItem, kept *runstate.State, conv *transcript.Conversation, runID string) bool {
	switch item.Kind {
	case store.InboxMessage, store.InboxRerun:
		return true
	case store.InboxChildResult:
		var result store.ChildResult
		if json.Unmarshal(item.Payload, &result) != nil {
			return false
		}
		_, waits := kept.Waits[result.ToolCallID]
		return !waits && !slices.ContainsFunc(conv.OutstandingCalls(runID), func(c store.ToolCall) bool { return c.ID == result.ToolCallID })
	}
	return false
}

// AnswersNothing reports whether a handler has no message to answer: the run began with a queued tool call, or the message
// was deleted before the handler was called.
func AnswersNothing(r *role.Role, conv *transcript.Conversation, runID string) bool {
	if r.Side().Handler == nil || r.Frame != nil || r.State.Turn.Over > 0 || r.State.Handoffs > 0 {
		return false
	}
	if r.State.Input != "" {
		return conv.Message(r.State.Input) == nil
	}
	for i := range conv.Messages {
		if m := &conv.Messages[i]; m.RunID == runID && m.Metadata[transcript.MetadataQueuedTool] != nil {
			return true
		}
	}
	return false
}

// Input returns the message that a handler answers: in the first turn of a session the message that the run took in,
// and in later turns what the other side has said.
func Input(r *role.Role, c *transcript.Conversation, side *definition.Side) *store.Message {
	turn := r.State.Turn
	if turn.Over > 0 && r.Agent.Dual() {
		if m := c.Message(turn.After); m != nil && transcript.WriterOf(m) != side.Name && transcript.ContentOf(m) != "" {
			return m
		}
	} else if m := c.Message(r.State.Input); m != nil {
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
