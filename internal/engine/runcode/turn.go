package runcode

import (
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/transcript"
)

// BeginTurn updates the state that code sees of the run, before the calls of a step are made.
func (c *Code) BeginTurn(conv *transcript.Conversation) {
	if c.Exec != nil && c.Exec.Turn != nil {
		c.Exec.Turn.Begin(c.run.Steps, c.role.State.Turn.StepsB, conv.Messages)
	}
}

// TakeDecisions takes over what code has requested for the turn, and reports whether there was any request. The next
// checkpoint of the run stores it.
func (c *Code) TakeDecisions() bool {
	if c.Exec == nil || c.Exec.Turn == nil {
		return false
	}
	asked, news := c.Exec.Turn.Take()
	if !news {
		return false
	}
	c.role.State.Turn.Ends, c.role.State.Turn.Passes, c.role.State.Turn.Again = asked.Ends, asked.Passes, asked.Again
	c.run.State = c.role.State.Encode()
	return true
}

// ActAs makes the run act as the side s while calls of s are made. It may not be the turn of s: a call that code of s
// queued may be taken in when the turn has passed to the other side. Call back to restore the side once the calls are
// made.
func (c *Code) ActAs(s *definition.Side) (back func()) {
	if s == c.role.Side() {
		return func() {}
	}
	c.role.Acting = s
	c.UseSide()
	return func() {
		c.role.Acting = nil
		c.UseSide()
	}
}
