package request

import (
	"strings"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Misfit returns why an answer that would end the turn does not fit the prompt's responseSchema, or "" if it does. It
// removes the code fence that models often put around JSON.
func (k *Maker) Misfit(m *store.Message) string {
	text := codeexec.Raw(k.role.Side().Prompt.Spec.ResponseSchema)
	if len(text) == 0 || k.role.Checkpoint.Turn.Ends || k.role.Checkpoint.Turn.Passes {
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
