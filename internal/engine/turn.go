package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// The sides of an agent. Of an ai_human one, b is the person.
const (
	sideA = "a"
	sideB = "b"
)

// turnState is what code has decided about the turn of a run, as the run keeps it.
type turnState struct {
	// Ends: no further model call is made once the calls of the step have their results.
	Ends bool `json:"ends,omitempty"`
	// Again: the next answer that would end the turn does not.
	Again bool `json:"again,omitempty"`
	// After is the answer that did not end the turn for that reason.
	After string `json:"after,omitempty"`
}

// turn is the run as its code sees it, and what code asks of it (SPEC RUN-03). It implements tool.Execution. Code
// runs beside the run's own goroutine, which takes over what was asked with the result of the call (decided), so
// that it is in the log with that result or not at all.
type turn struct {
	run, prompt string

	mu      sync.Mutex
	steps   int
	history []store.Message
	wanted  bool // code reads the history
	stopped bool
	asked   turnState
	news    bool // something was asked since it was last taken over
}

func newTurn(runID string, a *Agent) *turn {
	t := &turn{run: runID}
	if a != nil {
		t.prompt = a.A.Prompt.Name
	}
	return t
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
		FlowID: t.run, CurrentSide: sideA, StepCount: t.steps, SideAStepCount: t.steps, PromptPath: []string{},
		MessageHistory: t.history, Stopped: t.stopped,
	}
	if t.prompt != "" {
		s.PromptPath = []string{t.prompt}
	}
	if t.stopped {
		s.StoppedBy = sideA
	}
	return s
}

// Stop implements tool.Execution.
func (t *turn) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped, t.asked.Ends, t.news = true, true, true
}

// ForceTurn implements tool.Execution.
func (t *turn) ForceTurn(side string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch side {
	case sideA:
		t.asked.Again = true
		t.asked.Ends = t.stopped
	case sideB: // the person's turn: this one is over
		t.asked.Ends, t.asked.Again = true, false
	default:
		return &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("forceTurn takes the side %q or %q, not %q", sideA, sideB, side)}
	}
	t.news = true
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
	t.steps = r.record.Steps
	if t.wanted {
		t.history = slices.Clone(r.conv.msgs) // which the run goes on changing
	}
}

// decided takes over what code has asked of the turn; the operations keep it with the run.
func (r *run) decided() []store.Op {
	if r.exec == nil || r.exec.turn == nil {
		return nil
	}
	t := r.exec.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.news {
		return nil
	}
	t.news = false
	r.kept.Turn.Ends, r.kept.Turn.Again = t.asked.Ends, t.asked.Again
	r.record.State = r.kept.encode()
	return []store.Op{&store.PutRun{Run: r.record}}
}

// turned holds what comes next against what code has decided about the turn.
func (r *run) turned(d decision) decision {
	switch last := r.conv.lastAnswer(r.record.ID); {
	case d.action == actionAsk && r.kept.Turn.Ends:
		return decision{action: actionEnd, end: &ending{}}
	case d.action == actionEnd && !d.end.append && last != nil && last.ID == r.kept.Turn.After:
		return decision{action: actionAsk}
	case d.action == actionEnd && last != nil && last.ID == r.kept.Handed:
		return decision{action: actionAsk} // it was another agent's, whose rules are not this one's
	}
	return d
}

// keepTurn tells whether an answer that would end the turn does not, because code has given it to the same side
// again; the run's row, which is written with the answer, then says so.
func (r *run) keepTurn(m *store.Message) bool {
	if !r.kept.Turn.Again {
		return false
	}
	r.kept.Turn.Again, r.kept.Turn.After = false, m.ID
	r.record.State = r.kept.encode()
	if r.exec != nil && r.exec.turn != nil {
		r.exec.turn.again()
	}
	return true
}

// again forgets that the turn was asked for: it was given.
func (t *turn) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked.Again = false
}
