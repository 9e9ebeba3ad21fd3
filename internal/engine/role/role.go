// Package role has who acts in a run: the agent, the side of it whose turn it is, and the prompt that this side calls as a tool.
package role

import (
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Role is who acts in a run: the agent, the side of it whose turn it is, and the prompt that this side calls as a tool. Its methods
// are what follows from that alone. It belongs to the goroutine that executes the run.
type Role struct {
	Thread *store.Thread
	Agent  *definition.Agent // nil in a run that ends without being executed, when it could not be resolved
	// Next is the agent that the thread has now. It differs from the agent of the run after a handoff.
	Next string
	// State is the durable state of the run: what its row in the store holds besides its status. It says whose turn it is.
	State runstate.State
	// Acting is the side that acts in place of the one whose turn it is, while its calls are made; nil for none.
	Acting *definition.Side
	// Frame is the called prompt that is at work; nil when the side itself is at work.
	Frame *Frame
}

// defaultMaxSessionTurns is the limit of turns for an agent that sets no maxSessionTurns.
const defaultMaxSessionTurns = 50

// defaultMaxSteps is the limit of model calls of a turn for a side that sets no maxSteps.
const defaultMaxSteps = 50

// Side returns the side that the run acts as: the side whose turn it is, or the other one while calls of that side
// are made. A called prompt stands for the side that called it.
func (r *Role) Side() *definition.Side {
	if r.Frame != nil {
		return r.Frame.Side
	}
	if r.Acting != nil {
		return r.Acting
	}
	return r.Agent.Side(r.State.Turn.Side)
}

// Mark returns the value of Message.Side for messages of the acting side.
func (r *Role) Mark() string {
	if r.Agent == nil {
		return ""
	}
	return r.Agent.MessageSide(r.Side())
}

// Reader returns who reads variables now: the side, or the prompt that it calls as a tool.
func (r *Role) Reader() thread.EnvReader {
	e := thread.EnvReader{Side: r.Side().Name}
	if r.Frame != nil {
		e.Called = r.Frame.Path
	}
	return e
}

// MaxSteps returns the limit of model calls of a turn.
func (r *Role) MaxSteps() int {
	if n := int(r.Side().Spec.MaxSteps); n > 0 {
		return n
	}
	return defaultMaxSteps
}

// MaxTurns returns the limit of turns of the session.
func (r *Role) MaxTurns() int {
	if n := int(r.Agent.Spec.MaxSessionTurns); n > 0 {
		return n
	}
	return defaultMaxSessionTurns
}

// Parallel reports whether the calls of a step may be made at once.
func (r *Role) Parallel() bool { return r.Side().Prompt.Spec.ParallelToolCalls }

// NextSide returns the side that has the next turn. It returns nil when the session ends with this turn: code has
// stopped it, or the other side is a person.
func (r *Role) NextSide() *definition.Side {
	switch t := r.State.Turn; {
	case t.Ends:
		return nil
	case t.Again:
		return r.Side()
	case !r.Agent.Dual():
		return nil
	case t.Side == definition.SideB:
		return r.Agent.A
	default:
		return r.Agent.B
	}
}

// IsHanded reports whether the thread was handed over to an agent other than the run's.
func (r *Role) IsHanded() bool { return r.Next != r.Agent.Name }

// SummaryOf returns the summary that a side reads, of the conversation c of the log; nil for none.
func (r *Role) SummaryOf(c *transcript.Conversation, s *definition.Side) *store.Message {
	if s.Handler != nil || definition.CompactionOf(&s.Prompt.Spec).Mode == skeinv1.CompactionNever {
		return nil
	}
	return c.SummaryFor(r.ReaderOf(s))
}

// ReaderOf returns for whom a summary for a side is.
func (r *Role) ReaderOf(s *definition.Side) transcript.Reader {
	return transcript.Reader{Agent: r.Agent.Name, Side: r.Agent.MessageSide(s), Prompt: s.Prompt.Name}
}

// Note returns an assistant message that the model did not write.
func (r *Role) Note(runID string, now int64, text string, status store.MessageStatus, metadata map[string]any) *store.Message {
	return &store.Message{
		ID: runlog.NewMessageID(), Role: store.RoleAssistant, CreatedAt: now, Status: status, RunID: runID,
		Content: &text, Metadata: metadata, Side: r.Mark(),
	}
}
