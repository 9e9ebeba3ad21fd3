package hooks

import (
	"context"
	"errors"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
)

// Hooks can filter what a model reads at two points: the stored messages before they are assembled, and then the
// history in the model's form. The log does not change. Neither filter can separate a tool call from its result: when
// one of the two is left out, the other is too.

// FilterMessages returns a conversation as filter_messages leaves it for a step.
func (h *Run) FilterMessages(ctx context.Context, conv *transcript.Conversation, step int) (*transcript.Conversation, error) {
	hook := h.Hook(skeinv1.HookFilterMessages)
	if hook == nil {
		return conv, nil
	}
	var out *transcript.Conversation
	err := h.filter(ctx, hook, step, func(v any) (err error) {
		out, err = filterConversation(conv, v)
		return err
	}, conv.Messages)
	if err != nil || out == nil {
		return conv, err
	}
	for i := range out.Messages {
		if m := &out.Messages[i]; m.Content != nil {
			text := h.redacted(*m.Content) // a new variable, since the old text belongs to the conversation
			m.Content = &text
		}
	}
	return out, nil
}

// PrefilterHistory returns the history of a step as prefilter_llm_history leaves it. The system prompt, which comes first, is not
// part of it.
func (h *Run) PrefilterHistory(ctx context.Context, messages []model.Message, step int) ([]model.Message, error) {
	hook := h.Hook(skeinv1.HookPrefilterLLMHistory)
	if hook == nil {
		return messages, nil
	}
	var history []model.Message
	err := h.filter(ctx, hook, step, func(v any) (err error) {
		history, err = readHistory(v)
		return err
	}, historyForHook(messages[1:]))
	if err != nil || history == nil {
		return messages, err
	}
	for i := range history {
		history[i].Content = h.redacted(history[i].Content)
	}
	return append(messages[:1:1], history...), nil
}

// filter calls a filter for the next step. When the filter fails, the step uses the unfiltered list.
func (h *Run) filter(ctx context.Context, hook *definition.Hook, step int, take func(v any) error, list any) error {
	x, err := h.run.Execution(ctx)
	if err != nil {
		return err
	}
	about := Subject{cause: fmt.Sprintf("%s:%d", h.run.RunID(), step)}
	v, failed, err := h.service.callerFor(x).callHook(h.Causation(ctx), hook, about, list)
	if err == nil && failed == nil && v != nil {
		if bad := take(v); bad != nil {
			failed = h.service.callerFor(x).failedHook(hook, about, "what the hook returned cannot be used: "+bad.Error())
		}
	}
	if failed != nil {
		h.with = append(h.with, failed)
	}
	return err
}

// redacted returns text without secrets. A hook may have read secrets and written them into a text for the model.
func (h *Run) redacted(text string) string {
	return h.service.Redact(h.run.Thread().Namespace, text)
}

// filterConversation reads what filter_messages returned: the messages that the model is to read, identified by their
// ids. Their content and name may be changed. Their order is that of the log.
func filterConversation(c *transcript.Conversation, v any) (*transcript.Conversation, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("return a list of messages, or nothing to leave them as they are")
	}
	keep := make(map[string]store.Message, len(list))
	for i, item := range list {
		given, err := object(item, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return nil, err
		}
		id, _ := given["id"].(string)
		was := c.Message(id)
		if was == nil {
			return nil, fmt.Errorf("messages[%d] has the id %q, which none of the given messages has: to add messages, use prefilter_llm_history", i, id)
		}
		m := *was
		if err := changeContent(&m, given); err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		keep[id] = m
	}
	return c.Subset(keep), nil
}

// ---- in the model's form --------------------------------------------------------------------------------

// historyMessage is a message of the history as prefilter_llm_history receives and returns it.
type historyMessage struct {
	Role        string           `json:"role"`
	Content     *string          `json:"content"`
	Name        string           `json:"name,omitempty"`
	ToolCalls   []store.ToolCall `json:"tool_calls,omitempty"`
	ToolCallID  string           `json:"tool_call_id,omitempty"`
	Attachments []string         `json:"attachments,omitempty"`
	Metadata    map[string]any   `json:"metadata,omitempty"`
}

func historyForHook(messages []model.Message) []any {
	out := make([]any, 0, len(messages))
	for i := range messages {
		m := &messages[i]
		h := historyMessage{
			Role: string(m.Role), Content: &m.Content, Name: m.Name, ToolCallID: m.ToolCallID, Attachments: m.Attachments, Metadata: m.Metadata,
		}
		for _, call := range m.ToolCalls {
			h.ToolCalls = append(h.ToolCalls, store.ToolCall(call))
		}
		out = append(out, h)
	}
	return out
}

// readHistory reads what prefilter_llm_history returned: a history of its own, in order. Results are moved right
// behind their calls.
func readHistory(v any) ([]model.Message, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("return a list of messages, or nothing to leave the history as it is")
	}
	given := make([]model.Message, 0, len(list))
	for i, item := range list {
		m, err := readHistoryMessage(item)
		if err != nil {
			return nil, fmt.Errorf("history[%d]: %w", i, err)
		}
		given = append(given, m)
	}
	return pairedHistory(given), nil
}

func readHistoryMessage(item any) (model.Message, error) {
	var h historyMessage
	if _, err := object(item, "it"); err != nil {
		return model.Message{}, err
	}
	if err := value.Into(item, &h); err != nil {
		return model.Message{}, err
	}
	m := model.Message{Role: model.Role(h.Role), Name: cleanText(h.Name), Attachments: h.Attachments, Metadata: h.Metadata}
	if h.Content != nil {
		m.Content = cleanText(*h.Content)
	}
	switch m.Role {
	case model.RoleSystem, model.RoleUser:
	case model.RoleAssistant:
		for _, call := range h.ToolCalls {
			if call.ID == "" || call.Name == "" {
				return m, errors.New("a tool call needs its id and its name")
			}
			m.ToolCalls = append(m.ToolCalls, model.ToolCall(call))
		}
	case model.RoleTool:
		if m.ToolCallID = h.ToolCallID; m.ToolCallID == "" {
			return m, errors.New("a message of the role tool must name the call that it answers (tool_call_id)")
		}
	default:
		return m, fmt.Errorf("role must be system, user, assistant or tool, not %q", h.Role)
	}
	return m, nil
}

// pairedHistory puts results right behind their calls, and leaves out calls without a result and results without a
// call.
func pairedHistory(given []model.Message) []model.Message {
	results := map[string]*model.Message{}
	for i := range given {
		if m := &given[i]; m.Role == model.RoleTool && results[m.ToolCallID] == nil {
			results[m.ToolCallID] = m
		}
	}
	out := make([]model.Message, 0, len(given))
	for _, m := range given {
		if m.Role == model.RoleTool {
			continue // it is placed behind its call
		}
		calls := m.ToolCalls
		m.ToolCalls = nil
		var answers []model.Message
		for _, call := range calls {
			if result := results[call.ID]; result != nil {
				m.ToolCalls = append(m.ToolCalls, call)
				answers = append(answers, *result)
				delete(results, call.ID) // one call, one result
			}
		}
		if m.Role == model.RoleAssistant && len(m.ToolCalls) == 0 && m.Content == "" && len(m.Attachments) == 0 {
			continue // nothing is left of it
		}
		out = append(append(out, m), answers...)
	}
	return out
}
