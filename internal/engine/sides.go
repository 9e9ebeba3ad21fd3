package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// defaultMaxSessionTurns is the limit of turns for an agent that sets no maxSessionTurns.
const defaultMaxSessionTurns = 50

// side returns the side that the run acts as: the side whose turn it is, or the other one while calls of that side
// are made. A called prompt stands for the side that called it.
func (r *role) side() *definition.Side {
	if r.frame != nil {
		return r.frame.side
	}
	if r.acting != nil {
		return r.acting
	}
	return r.agent.Side(r.checkpoint.Turn.Side)
}

// mark returns the value of Message.Side for messages of the acting side.
func (r *role) mark() string {
	if r.agent == nil {
		return ""
	}
	return r.agent.MessageSide(r.side())
}

// actAs makes the run act as the side s while calls of s are made. It may not be the turn of s: a call that code of s
// queued may be taken in when the turn has passed to the other side. Call back to restore the side once the calls are
// made.
func (r *run) actAs(s *definition.Side) (back func()) {
	if s == r.side() {
		return func() {}
	}
	r.acting = s
	r.useSide()
	return func() {
		r.acting = nil
		r.useSide()
	}
}

// useSide discards the tools, so that they are built anew, and tells code whose turn it is.
func (r *run) useSide() {
	r.tools = nil
	if r.exec != nil {
		r.exec.Use(r.side())
	}
}

// maxTurns returns the limit of turns of the session.
func (r *role) maxTurns() int {
	if n := int(r.agent.Spec.MaxSessionTurns); n > 0 {
		return n
	}
	return defaultMaxSessionTurns
}

// following returns the side that has the next turn. It returns nil when the session ends with this turn: code has
// stopped it, or the other side is a person.
func (r *role) following() *definition.Side {
	switch t := r.checkpoint.Turn; {
	case t.Ends:
		return nil
	case t.Again:
		return r.side()
	case !r.agent.Dual():
		return nil
	case t.Side == definition.SideB:
		return r.agent.A
	default:
		return r.agent.B
	}
}

// endTurn ends the turn. The session then ends, or continues with the next turn, whose start is in the log together
// with the end of this one (AGT-02). m is the answer when it is not in the log yet.
func (r *run) endTurn(ctx context.Context, end *plan.Ending, m *store.Message) (ended bool, err error) {
	next := r.following()
	if limit := r.maxTurns(); next != nil && r.checkpoint.Turn.Over+1 >= limit {
		next, end.Turns = nil, limit
	}
	if next == nil {
		return true, r.finish(ctx, end, m)
	}
	var said []*store.Message
	if m != nil {
		said = append(said, m)
	}
	if end.Append {
		m, err := r.answerOf(ctx, end)
		if err != nil {
			return false, err
		}
		said = append(said, m)
	}
	after := r.conv.LastAnswer(r.record.ID)
	s := r.newStep("turn")
	s.clear()
	for _, m := range said {
		s.createMessage(ctx, m)
		after = m
	}
	turn := checkpoint.Turn{Side: definition.ShortName(next), Over: r.checkpoint.Turn.Over + 1, Before: r.record.Steps, StepsB: r.checkpoint.Turn.StepsB}
	if after != nil {
		turn.After = after.ID
	}
	s.add(runlog.Event(r.record.ID, store.EventTurnEnded, turn.After, turnEvent{Side: r.side().Name, Turn: turn.Over, Next: next.Name}))
	r.checkpoint.Turn = turn
	r.record.State = r.checkpoint.Encode()
	s.checkpoint(r.record)
	s.saveScopes(false) // changes by a handler; those by a tool are saved with its result
	if err := s.commit(ctx); err != nil {
		return false, err
	}
	if r.exec != nil && r.exec.Turn != nil {
		r.exec.Turn.Given()
	}
	r.useSide()
	return false, nil
}

// turnEvent is the data of turn.ended.
type turnEvent struct {
	Side string `json:"side"` // the side whose turn ended
	Turn int    `json:"turn"` // 1-based number of the turn in the session
	Next string `json:"next"` // the side whose turn begins
}

// opened ensures that a side whose turn begins has a message to answer. The other side may have ended its turn
// without one.
func (r *run) opened(messages []model.Message) []model.Message {
	t := r.checkpoint.Turn
	if !r.agent.Dual() || t.Over == 0 || r.record.Steps != t.Before || len(messages) == 0 {
		return messages
	}
	if last := messages[len(messages)-1]; last.Role != model.RoleAssistant && last.Role != model.RoleSystem {
		return messages
	}
	return append(messages, model.Message{Role: model.RoleUser, Content: wordless})
}

// wordless is the message that stands for a turn in which nothing was said.
const wordless = "(the turn ended without a message)"

// Progress returns how far a stored run is, for callers outside of the run (RUN-03).
func Progress(r *store.Run) tool.ExecutionState {
	s := tool.ExecutionState{FlowID: r.ID, CurrentSide: definition.SideA, StepCount: r.Steps}
	if kept, err := checkpoint.Read(r); err == nil && !r.Status.Ended() {
		s.SideBStepCount = kept.Turn.StepsB
		if kept.Turn.Side != "" {
			s.CurrentSide = kept.Turn.Side
		}
	}
	s.SideAStepCount = s.StepCount - s.SideBStepCount
	return s
}
