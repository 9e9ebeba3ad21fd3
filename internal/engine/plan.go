package engine

import (
	"encoding/json"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/session"
)

// action is what a run does next.
type action int

const (
	actionAsk   action = iota // call the model
	actionCalls               // make tool calls
	actionWait                // wait for children, approvals, a time
	actionTurn                // the turn is over
	actionEnd                 // the session is over
)

// decision is the outcome of plan.
type decision struct {
	action action
	calls  []store.ToolCall // for actionCalls
	end    *ending          // for actionTurn and actionEnd
}

// ending of a turn, or of the session with it.
type ending struct {
	session     bool   // it is the session's: the model says so
	failed      bool   // the model says that the task failed
	turns       int    // the session ends because it had this many, its limit; else 0
	text        string // the answer
	append      bool   // the text is not in the log as an answer yet
	attachments []string
}

// plan tells from the log alone what a run does next, so that a run that was cut off at any point goes on
// rightly: side is the one whose turn the log says it is, after the answer that ended the turn before, and waits are the
// calls whose results come later. Where calls are made one after the other, none is made behind one that waits for an
// approval or a time, itself or within a called prompt; a child works beside them. Of two sides, only the calls of one are made at a time.
func plan(c *conversation, runID string, side *definition.Side, after string, waits map[string]tool.Wait, parallel bool) decision {
	outstanding := c.outstanding(runID)
	var now []store.ToolCall
	for _, call := range outstanding {
		w, waiting := waits[call.ID]
		if !waiting || w.Ready {
			if len(now) > 0 && c.sideOf(call.ID) != c.sideOf(now[0].ID) {
				break
			}
			now = append(now, call)
		} else if !parallel && w.Kind != tool.WaitChild {
			break
		}
	}
	switch {
	case len(now) > 0:
		return decision{action: actionCalls, calls: now}
	case len(outstanding) > 0:
		return decision{action: actionWait}
	}
	last := c.lastAnswer(runID)
	if last == nil || last.ID == after || writer(last) != side.Name {
		return decision{action: actionAsk}
	}
	switch end := endOf(c, last, side.Spec); {
	case end == nil:
		return decision{action: actionAsk}
	case end.session:
		return decision{action: actionEnd, end: end}
	default:
		return decision{action: actionTurn, end: end}
	}
}

// endOf tells whether an answer of a side, all of its results being there, ends the turn (SPEC AGT-01).
func endOf(c *conversation, m *store.Message, side skeinv1.AgentSide) *ending {
	if len(m.ToolCalls) == 0 {
		if side.StopOnResponse == nil || *side.StopOnResponse {
			return &ending{text: contentOf(m)}
		}
		return nil
	}
	for _, call := range m.ToolCalls {
		i, done := c.results[call.ID]
		if !done || c.msgs[i].ToolStatus == string(tool.StatusError) {
			continue // a call that failed ends nothing: the model may try again
		}
		kind, spec := session.KindOf(side, call.Name)
		if kind == session.Stop || kind == session.Fail {
			said := session.Read(spec, call.Arguments)
			return &ending{session: true, failed: kind == session.Fail, text: said.Text, append: true, attachments: said.Attachments}
		}
		if side.StopTool != "" && call.Name == side.StopTool {
			if text, ok := property(call.Arguments, side.StopToolResponseProperty); ok {
				return &ending{text: text, append: true}
			}
			return &ending{text: contentOf(m)}
		}
	}
	return nil
}

// property reads an argument of a call: a string as it is, anything else as JSON.
func property(arguments, name string) (string, bool) {
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

func contentOf(m *store.Message) string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}
