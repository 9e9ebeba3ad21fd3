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

// turn is the run as its code sees it, and what code asks of it (SPEC RUN-03). It implements tool.Execution. Code
// runs beside the run's own goroutine, which takes over what was asked with the result of the call (decided), so
// that it is in the log with that result or not at all.
type turn struct {
	run string

	mu        sync.Mutex
	side      string   // whose turn it is
	prompt    string   // the one in use
	called    []string // the prompts that were called as tools, one by the other
	steps     int
	stepsB    int // of those, side b's
	history   []store.Message
	wanted    bool   // code reads the history
	stoppedBy string // the side whose code did
	asked     checkpoint.Turn
	news      bool // something was asked since it was last taken over
}

func newTurn(runID string) *turn { return &turn{run: runID, side: definition.SideA} }

// resume takes over what code asked of the turn before it was cut off.
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

// use tells whose turn it is.
func (t *turn) use(s *definition.Side) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.side, t.prompt = s.Name, s.Prompt.Name
}

// historyProperty is what code has to name to be given the conversation, which may be large, with every call.
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

// call tells which prompts are being called as tools.
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
	// The other side's turn: this one is over, and where that is a person the session.
	t.asked.Again, t.asked.Passes, t.news = side == t.side, side != t.side, true
	return nil
}

// beginTurn tells code how far the run is, before the calls of a step are made.
func (r *run) beginTurn() {
	if r.exec == nil || r.exec.turn == nil {
		return
	}
	t := r.exec.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps, t.stepsB = r.record.Steps, r.checkpoint.Turn.StepsB
	if t.wanted {
		t.history = slices.Clone(r.conv.Messages) // which the run goes on changing
	}
}

// decided takes over what code has asked of the turn, and reports whether it asked for anything. The run's next checkpoint
// keeps it.
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

// turned holds what comes next against what code has decided about the turn.
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

// given forgets what was asked of a turn that is over.
func (t *turn) given() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked.Again, t.asked.Passes = false, false
}
