package engine

import (
	"strings"

	"github.com/google/uuid"
)

// Keys of message metadata that the engine sets.
const (
	// metadataReplyTo is, on a message to a child, the parent's tool call that waits for the answer.
	metadataReplyTo = "parent_tool_call_id"
	// metadataHookDepth is, on a message that a hook queued, how many hooks, one caused by the other, led to it.
	metadataHookDepth = "hook_depth"
)

// newRunID makes the id of a run: sess_ and 32 hex digits.
func newRunID() string {
	return "sess_" + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
}

func newMessageID() string { return "msg_" + uuid.Must(uuid.NewV7()).String() }
