package request

import (
	"encoding/json"
	"fmt"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// MisfitReason returns why an answer that would end the turn does not fit the prompt's responseSchema, or "" if it does. It
// removes the code fence that models often put around JSON.
func (k *Maker) MisfitReason(m *store.Message) string {
	text := codeexec.Raw(k.role.Side().Prompt.Spec.ResponseSchema)
	if len(text) == 0 || k.role.State.Turn.Ends || k.role.State.Turn.Passes {
		return ""
	}
	schema, err := tool.CompileSchema(text)
	if err != nil {
		return "" // a mistake in the definition, which its condition shows
	}
	content := stripFence(transcript.ContentOf(m))
	if err := schema.Validate(content); err != nil {
		return err.Error()
	}
	m.Content = &content
	return ""
}

// stripFence returns a text without the fence of a code block, if one block is the whole text.
func stripFence(text string) string {
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

// Repair returns the message that tells the model what is wrong with its answer m, so that it can answer again. The caller writes it in the
// same step as the answer. Repair counts the message in the state of the run. The second time in a turn it marks m as failed, and returns a
// *failure.Error.
func (k *Maker) Repair(m *store.Message, wrong, runID string, now int64) (repair *store.Message, err error) {
	if k.role.State.Turn.Repairs > 0 {
		m.Status = store.MessageFailed
		return nil, failure.New(skeinv1.ReasonInvalidAnswer, "the answer does not fit the responseSchema of the prompt %s: it is still invalid after one retry: %s",
			k.role.Side().Prompt.Name, wrong)
	}
	k.role.State.Turn.Repairs++
	k.role.State.Turn.After = m.ID
	text := fmt.Sprintf("Your answer does not fit the JSON Schema that it must have: %s. Answer again with JSON alone that fits it.", wrong)
	return &store.Message{
		ID: runlog.NewMessageID(), Role: store.RoleUser, CreatedAt: now, Status: store.MessageCompleted, RunID: runID,
		Content: &text, Silent: true, Side: k.role.Mark(), Metadata: map[string]any{transcript.MetadataRepairs: m.ID},
	}, nil
}

// Answer returns the message of a model's response, in the run with the id runID.
func (k *Maker) Answer(id, runID string, res *model.Response, now int64) *store.Message {
	m := &store.Message{
		ID: id, Role: store.RoleAssistant, CreatedAt: now, Status: store.MessageCompleted, RunID: runID,
		Metadata: res.Metadata, ReasoningContent: res.Reasoning, Side: k.role.Mark(),
	}
	if content := strings.ToValidUTF8(res.Content, "\uFFFD"); content != "" || len(res.ToolCalls) == 0 {
		m.Content = &content
	}
	RecordCalls(m, res.ToolCalls)
	if res.Usage != nil {
		m.Usage, _ = json.Marshal(res.Usage) // numbers only: cannot fail
	}
	return m
}
