// Package runlog has what the entries of a thread's log have in common: new ids, keys of metadata, and events.
package runlog

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
)

// Keys of message metadata that the engine sets.
const (
	// MetadataReplyTo is set on a message to a child: the id of the parent's tool call that waits for the answer.
	MetadataReplyTo = "parent_tool_call_id"
	// MetadataHookDepth is set on a message that a hook queued: the number of hooks in the chain of causes that led to it.
	MetadataHookDepth = "hook_depth"
)

// MaxMessage bounds the message that a run ends with, in bytes, because custom resources contain it.
const MaxMessage = 1000

// NewRunID returns a new id of a run: sess_ and 32 hex digits.
func NewRunID() string {
	return "sess_" + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
}

// NewMessageID returns a new id of a message: msg_ and a UUID.
func NewMessageID() string { return "msg_" + uuid.Must(uuid.NewV7()).String() }

// Event returns the operation that appends an event about a run to the log. runID and messageID may be "".
func Event(runID, kind, messageID string, data any) *store.AppendEvent {
	raw, _ := json.Marshal(data) // plain structs of strings and numbers: cannot fail
	return &store.AppendEvent{Event: store.Event{Type: kind, RunID: runID, MessageID: messageID, Data: raw}}
}

// KeySpace is the UUID namespace in which keys of callers become ids.
var KeySpace = uuid.MustParse("8b1f2c5e-5c0a-4f0e-9f0b-0d6f6a3c4e21")

// KeyFor returns the key that belongs to a caller's own key, which may be any text, or a new key when that is empty.
func KeyFor(threadID, key string) string {
	if key == "" {
		return uuid.NewString()
	}
	return uuid.NewSHA1(KeySpace, []byte(threadID+"\x00"+key)).String()
}

// RepliesOf returns the parent's calls that wait for the answer to a message.
func RepliesOf(m *store.Message) []string {
	switch v := m.Metadata[MetadataReplyTo].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, id := range v {
			if s, ok := id.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// ResultOp returns the operation that queues a child's result on its parent.
func ResultOp(child *store.Thread, key string, r store.ChildResult) *store.Enqueue {
	payload, _ := json.Marshal(r) // strings and numbers only: cannot fail
	return &store.Enqueue{
		To:               child.ParentID,
		Item:             store.InboxItem{Key: key, Kind: store.InboxChildResult, Payload: payload},
		IgnoreTerminated: true,
	}
}

// DequeueOf returns the operation that removes items from the inbox.
func DequeueOf(items []store.InboxItem) *store.Dequeue {
	gone := &store.Dequeue{}
	for _, item := range items {
		gone.Seqs = append(gone.Seqs, item.Seq)
	}
	return gone
}
