package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// answers prints what the agent says. On a terminal it prints the live conversation, including tool calls. Elsewhere
// it prints only the text, so that another program can read it.
type answers struct {
	live *live
	out  io.Writer
	run  string // the run whose answers these are, once it is known
	keep bool   // collects the messages in said instead of printing them
	said []runtimev1.Message
}

// sending is what send prints with --output: the message as it was queued and, with --wait, the run that took it and the messages of the
// agent in that run.
type sending struct {
	Message *runtimev1.Message  `json:"message"`
	Run     *runtimev1.Run      `json:"run,omitempty"`
	Answers []runtimev1.Message `json:"answers,omitempty"`
}

// mine reports whether an event belongs to the answering run. Messages that others add to the conversation meanwhile
// are not answers.
func (a *answers) mine(e *runtimev1.Event) bool {
	if a.run == "" || e.RunID == a.run {
		return true
	}
	return e.RunID == "" && e.Type != runtimev1.EventMessageCreated
}

func (a *answers) event(e *runtimev1.Event) {
	if !a.mine(e) {
		return
	}
	if a.live.deltas {
		a.live.event(e)
		return
	}
	if e.Type != runtimev1.EventMessageCreated {
		return
	}
	var m runtimev1.Message
	if json.Unmarshal(e.Data, &m) != nil || m.Role != runtimev1.RoleAssistant || m.Silent || m.Depth > 0 || m.Content == nil || *m.Content == "" {
		return
	}
	if a.keep {
		a.said = append(a.said, m)
		return
	}
	fmt.Fprintln(a.out, strings.TrimRight(*m.Content, "\n"))
}

func (a *answers) finish() { a.live.breakOff() }
