package threads

import (
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/env"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// HandOver sets the agent of the thread. It stores what is declared in the same transaction, so that a change of the
// spec hands a thread over exactly once, even across crashes.
func HandOver(t *txn.Tx, h *txn.Head, op *store.Handoff) error {
	var agent, declared string
	if err := t.Row(t.Ctx, queries.ThreadAgent, []any{h.Key}, &agent, &declared); err != nil {
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
	if err := t.Write(t.Ctx, queries.SetAgent, op.Agent, next, h.Key); err != nil {
		return err
	}
	h.Touch(store.ChangedThread)
	if !op.Done {
		return nil
	}
	data, err := json.Marshal(store.HandoffData{From: agent, To: op.Agent, By: op.By, ToolCallID: op.ToolCallID})
	if err != nil {
		return err
	}
	if _, err = t.Log(h, store.Event{Type: store.EventHandoff, RunID: op.RunID, Data: data}); err != nil {
		return err
	}
	return env.Wake(t, h) // another agent may need other variables
}
