package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

const (
	// metadataCallIDs is, on an answer, how its provider calls the tool calls: an object, by their ids in the log.
	metadataCallIDs = "provider_call_ids"
	// maxProviderCallID bounds, in bytes, what is kept of that.
	maxProviderCallID = 200
)

// recordCalls gives the tool calls of an answer their ids in the log. These are never the provider's: some number the
// calls of each answer anew, and the id is a key for ever. All that a call causes is derived from it, and so is what was
// decided on it, also when the call itself is gone from the conversation (SPEC RUN-02, RUN-11).
func recordCalls(m *store.Message, calls []model.ToolCall) {
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
		m.Metadata[metadataCallIDs] = theirs
	}
}

// asCalled gives the calls of a request the ids by which the provider knows them, as far as these tell the calls apart:
// some providers take no others, and a conversation that they keep is told of results by them.
func asCalled(messages []model.Message) {
	used, now := keptIDs(messages), map[string]string{}
	for i := range messages {
		m := &messages[i]
		if id, ok := now[m.ToolCallID]; ok && m.Role == model.RoleTool {
			m.ToolCallID = id
			continue
		}
		theirs, _ := m.Metadata[metadataCallIDs].(map[string]any)
		if len(theirs) == 0 || len(m.ToolCalls) == 0 {
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

// keptIDs are those of the calls that have no others. Of an answer that was recorded before calls got ids of the log's own, they
// are the provider's, which it may give again.
func keptIDs(messages []model.Message) map[string]bool {
	kept := map[string]bool{}
	for i := range messages {
		m := &messages[i]
		theirs, _ := m.Metadata[metadataCallIDs].(map[string]any)
		for _, call := range m.ToolCalls {
			if id, _ := theirs[call.ID].(string); id == "" {
				kept[call.ID] = true
			}
		}
	}
	return kept
}
