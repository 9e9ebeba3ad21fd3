package thread

import (
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// The kinds of messages about the life of a child (MSG-09).
const (
	ChildCreated    = "created"
	ChildCompleted  = "completed"
	ChildFailed     = "failed"
	ChildTerminated = "terminated"
	ChildAdopted    = "adopted"
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

// ChildLostOps returns the ops that tell a parent about a child that ended without telling it: it could not be created, or
// was deleted. calls are the parent's calls that wait for the child. An empty id stands for none, and makes the result a
// message. A repeat changes nothing.
func ChildLostOps(child *store.Thread, status, text string, calls []string) []store.Op {
	message := ChildStatusMessage(child, status, "")
	if message == nil {
		return nil
	}
	ops := []store.Op{message}
	for _, call := range calls {
		ops = append(ops, ChildLostResult(child.ParentID, store.ChildResult{
			Reference: child.Reference, ThreadID: child.ID, Name: child.Child.Name, ToolCallID: call, Status: status, Content: text,
		}))
	}
	return ops
}

// ChildLostResult returns the op that queues a result on a parent for a child that cannot send one. A repeat, for the same
// call, changes nothing.
func ChildLostResult(parentID string, r store.ChildResult) *store.Enqueue {
	payload, _ := json.Marshal(r) // strings only: cannot fail
	return &store.Enqueue{
		To:               parentID,
		Item:             store.InboxItem{Key: "skein:child-ended:" + r.Reference + ":" + r.ToolCallID, Kind: store.InboxChildResult, Payload: payload},
		IgnoreTerminated: true,
	}
}

// FirstReplies returns the calls of the parent that wait for a child which has not run yet.
func FirstReplies(child *store.Child) []string {
	switch {
	case child.Blocking && child.ToolCallID != "":
		return []string{child.ToolCallID}
	case child.ParentCommunication == "explicit":
		return nil
	}
	return []string{""}
}

// IsChildStatus reports whether a message was made by ChildStatusMessage.
func IsChildStatus(m *store.Message) bool {
	return m.Role == store.RoleSystem && m.Metadata[MetadataStatusKind] != nil
}
