package main

import (
	"encoding/json"
	"fmt"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// live prints a conversation as it happens. On a terminal the pieces of an answer appear as they come.
type live struct {
	transcript
	// deltas makes it print the pieces of an unfinished answer.
	deltas bool
	// silent makes it print silent messages too.
	silent bool

	shown    map[string]bool // messages printed already
	streamed strings.Builder // the part of the unfinished answer that is printed
}

func newLive(t transcript, deltas, silent bool) *live {
	return &live{transcript: t, deltas: deltas, silent: silent, shown: map[string]bool{}}
}

// runOutcome is the data of run.ended and run.waiting.
type runOutcome struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Steps   int    `json:"steps"`
}

func (l *live) event(e *runtimev1.Event) {
	switch e.Type {
	case runtimev1.EventDelta:
		l.delta(e)
	case runtimev1.EventMessageCreated:
		var m runtimev1.Message
		if json.Unmarshal(e.Data, &m) == nil && m.ID != "" && m.Depth == 0 {
			l.created(&m)
		}
	case runtimev1.EventRunWaiting:
		l.breakOff()
		o := outcome(e)
		l.note(e.CreatedAt, "run waits: %s", orElse(o.Reason, "for a child"))
	case runtimev1.EventRunEnded:
		l.breakOff()
		l.ended(e)
	case runtimev1.EventContextCompacted:
		var c runtimev1.Compacted
		if json.Unmarshal(e.Data, &c) == nil {
			l.breakOff()
			l.note(e.CreatedAt, "the model %s has summed up %d older messages", c.Model, c.Messages)
		}
	case runtimev1.EventCompactionFailed:
		var c runtimev1.CompactionFailure
		if json.Unmarshal(e.Data, &c) == nil {
			l.breakOff()
			l.note(e.CreatedAt, "older messages were not summed up: %s", c.Message)
		}
	case runtimev1.EventHandoff:
		var h struct{ To string }
		if json.Unmarshal(e.Data, &h) == nil {
			l.breakOff()
			l.note(e.CreatedAt, "the conversation passes to the agent %s", h.To)
		}
	case runtimev1.EventTerminated:
		l.breakOff()
		l.note(e.CreatedAt, "the thread is terminated")
	case runtimev1.EventFileWritten, runtimev1.EventFileDeleted:
		var f struct{ Path string }
		if json.Unmarshal(e.Data, &f) == nil {
			l.breakOff()
			l.note(e.CreatedAt, "%s %s", e.Type, f.Path)
		}
	default:
		if name, ok := strings.CutPrefix(e.Type, runtimev1.EventCustomPrefix); ok {
			l.breakOff()
			l.note(e.CreatedAt, "event %s %s", name, shorten(string(e.Data)))
		}
	}
}

func (l *live) delta(e *runtimev1.Event) {
	if !l.deltas {
		return
	}
	var d struct{ Text string }
	if json.Unmarshal(e.Data, &d) != nil || d.Text == "" {
		return
	}
	if l.streamed.Len() == 0 {
		fmt.Fprintf(l.out, "%s %s: ", l.at(e.CreatedAt), l.who(&runtimev1.Message{Role: runtimev1.RoleAssistant}))
	}
	l.streamed.WriteString(d.Text)
	fmt.Fprint(l.out, strings.ReplaceAll(safe(d.Text), "\n", "\n  "))
}

func (l *live) created(m *runtimev1.Message) {
	if l.shown[m.ID] || m.Silent && !l.silent {
		return
	}
	l.shown[m.ID] = true
	if l.streamed.Len() == 0 {
		l.message(m)
		return
	}
	text := ""
	if m.Content != nil {
		text = *m.Content
	}
	rest, same := strings.CutPrefix(text, l.streamed.String())
	if m.Role != runtimev1.RoleAssistant || !same {
		l.breakOff()
		l.message(m)
		return
	}
	// The pieces are printed already, so only the rest follows.
	fmt.Fprintln(l.out, strings.TrimRight(strings.ReplaceAll(safe(rest), "\n", "\n  "), "\n "))
	l.streamed.Reset()
	if len(m.ToolCalls) > 0 {
		calls := *m
		calls.Content = nil
		l.message(&calls)
	}
}

// breakOff ends the line of an answer that will not be finished, or that other output interrupts.
func (l *live) breakOff() {
	if l.streamed.Len() > 0 {
		fmt.Fprintln(l.out)
		l.streamed.Reset()
	}
}

func (l *live) ended(e *runtimev1.Event) {
	o := outcome(e)
	if o.Status == runtimev1.RunSucceeded {
		l.note(e.CreatedAt, "run succeeded after %s", steps(o.Steps))
		return
	}
	fmt.Fprintf(l.out, "%s %s\n", l.at(e.CreatedAt), l.style.red(safe(o.String())))
}

func outcome(e *runtimev1.Event) runOutcome {
	var o runOutcome
	_ = json.Unmarshal(e.Data, &o) // without data the outcome is empty
	return o
}

func (o runOutcome) String() string {
	text := "run " + orElse(o.Status, "ended")
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	if o.Message != "" {
		text += ": " + o.Message
	}
	return text
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
