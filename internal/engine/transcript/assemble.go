package transcript

import (
	"cmp"
	"fmt"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// interrupted is what the model reads in place of a result that never came.
const interrupted = "(no result: the call was interrupted)"

// Assemble returns the conversation as the model of a side sees it: the system prompt, then the messages in order. Each
// result follows directly after the call that it answers, since providers refuse anything else. What the other side said
// becomes a message of a user, with other as its name. The other side's calls, their results and its reasoning are left out
// (AGT-02).
func Assemble(system string, c *Conversation, side, other string) []model.Message {
	out := make([]model.Message, 0, len(c.Messages)+1)
	out = append(out, model.Message{Role: model.RoleSystem, Content: system})
	for i := range c.Messages {
		m := &c.Messages[i]
		switch m.Role {
		case store.RoleTool: // appendAnswer adds it after its call
		case store.RoleAssistant:
			if WriterOf(m) == side {
				out = appendAnswer(out, c, i)
			} else if ContentOf(m) != "" || len(m.Attachments) > 0 {
				out = append(out, model.Message{Role: model.RoleUser, Content: ContentOf(m), Name: cmp.Or(m.Name, other), Attachments: attachmentsOf(m)})
			}
		case store.RoleSystem:
			out = append(out, model.Message{Role: model.RoleSystem, Content: ContentOf(m), Attachments: attachmentsOf(m)})
		default:
			u := model.Message{Role: model.RoleUser, Content: ContentOf(m), Name: m.Name, Attachments: attachmentsOf(m)}
			if m.Summary != nil {
				u.Metadata = map[string]any{model.MetadataStays: true}
			}
			out = append(out, u)
		}
	}
	return out
}

// appendAnswer adds an answer of the side, and the results of its calls.
func appendAnswer(out []model.Message, c *Conversation, i int) []model.Message {
	m := &c.Messages[i]
	a := model.Message{Role: model.RoleAssistant, Content: ContentOf(m), Metadata: m.Metadata, Attachments: attachmentsOf(m)}
	for _, call := range m.ToolCalls {
		if c.calls[call.ID] == i { // of two messages that use the same id, the later one has the result
			a.ToolCalls = append(a.ToolCalls, model.ToolCall{ID: call.ID, Name: call.Name, Arguments: call.Arguments})
		}
	}
	out = append(out, a)
	for _, call := range a.ToolCalls {
		r := model.Message{Role: model.RoleTool, ToolCallID: call.ID, Name: call.Name, Content: interrupted}
		if j, done := c.results[call.ID]; done {
			r.Content, r.Attachments = ContentOf(&c.Messages[j]), attachmentsOf(&c.Messages[j])
		} else if c.removed[call.ID] {
			r.Content = removed
		}
		out = append(out, r)
	}
	return out
}

// attachmentsOf returns the files of a message as the model reads them.
func attachmentsOf(m *store.Message) []string {
	var out []string
	for i := range m.Attachments {
		out = append(out, attachmentName(&m.Attachments[i]))
	}
	return out
}

// attachmentName returns the text by which a model reads of a file.
func attachmentName(a *store.Attachment) string {
	if a.MimeType == "" {
		return a.Path
	}
	return fmt.Sprintf("%s (%s, %d bytes)", a.Path, a.MimeType, a.Size)
}

// PicturePaths returns the paths of the images of a conversation by the texts by which a model reads of them.
func PicturePaths(c *Conversation) map[string]string {
	var out map[string]string
	for i := range c.Messages {
		for _, a := range c.Messages[i].Attachments {
			if IsPicture(a.MimeType) {
				if out == nil {
					out = map[string]string{}
				}
				out[attachmentName(&a)] = a.Path
			}
		}
	}
	return out
}

// IsPicture reports whether a MIME type is one of the image types that models read.
func IsPicture(mimeType string) bool {
	switch mimeType {
	case "image/png", "image/jpeg", "image/webp", "image/gif":
		return true
	}
	return false
}
