package request

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// maxProviderCallID is the longest id of a provider that is kept, in bytes.
const maxProviderCallID = 200

// RecordCalls adds tool calls to an answer, with new ids. The ids of the provider are not used in the log, because some
// providers number the calls of each answer anew, and an id in the log must stay unique for ever. The keys of all that a
// call causes derive from its id, and so does the key of a decision on it, even when the call itself is gone from the
// conversation (RUN-02, RUN-11).
func RecordCalls(m *store.Message, calls []model.ToolCall) {
	theirs := map[string]any{}
	for i, call := range calls {
		id := fmt.Sprintf("%s-%d", strings.TrimPrefix(m.ID, "msg_"), i+1)
		if call.ID != "" && len(call.ID) <= maxProviderCallID {
			theirs[id] = strings.ToValidUTF8(call.ID, "\uFFFD")
		}
		m.ToolCalls = append(m.ToolCalls, store.ToolCall{ID: id, Name: call.Name, Arguments: call.Arguments})
	}
	if len(theirs) > 0 {
		if m.Metadata = maps.Clone(m.Metadata); m.Metadata == nil {
			m.Metadata = map[string]any{}
		}
		m.Metadata[model.MetadataCallIDs] = theirs
	}
}

// restoreCallIDs sets the ids of the calls in a request to those that the provider gave them, where these are unique. Some
// providers accept no others, and a conversation that the provider keeps refers to calls by them.
func restoreCallIDs(messages []model.Message) {
	used, now := keptIDs(messages), map[string]string{}
	for i := range messages {
		m := &messages[i]
		if m.Role == model.RoleTool {
			if id, ok := now[m.ToolCallID]; ok {
				m.ToolCallID = id
				continue
			}
		}
		theirs := providerCallIDs(m)
		if len(theirs) == 0 {
			continue
		}
		m.ToolCalls = slices.Clone(m.ToolCalls)
		for j := range m.ToolCalls {
			call := &m.ToolCalls[j]
			if id, _ := theirs[call.ID].(string); id != "" && !used[id] {
				used[id], now[call.ID], call.ID = true, id, id
			}
		}
	}
}

// keptIDs returns the ids of the calls for which the log has no separate id of the provider. Older releases stored the provider's id as
// the id of the call, and the provider may use such an id again.
func keptIDs(messages []model.Message) map[string]bool {
	kept := map[string]bool{}
	for i := range messages {
		m := &messages[i]
		theirs := providerCallIDs(m)
		for _, call := range m.ToolCalls {
			if id, _ := theirs[call.ID].(string); id == "" {
				kept[call.ID] = true
			}
		}
	}
	return kept
}

// providerCallIDs returns the provider's ids of a message's calls, by the ids of the log. Most messages of a conversation call nothing.
func providerCallIDs(m *model.Message) map[string]any {
	if len(m.ToolCalls) == 0 {
		return nil
	}
	theirs, _ := m.Metadata[model.MetadataCallIDs].(map[string]any)
	return theirs
}
