package engine

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Keys of message metadata that the engine sets.
const (
	// metadataReplyTo is, on a message to a child, the parent's tool call that waits for the answer.
	metadataReplyTo = "parent_tool_call_id"
	// metadataHookDepth is, on a message that a hook queued, how many hooks, one caused by the other, led to it.
	metadataHookDepth = "hook_depth"
)

// runState is what the engine keeps of a run in Run.State.
type runState struct {
	// Waits are the calls whose results come later: from children, once they are approved, at a time.
	Waits map[string]tool.Wait `json:"waits,omitempty"`
	// Decisions on calls that had to be approved, until the results of these are in the log.
	Decisions map[string]store.Approval `json:"decisions,omitempty"`
	// ReplyTo are the parent's tool calls that wait for the end of this run.
	ReplyTo []string `json:"replyTo,omitempty"`
	// Input is the newest message that the run took in, kept where a side of the agent is code.
	Input string `json:"input,omitempty"`
	// Turn is whose turn it is, and what code has decided about it.
	Turn turnState `json:"turn,omitzero"`
	// Handoffs is how often the run has passed to another agent (SPEC AGT-03), which begins a turn of its own.
	Handoffs int `json:"handoffs,omitempty"`
	// HookDepth is that of the newest message that the run took in.
	HookDepth int `json:"hookDepth,omitempty"`
	// Worked is how long the run has been at work, in microseconds, where that is bounded (SPEC RUN-10).
	Worked int64 `json:"worked,omitempty"`
	// Context is what of state.context a run that waited has carried over, encoded.
	Context []byte `json:"context,omitempty"`
}

func readRunState(r *store.Run) (runState, error) {
	var s runState
	if len(r.State) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(r.State, &s); err != nil {
		return s, fmt.Errorf("the state of run %s cannot be read: %w", r.ID, err)
	}
	return s, nil
}

func (s runState) encode() json.RawMessage {
	raw, _ := json.Marshal(s) // strings, numbers and bytes only: cannot fail
	if string(raw) == "{}" {  // every field is left out when it is empty
		return nil
	}
	return raw
}

// newRunID makes the id of a run: sess_ and 32 hex digits.
func newRunID() string {
	return "sess_" + strings.ReplaceAll(uuid.Must(uuid.NewV7()).String(), "-", "")
}

func newMessageID() string { return "msg_" + uuid.Must(uuid.NewV7()).String() }
