package engine

import (
	"cmp"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// interrupted stands in the model's view for a result that never came.
const interrupted = "(no result: the call was interrupted)"

// assembled is what the model of the side in use gets to read.
func (r *run) assembled(system string, c *conversation) []model.Message {
	if r.frame != nil {
		return assemble(system, c, r.side().Name, "")
	}
	other := ""
	if r.agent.Dual() {
		other = definition.SpeakerName(r.agent.Other(r.side()))
		c = withoutRepairs(c, r.side().Name)
	}
	return r.opened(assemble(system, c, r.side().Name, other))
}

// assemble gives the conversation as the model of a side sees it: the system prompt, then the messages in order, each
// result right behind the call that it answers, since providers refuse anything else. What the other side said is a
// user's, by the name given; what it called, what came of that and what it thought stays its own (SPEC AGT-02).
func assemble(system string, c *conversation, side, other string) []model.Message {
	out := make([]model.Message, 0, len(c.msgs)+1)
	out = append(out, model.Message{Role: model.RoleSystem, Content: system})
	for i := range c.msgs {
		m := &c.msgs[i]
		switch m.Role {
		case store.RoleTool: // behind its call, below
		case store.RoleAssistant:
			if writer(m) == side {
				out = appendAnswer(out, c, i)
			} else if contentOf(m) != "" || len(m.Attachments) > 0 {
				out = append(out, model.Message{Role: model.RoleUser, Content: contentOf(m), Name: cmp.Or(m.Name, other), Attachments: attachmentsOf(m)})
			}
		case store.RoleSystem:
			out = append(out, model.Message{Role: model.RoleSystem, Content: contentOf(m), Attachments: attachmentsOf(m)})
		default:
			out = append(out, model.Message{Role: model.RoleUser, Content: contentOf(m), Name: m.Name, Attachments: attachmentsOf(m)})
		}
	}
	return out
}

func appendAnswer(out []model.Message, c *conversation, i int) []model.Message {
	m := &c.msgs[i]
	a := model.Message{Role: model.RoleAssistant, Content: contentOf(m), Metadata: m.Metadata, Attachments: attachmentsOf(m)}
	for _, call := range m.ToolCalls {
		if c.calls[call.ID] == i { // of two messages that use the same id, the later one has the result
			a.ToolCalls = append(a.ToolCalls, model.ToolCall{ID: call.ID, Name: call.Name, Arguments: call.Arguments})
		}
	}
	out = append(out, a)
	for _, call := range a.ToolCalls {
		r := model.Message{Role: model.RoleTool, ToolCallID: call.ID, Name: call.Name, Content: interrupted}
		if j, done := c.results[call.ID]; done {
			r.Content, r.Attachments = contentOf(&c.msgs[j]), attachmentsOf(&c.msgs[j])
		}
		out = append(out, r)
	}
	return out
}

// attachmentsOf names a message's files for a model.
func attachmentsOf(m *store.Message) []string {
	var out []string
	for i := range m.Attachments {
		out = append(out, attachmentName(&m.Attachments[i]))
	}
	return out
}
