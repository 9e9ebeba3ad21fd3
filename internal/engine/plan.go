package engine

import (
	"encoding/json"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
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
	actionEnd                 // the turn is over
)

// decision is the outcome of plan.
type decision struct {
	action action
	calls  []store.ToolCall // for actionCalls
	end    *ending          // for actionEnd
}

// ending of a turn.
type ending struct {
	failed      bool   // the model says that the task failed
	text        string // the answer
	append      bool   // the text is not in the log as an answer yet
	attachments []string
}

// plan tells from the log alone what a run does next, so that a run that was cut off at any point goes on
// rightly. waits are the calls whose results come later. Where calls are made one after the other, none is made behind
// one that waits for an approval or a time; a child works beside them.
func plan(c *conversation, runID string, side skeinv1.AgentSide, waits map[string]tool.Wait, parallel bool) decision {
	outstanding := c.outstanding(runID)
	var now []store.ToolCall
	for _, call := range outstanding {
		w, waiting := waits[call.ID]
		if !waiting {
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
	if last == nil {
		return decision{action: actionAsk}
	}
	if end := endOf(c, last, side); end != nil {
		return decision{action: actionEnd, end: end}
	}
	return decision{action: actionAsk}
}

// endOf tells whether an answer, all of its results being there, ends the turn (SPEC AGT-01).
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
			return &ending{failed: kind == session.Fail, text: said.Text, append: true, attachments: said.Attachments}
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
