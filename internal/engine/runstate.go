package engine

import (
	"strings"

	"github.com/google/uuid"
)

// Keys of message metadata that the engine sets.
const (
	// metadataReplyTo is set on a message to a child: the id of the parent's tool call that waits for the answer.
	metadataReplyTo = "parent_tool_call_id"
	// metadataHookDepth is set on a message that a hook queued: the number of hooks in the chain of causes that led to it.
	metadataHookDepth = "hook_depth"
)

// newRunID returns a new id of a run: sess_ and 32 hex digits.
func newRunID() string {
	return "sess_" + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
}

// newMessageID returns a new id of a message: msg_ and a UUID.
func newMessageID() string { return "msg_" + uuid.Must(uuid.NewV7()).String() }
