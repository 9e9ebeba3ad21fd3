package thread

import (
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// The kinds of messages about the life of a child (MSG-09).
const (
	ChildCreated    = "created"
	ChildCompleted  = "completed"
	ChildFailed     = "failed"
	ChildTerminated = "terminated"
)

// Metadata keys of such messages.
const (
	MetadataStatusKind = "status_kind"
	MetadataSubagent   = "subagent_id"
)

// ChildStatusMessage returns an op that records a step in the life of a child in the parent's conversation. The message
// is a silent system message for people who follow the conversation; no model sees it (MSG-09). It contains nothing
// that the child said. A repeat with the same cause changes nothing. It returns nil when the thread is not a child.
func ChildStatusMessage(child *store.Thread, kind, cause string) *store.AppendMessage {
	if child.ParentID == "" || child.Child == nil {
		return nil
	}
	text := fmt.Sprintf("subagent %s (%s) %s", child.Child.Name, child.Reference, kind)
	id := "status-" + child.Reference + "-" + kind
	if cause != "" {
		id += "-" + cause
	}
	return &store.AppendMessage{To: child.ParentID, Message: &store.Message{
		ID: id, Role: store.RoleSystem, Content: &text, Name: child.Child.Name, Silent: true,
		Metadata: map[string]any{MetadataStatusKind: kind, MetadataSubagent: child.Reference},
	}}
}

// IsChildStatus reports whether a message was made by ChildStatusMessage.
func IsChildStatus(m *store.Message) bool {
	return m.Role == store.RoleSystem && m.Metadata[MetadataStatusKind] != nil
}
