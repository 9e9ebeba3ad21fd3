package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// turn is the state of the run as its code sees it, and what code requested for the turn (RUN-03). It implements
// tool.Execution. Code runs concurrently with the goroutine of the run. That goroutine takes over the requests
// together with the result of the call (see decided), so that a request is in the log with that result or not at all.
// mu guards all fields except run.
type turn struct {
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
	asked     checkpoint.Turn
	news      bool // code requested something since the run last took over the requests
}

func newTurn(runID string) *turn { return &turn{run: runID, side: definition.SideA} }

// resume restores the requests that code made in this turn before the run was interrupted.
func (t *turn) resume(kept checkpoint.Turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = checkpoint.Turn{Ends: kept.Ends, Passes: kept.Passes, Again: kept.Again}
	if kept.Ends {
		t.stoppedBy = definition.SideA
		if kept.Side != "" {
			t.stoppedBy = kept.Side
		}
	}
}

// use records the side whose turn it is, and its prompt.
func (t *turn) use(s *definition.Side) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.side, t.prompt = s.Name, s.Prompt.Name
}

// historyProperty is the property that code must name to receive the conversation. The conversation may be large, so
// calls of other code do not carry it.
const historyProperty = "messageHistory"

func (t *turn) reads(code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = t.wanted || strings.Contains(code, historyProperty)
}

// Now implements tool.Execution.
func (t *turn) Now() tool.ExecutionState {
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
func (t *turn) call(path []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.called = path
}

// Stop implements tool.Execution.
func (t *turn) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stoppedBy, t.asked.Ends, t.news = t.side, true, true
}

// ForceTurn implements tool.Execution.
func (t *turn) ForceTurn(side string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if side != definition.SideA && side != definition.SideB {
		return &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("forceTurn takes the side %q or %q, not %q", definition.SideA, definition.SideB, side)}
	}
	// The turn passes to the other side, so this turn ends. If the other side is a person, the session ends too.
	t.asked.Again, t.asked.Passes, t.news = side == t.side, side != t.side, true
	return nil
}

// beginTurn updates the state that code sees of the run, before the calls of a step are made.
func (r *run) beginTurn() {
	if r.exec == nil || r.exec.turn == nil {
		return
	}
	t := r.exec.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, t.stepsB = r.record.Steps, r.checkpoint.Turn.StepsB
	if t.wanted {
		t.history = slices.Clone(r.conv.Messages) // a copy, since the run keeps changing the conversation
	}
}

// decided takes over what code has requested for the turn, and reports whether there was any request. The next
// checkpoint of the run stores it.
func (r *run) decided() bool {
	if r.exec == nil || r.exec.turn == nil {
		return false
	}
	t := r.exec.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.news {
		return false
	}
	t.news = false
	r.checkpoint.Turn.Ends, r.checkpoint.Turn.Passes, r.checkpoint.Turn.Again = t.asked.Ends, t.asked.Passes, t.asked.Again
	r.record.State = r.checkpoint.Encode()
	return true
}

// turned returns the decision d, replaced where code has ended or passed on the turn.
func (r *run) turned(d plan.Decision) plan.Decision {
	if d.Action != plan.Ask {
		return d
	}
	switch t := r.checkpoint.Turn; {
	case t.Ends:
		return plan.Decision{Action: plan.EndSession, End: &plan.Ending{}}
	case t.Passes:
		return plan.Decision{Action: plan.EndTurn, End: &plan.Ending{}}
	}
	return d
}

// given clears the requests of a turn that has ended.
func (t *turn) given() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked.Again, t.asked.Passes = false, false
}
