package thread

import (
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Kinds of messages about the life of a child (MSG-09).
const (
	ChildCreated    = "created"
	ChildCompleted  = "completed"
	ChildFailed     = "failed"
	ChildTerminated = "terminated"
)

// Keys of the metadata that such messages carry.
const (
	MetadataStatusKind = "status_kind"
	MetadataSubagent   = "subagent_id"
)

// ChildStatusMessage tells the parent's conversation of a step in the life of a child: a silent system message
// for whoever follows the conversation, which no model is shown (MSG-09). It carries nothing that the child
// said. A repeat for the same cause changes nothing; nil when the thread is no child.
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

// IsChildStatus tells whether a message is one of ChildStatusMessage's.
func IsChildStatus(m *store.Message) bool {
	return m.Role == store.RoleSystem && m.Metadata[MetadataStatusKind] != nil
}
