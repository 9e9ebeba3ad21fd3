package transcript

import (
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// MetadataRepairs is the id of an answer, on the message that tells the model what is wrong with that answer.
const MetadataRepairs = "repairs"

// Select returns the conversation without what a prompt keeps from its model (AGT-05): everything before the present turn, or the
// tool calls before it.
func Select(c *Conversation, p *skeinv1.PromptSpec, runID string) *Conversation {
	chat, past := ptr.Deref(p.IncludeChat, true), ptr.Deref(p.IncludePastTools, true)
	if chat && past {
		return c
	}
	begin := presentTurn(c, runID)
	out := c.part()
	for i := range c.Messages {
		m := c.Messages[i]
		if i < begin {
			if !chat || !past && m.Role == store.RoleTool {
				continue
			}
			if !past && len(m.ToolCalls) > 0 {
				if m.ToolCalls = nil; ContentOf(&m) == "" && len(m.Attachments) == 0 {
					continue
				}
			}
		}
		out.Append(m)
	}
	return out
}

// presentTurn returns the index of the first message of the present turn: the first message of the run, or of what was appended
// directly before it while no run was under way. If the run has no message, the newest message of a user takes its place.
func presentTurn(c *Conversation, runID string) int {
	begin := len(c.Messages)
	for i := range c.Messages {
		if c.Messages[i].RunID == runID {
			begin = i
			break
		}
	}
	if begin == len(c.Messages) {
		for begin > 0 && c.Messages[begin-1].Role != store.RoleUser {
			begin--
		}
		begin = max(begin-1, 0)
	}
	for begin > 0 && c.Messages[begin-1].RunID == "" {
		begin--
	}
	return begin
}

// Subset returns the messages of keep, which has them by their ids, in the order of the conversation. It leaves out tool calls whose
// result is not kept, and results whose call is not kept, since providers refuse one without the other.
func (c *Conversation) Subset(keep map[string]store.Message) *Conversation {
	called := map[string]bool{}
	kept := make([]*store.Message, len(c.Messages))
	for i := range c.Messages {
		m, ok := keep[c.Messages[i].ID]
		if !ok {
			continue
		}
		kept[i] = &m
		if m.Role != store.RoleAssistant || len(m.ToolCalls) == 0 {
			continue
		}
		var calls []store.ToolCall
		for _, call := range m.ToolCalls {
			result := c.Result(call.ID)
			if result == nil || c.calls[call.ID] != i {
				continue
			}
			if _, ok := keep[result.ID]; ok {
				calls = append(calls, call)
				called[call.ID] = true
			}
		}
		if m.ToolCalls = calls; len(calls) == 0 && ContentOf(&m) == "" && len(m.Attachments) == 0 {
			kept[i] = nil
		}
	}
	out := c.part()
	for _, m := range kept {
		if m != nil && (m.Role != store.RoleTool || called[m.ToolCallID]) {
			out.Append(*m)
		}
	}
	return out
}

// WithoutRepairs returns the conversation without answers of other sides that did not fit their schema, and without the messages
// that told those sides so.
func WithoutRepairs(c *Conversation, side string) *Conversation {
	left := map[string]bool{}
	for i := range c.Messages {
		if answer, ok := c.Messages[i].Metadata[MetadataRepairs].(string); ok && c.Messages[i].Side != side {
			left[answer], left[c.Messages[i].ID] = true, true
		}
	}
	if len(left) == 0 {
		return c
	}
	out := c.part()
	for i := range c.Messages {
		if !left[c.Messages[i].ID] {
			out.Append(c.Messages[i])
		}
	}
	return out
}

// LastRepair returns the id of the newest answer that did not fit its schema, and how often the model was told so.
func (c *Conversation) LastRepair() (answer string, times int) {
	for i := range c.Messages {
		if id, ok := c.Messages[i].Metadata[MetadataRepairs].(string); ok {
			answer = id
			times++
		}
	}
	return answer, times
}
