// Package plan decides what a run does next. It decides from the log alone, so a run that was cut off at any point continues
// correctly on another replica. The package does nothing itself.
package plan

import (
	"encoding/json"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/session"
)

// Action is what a run does next.
type Action int

const (
	// Ask calls the model.
	Ask Action = iota
	// MakeCalls makes tool calls.
	MakeCalls
	// Wait parks the run until a child, an approval or a time allows it to continue.
	Wait
	// EndTurn ends the turn.
	EndTurn
	// EndSession ends the session, and the turn with it.
	EndSession
)

// Decision is what Next returns.
type Decision struct {
	Action Action
	Calls  []store.ToolCall // for MakeCalls
	End    *Ending          // for EndTurn and EndSession
}

// Ending describes how a turn ends, or a session with it.
type Ending struct {
	session bool // the model ended the session by a call
	// Failed: the model reported that the task failed.
	Failed bool
	// Turns is the number of turns that the session had, if it ends because that is its limit. It is 0 otherwise.
	Turns int
	// Text is the answer.
	Text string
	// Append means that the text is still to be appended to the log as an answer.
	Append bool
	// Attachments are paths of files of the thread.
	Attachments []string
}

// Next returns what a run does next.
//
//   - side is the side whose turn it is, and after is the id of the answer that ended the turn before it.
//   - waits are the calls whose results come later, by their ids.
//   - parallel reports whether calls are made at once. If they are not, no call is made while an earlier one waits for an
//     approval or a time, itself or within a called prompt. A call that waits for a child blocks no other.
//
// Calls of different sides are never made together.
func Next(c *transcript.Conversation, runID string, side *definition.Side, after string, waits map[string]tool.Wait, parallel bool) Decision {
	outstanding := c.OutstandingCalls(runID)
	var now []store.ToolCall
	for _, call := range outstanding {
		w, waiting := waits[call.ID]
		if !waiting || w.Ready {
			if len(now) > 0 && c.SideOf(call.ID) != c.SideOf(now[0].ID) {
				break
			}
			now = append(now, call)
		} else if !parallel && w.Kind != tool.WaitChild {
			break
		}
	}
	switch {
	case len(now) > 0:
		return Decision{Action: MakeCalls, Calls: now}
	case len(outstanding) > 0:
		return Decision{Action: Wait}
	}
	last := c.LastAnswer(runID)
	if last == nil || last.ID == after || transcript.WriterOf(last) != side.Name {
		return Decision{Action: Ask}
	}
	switch end := EndOf(c, last, side.Spec); {
	case end == nil:
		return Decision{Action: Ask}
	case end.session:
		return Decision{Action: EndSession, End: end}
	default:
		return Decision{Action: EndTurn, End: end}
	}
}

// EndOf returns how an answer of a side ends the turn (AGT-01), or nil if it does not. All results of the answer's calls have to be in
// the conversation.
func EndOf(c *transcript.Conversation, m *store.Message, side skeinv1.AgentSide) *Ending {
	if len(m.ToolCalls) == 0 {
		if side.StopOnResponse == nil || *side.StopOnResponse {
			return &Ending{Text: transcript.ContentOf(m)}
		}
		return nil
	}
	for _, call := range m.ToolCalls {
		result := c.Result(call.ID)
		if result == nil || result.ToolStatus == string(tool.StatusError) {
			continue // a call that failed ends nothing: the model may try again
		}
		kind, spec := session.KindOf(side, call.Name)
		if kind == session.Stop || kind == session.Fail {
			said := session.Read(spec, runstate.ArgumentsOf(call, result))
			return &Ending{session: true, Failed: kind == session.Fail, Text: said.Text, Append: true, Attachments: said.Attachments}
		}
		if side.StopTool != "" && call.Name == side.StopTool {
			if text, ok := property(runstate.ArgumentsOf(call, result), side.StopToolResponseProperty); ok {
				return &Ending{Text: text, Append: true}
			}
			return &Ending{Text: transcript.ContentOf(m)}
		}
	}
	return nil
}

// property returns an argument of a call: a string as it is, any other value as JSON. ok is false if the call has no such argument.
func property(arguments, name string) (value string, ok bool) {
	if name == "" {
		return "", false
	}
	var args map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &args) != nil || args[name] == nil {
		return "", false
	}
	var text string
	if json.Unmarshal(args[name], &text) == nil {
		return text, true
	}
	return string(args[name]), true
}
