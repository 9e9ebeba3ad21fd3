package run

import (
	"context"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/store"
)

// endTurn ends the turn. The session then ends, or continues with the next turn, whose start is in the log together
// with the end of this one (AGT-02). m is the answer when it is not in the log yet.
func (r *run) endTurn(ctx context.Context, end *plan.Ending, m *store.Message) (ended bool, err error) {
	next := r.NextSide()
	if limit := r.MaxTurns(); next != nil && r.State.Turn.Over+1 >= limit {
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
	tx := r.newTransaction("turn")
	tx.clear()
	for _, m := range said {
		tx.createMessage(ctx, m)
		after = m
	}
	turn := runstate.Turn{Side: definition.ShortName(next), Over: r.State.Turn.Over + 1, Before: r.record.Steps, StepsB: r.State.Turn.StepsB}
	if after != nil {
		turn.After = after.ID
	}
	tx.add(runlog.Event(r.record.ID, store.EventTurnEnded, turn.After, turnEvent{Side: r.Side().Name, Turn: turn.Over, Next: next.Name}))
	r.State.Turn = turn
	r.record.State = r.State.Encode()
	tx.putRun(r.record)
	tx.saveScopes(false) // changes by a handler; those by a tool are saved with its result
	if err := tx.commit(ctx); err != nil {
		return false, err
	}
	if r.code.Exec != nil && r.code.Exec.Turn != nil {
		r.code.Exec.Turn.ClearRequests()
	}
	r.code.UseSide()
	return false, nil
}

// turnEvent is the data of turn.ended.
type turnEvent struct {
	Side string `json:"side"` // the side whose turn ended
	Turn int    `json:"turn"` // 1-based number of the turn in the session
	Next string `json:"next"` // the side whose turn begins
}
