package engine

import (
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// misfit returns why an answer that would end the turn does not fit the prompt's responseSchema, or "" if it does. It
// removes the code fence that models often put around JSON.
func (r *role) misfit(m *store.Message) string {
	text := codeexec.Raw(r.side().Prompt.Spec.ResponseSchema)
	if len(text) == 0 || r.checkpoint.Turn.Ends || r.checkpoint.Turn.Passes {
		return ""
	}
	schema, err := tool.CompileSchema(text)
	if err != nil {
		return "" // a mistake in the definition, which its condition shows
	}
	content := unfenced(transcript.ContentOf(m))
	if err := schema.Validate(content); err != nil {
		return err.Error()
	}
	m.Content = &content
	return ""
}

// unfenced returns a text without the fence of a code block, if one block is the whole text.
func unfenced(text string) string {
	inside := strings.TrimSpace(text)
	if !strings.HasPrefix(inside, "```") || !strings.HasSuffix(inside, "```") || len(inside) < 6 {
		return text
	}
	inside = strings.TrimSuffix(inside, "```")
	if _, body, ok := strings.Cut(inside, "\n"); ok && !strings.Contains(body, "```") {
		return strings.TrimSpace(body)
	}
	return text
}

// repair returns the message that tells the model what is wrong with its answer, so that it can answer again. The caller
// writes it in the same step as the answer. The second time in a turn repair returns a *failure.Error.
func (r *run) repair(m *store.Message, wrong string) (repair *store.Message, err error) {
	if r.checkpoint.Turn.Repairs > 0 {
		m.Status = store.MessageFailed
		return nil, failure.New(failure.ReasonInvalidAnswer, "the answer does not fit the responseSchema of the prompt %s: it is still invalid after one retry: %s",
			r.side().Prompt.Name, wrong)
	}
	r.checkpoint.Turn.Repairs++
	r.checkpoint.Turn.After = m.ID
	r.record.State = r.checkpoint.Encode()
	text := fmt.Sprintf("Your answer does not fit the JSON Schema that it must have: %s. Answer again with JSON alone that fits it.", wrong)
	return &store.Message{
		ID: runlog.NewMessageID(), Role: store.RoleUser, CreatedAt: r.engine.now(), Status: store.MessageCompleted, RunID: r.record.ID,
		Content: &text, Silent: true, Side: r.mark(), Metadata: map[string]any{transcript.MetadataRepairs: m.ID},
	}, nil
}
