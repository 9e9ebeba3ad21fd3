// Package runstate has the state that a run keeps besides its messages, so that another replica can continue it after a crash or a
// wait: whose turn it is, what its calls wait for, and what was decided on them. The store keeps it in Run.State, as JSON.
package runstate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
	"github.com/skein-dev/skein/internal/tool"
)

// metadataApproval is the decision on a call that had to be approved, in the metadata of its result.
const metadataApproval = "approval"

// State is the content of Run.State.
type State struct {
	// Waits has the calls whose results come later, by their ids: from a child, after an approval, or at a time.
	Waits map[string]tool.Wait `json:"waits,omitempty"`
	// Decisions has the decisions on calls that needed approval, by the ids of the calls, until their results are in the log.
	Decisions map[string]store.Approval `json:"decisions,omitempty"`
	// ReplyTo has the ids of the parent's tool calls that wait for the end of this run.
	ReplyTo []string `json:"replyTo,omitempty"`
	// Input is the id of the newest message that the run took in. It is kept if a side of the agent is code.
	Input string `json:"input,omitempty"`
	// Turn is the present turn.
	Turn Turn `json:"turn,omitzero"`
	// Handoffs is how often the run was handed over to another agent (AGT-03). Each handoff begins a new turn.
	Handoffs int `json:"handoffs,omitempty"`
	// HookDepth is the length of the chain of hooks that led to the newest message that the run took in.
	HookDepth int `json:"hookDepth,omitempty"`
	// Worked is how long the run has worked, in microseconds, if that is limited (RUN-10).
	Worked int64 `json:"worked,omitempty"`
	// Context is the part of state.context that a waiting run carries over, encoded.
	Context []byte `json:"context,omitempty"`
	// Telemetry is the span of the run in its trace, and the request that caused the run.
	Telemetry telemetry.Run `json:"telemetry,omitzero"`
	// First says that the run is the first of its thread. It is set if a side of the agent is code, which is told.
	First bool `json:"first,omitempty"`
	// Needs is the version of State that a replica must know to continue the run; 0 is the first. A release that writes something
	// which earlier ones would get wrong raises it, for the runs that have that.
	Needs int `json:"needs,omitempty"`

	// unknown are the fields that a newer release has written and this one does not know. They are kept.
	unknown map[string]json.RawMessage
}

// version is the version of State that this release knows.
const version = 0

// NewerError says that only a newer release can continue a run.
type NewerError struct {
	Run   string
	Needs int
}

// Error implements error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("a newer release has begun run %s, and only that can continue it: its state has version %d, and this release knows %d", e.Run, e.Needs, version)
}

// fields are the names of the fields that this release knows.
var fields = names(reflect.TypeFor[State]())

func names(t reflect.Type) map[string]bool {
	all := map[string]bool{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		all[name] = true
	}
	return all
}

// Read returns the state that the row of a run has.
func Read(r *store.Run) (State, error) {
	var s State
	if len(r.State) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(r.State, &s); err != nil {
		return s, fmt.Errorf("the state of run %s cannot be read: %w", r.ID, err)
	}
	if s.Needs > version {
		return s, &NewerError{Run: r.ID, Needs: s.Needs}
	}
	if err := json.Unmarshal(r.State, &s.unknown); err != nil {
		return s, fmt.Errorf("the state of run %s cannot be read: %w", r.ID, err)
	}
	maps.DeleteFunc(s.unknown, func(name string, _ json.RawMessage) bool { return fields[name] })
	return s, nil
}

// Encode returns the state for Run.State, nil when it is empty.
func (s State) Encode() json.RawMessage {
	raw, _ := json.Marshal(s) // strings, numbers and bytes only: cannot fail
	if len(s.unknown) > 0 {
		all := maps.Clone(s.unknown)
		_ = json.Unmarshal(raw, &all)
		raw, _ = json.Marshal(all)
	}
	if string(raw) == "{}" { // every field is left out when it is empty
		return nil
	}
	return raw
}

// Turn describes the present turn: whose it is, and what code has decided about it.
type Turn struct {
	// Side is the name of the side whose turn it is; "" is side a.
	Side string `json:"side,omitempty"`
	// Over is how many turns of the session have ended. After is the id of the last message of the turn before this one.
	Over  int    `json:"over,omitempty"`
	After string `json:"after,omitempty"`
	// Before is how many model calls the run had made when the turn began. StepsB is how many of all its calls are side b's.
	Before int `json:"before,omitempty"`
	StepsB int `json:"stepsB,omitempty"`
	// Ends: code has ended the session. It is over once the calls of the step have their results. Passes: the same for this
	// turn.
	Ends   bool `json:"ends,omitempty"`
	Passes bool `json:"passes,omitempty"`
	// Again: the same side has the next turn too.
	Again bool `json:"again,omitempty"`
	// Repairs is how often the model was told in this turn that its answer does not fit its schema. After is the id of that
	// answer then.
	Repairs int `json:"repairs,omitempty"`
}

// WakeAt returns the earliest time at which a wait of the run ends, in microseconds since 1970, or 0 if no wait has a time.
func (s State) WakeAt() int64 {
	var first int64
	for _, w := range s.Waits {
		if w.Until != 0 && (first == 0 || w.Until < first) {
			first = w.Until
		}
	}
	return first
}

// RemoveWait removes the wait of a call that has its result, and the waits of the calls that it made. It reports whether the call
// waited.
func (s *State) RemoveWait(callID string) bool {
	if _, waits := s.Waits[callID]; !waits {
		return false
	}
	delete(s.Waits, callID)
	for id, w := range s.Waits {
		if w.Within == callID {
			s.RemoveWait(id)
		}
	}
	return true
}

// InPrompt reports whether a called prompt waits. Its definition may be gone by now.
func (s *State) InPrompt() bool {
	for _, w := range s.Waits {
		if w.Kind == tool.WaitPrompt || w.Within != "" {
			return true
		}
	}
	return false
}

// MarkDecision notes on a result how its call was approved, and removes the decision from the state. It reports whether the call
// had to be approved.
func (s *State) MarkDecision(call store.ToolCall, m *store.Message) bool {
	d, ok := s.Decisions[call.ID]
	if !ok {
		return false
	}
	if d.Approved && d.Arguments != nil { // the log has the arguments that the model wrote, so the result has to name these
		text := transcript.ContentOf(m) + fmt.Sprintf("\n[approved with other arguments: %s]", d.Arguments)
		m.Content = &text
	}
	if m.Metadata == nil {
		m.Metadata = map[string]any{}
	}
	m.Metadata[metadataApproval] = d
	delete(s.Decisions, call.ID)
	return true
}

// ArgumentsOf returns the arguments with which a call that has a result was made: those of the approver if there are any, or the model's.
func ArgumentsOf(call store.ToolCall, result *store.Message) string {
	noted, ok := result.Metadata[metadataApproval]
	if !ok {
		return call.Arguments
	}
	var d store.Approval // a message that was read again has it as a map
	if raw, err := json.Marshal(noted); err != nil || json.Unmarshal(raw, &d) != nil || !d.Approved || d.Arguments == nil {
		return call.Arguments
	}
	return string(d.Arguments)
}

// RepliesToAny reports whether the run replies to any of the calls.
func (s *State) RepliesToAny(calls map[string]bool) bool {
	return slices.ContainsFunc(s.ReplyTo, func(call string) bool { return calls[call] })
}
