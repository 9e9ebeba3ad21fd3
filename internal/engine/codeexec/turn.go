package codeexec

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Turn is the state of the run as its code sees it, and what code requested for the turn (RUN-03). It implements
// tool.Execution. Code runs concurrently with the goroutine of the run. That goroutine takes over the requests
// together with the result of the call (see take), so that a request is in the log with that result or not at all.
// mu guards all fields except run.
type Turn struct {
	run string

	mu        sync.Mutex
	side      string   // the side whose turn it is
	prompt    string   // the prompt in use
	called    []string // the prompts called as tools, outermost first
	steps     int
	stepsB    int // the steps of side b among them
	history   []store.Message
	wanted    bool   // some code names historyProperty
	stoppedBy string // the side whose code stopped the run
	asked     runstate.Turn
	news      bool // code requested something since the run last took over the requests
}

func newTurn(runID string) *Turn { return &Turn{run: runID, side: definition.SideA} }

// Resume restores the requests that code made in this turn before the run was interrupted.
func (t *Turn) Resume(kept runstate.Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = runstate.Turn{Ends: kept.Ends, Passes: kept.Passes, Again: kept.Again}
	if kept.Ends {
		t.stoppedBy = definition.SideA
		if kept.Side != "" {
			t.stoppedBy = kept.Side
		}
	}
}

// use records the side whose turn it is, and its prompt.
func (t *Turn) use(s *definition.Side) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.side, t.prompt = s.Name, s.Prompt.Name
}

// historyProperty is the property that code must name to receive the conversation. The conversation may be large, so
// calls of other code do not carry it.
const historyProperty = "messageHistory"

// noteHistoryUse notes whether code names the property of the conversation, so that it is given one.
func (t *Turn) noteHistoryUse(code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = t.wanted || strings.Contains(code, historyProperty)
}

// Now implements tool.Execution.
func (t *Turn) Now() tool.ExecutionState {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := tool.ExecutionState{
		FlowID: t.run, CurrentSide: t.side, StepCount: t.steps, SideAStepCount: t.steps - t.stepsB, SideBStepCount: t.stepsB,
		PromptPath: []string{}, MessageHistory: t.history, Stopped: t.stoppedBy != "", StoppedBy: t.stoppedBy,
	}
	if t.prompt != "" {
		s.PromptPath = append([]string{t.prompt}, t.called...)
	}
	return s
}

// call records the path of prompts that are being called as tools.
func (t *Turn) call(path []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.called = path
}

// Stop implements tool.Execution.
func (t *Turn) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stoppedBy, t.asked.Ends, t.news = t.side, true, true
}

// ForceTurn implements tool.Execution.
func (t *Turn) ForceTurn(side string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if side != definition.SideA && side != definition.SideB {
		return &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("forceTurn takes the side %q or %q, not %q", definition.SideA, definition.SideB, side)}
	}
	// The turn passes to the other side, so this turn ends. If the other side is a person, the session ends too.
	t.asked.Again, t.asked.Passes, t.news = side == t.side, side != t.side, true
	return nil
}

// Begin updates the state that code sees of the run, before the calls of a step are made. stepsB are the steps of side b among steps.
func (t *Turn) Begin(steps, stepsB int, history []store.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, t.stepsB = steps, stepsB
	if t.wanted {
		t.history = slices.Clone(history) // a copy, since the run keeps changing the conversation
	}
}

// Take returns what code has requested for the turn, and reports whether there was any request since the last call.
func (t *Turn) Take() (asked runstate.Turn, news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	news, t.news = t.news, false
	return t.asked, news
}

// ClearRequests clears the requests of a turn that has ended.
func (t *Turn) ClearRequests() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked.Again, t.asked.Passes = false, false
}
