package sqlstore

import (
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
)

// handOver sets the agent of the thread. It stores what is declared in the same transaction, so that a change of the
// spec hands a thread over exactly once, even across crashes.
func (t *tx) handOver(h *head, op *store.Handoff) error {
	var agent, declared string
	if err := t.row(t.ctx, qThreadAgent, []any{h.key}, &agent, &declared); err != nil {
		return err
	}
	op.From, op.Done = agent, agent != op.Agent
	next := declared
	if op.Declared {
		next = op.Agent
	}
	if !op.Done && next == declared {
		return nil
	}
	if err := t.write(t.ctx, qSetAgent, op.Agent, next, h.key); err != nil {
		return err
	}
	h.touch(store.ChangedThread)
	if !op.Done {
		return nil
	}
	data, err := json.Marshal(store.HandoffData{From: agent, To: op.Agent, By: op.By, ToolCallID: op.ToolCallID})
	if err != nil {
		return err
	}
	if _, err = t.log(h, store.Event{Type: store.EventHandoff, RunID: op.RunID, Data: data}); err != nil {
		return err
	}
	return t.wakeForEnv(h) // another agent may need other variables
}
