package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/checkpoint"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/held"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// A request to sum up by hand is an inbox item. A run that is under way carries it out before its next step, otherwise it
// is carried out while the thread is at rest, without a run. The item leaves the inbox in the step that writes the
// summary, or says why there is none. So a crash loses no request, and twenty at once lead to one summary.

// splitCompactions splits inbox items into requests to sum up and the rest.
func splitCompactions(items []store.InboxItem) (orders, rest []store.InboxItem) {
	if !slices.ContainsFunc(items, func(i store.InboxItem) bool { return i.Kind == store.InboxCompact }) {
		return nil, items
	}
	for _, item := range items {
		if item.Kind == store.InboxCompact {
			orders = append(orders, item)
		} else {
			rest = append(rest, item)
		}
	}
	return orders, rest
}

// sideOf returns the name of the side that a request is for; "" when it cannot be read or names none.
func sideOf(order store.InboxItem) string {
	var o store.CompactOrder
	_ = json.Unmarshal(order.Payload, &o)
	return o.Side
}

// ordersFor returns the requests for a side.
func (r *run) ordersFor(s *definition.Side) (orders []store.InboxItem) {
	for _, o := range r.compactions {
		if r.Agent.Side(sideOf(o)).Name == s.Name {
			orders = append(orders, o)
		}
	}
	return orders
}

// carriedOut removes requests from the memory of the run.
func (r *run) carriedOut(orders []store.InboxItem) {
	r.compactions = slices.DeleteFunc(r.compactions, func(o store.InboxItem) bool {
		return slices.ContainsFunc(orders, func(done store.InboxItem) bool { return done.Seq == o.Seq })
	})
}

// underWay returns the id of the run whose calls may still get results.
func (r *run) underWay() string { return cmp.Or(r.record.ID, r.waiting) }

// compactAtRest carries out requests to sum up while no run of the thread is under way, or while the run waits. The caller
// holds the lease.
func (e *Engine) compactAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, active *held.Active, last *store.Run, orders []store.InboxItem) error {
	ctx, done := e.opts.Memory.Begin(ctx, t.Namespace)
	defer done()
	agent, err := definition.ForRun(ctx, e.opts.Definitions, t, nil)
	if err != nil {
		return err
	}
	r := e.newRun(t, fence, active, e.log.WithValues("namespace", t.Namespace, "name", t.Name, "thread", t.ID))
	r.takeOver(t, agent)
	r.code.Life, r.compactions = ctx, orders
	if last != nil && !last.Status.Ended() {
		r.waiting = last.ID
	}
	if r.conv, err = transcript.Load(ctx, e.store, t, e.opts.Limits.ContextMessages); err != nil {
		return err
	}
	defer r.code.Close()
	for _, side := range agent.Sides() {
		r.Checkpoint = checkpoint.State{Turn: checkpoint.Turn{Side: definition.ShortName(side)}}
		r.code.UseSide()
		for n := 0; n < maxCompactions && len(r.ordersFor(side)) > 0; n++ {
			if err := r.compactNow(ctx, side); err != nil {
				return err
			}
		}
	}
	if r.code.Exec != nil {
		if err := r.code.Exec.SaveOutside(ctx); err != nil {
			return err
		}
	}
	if len(r.compactions) == 0 {
		return nil
	}
	return e.store.Apply(ctx, t.ID, fence, runlog.DequeueOf(r.compactions)) // what is left was too much for one go: its summaries are there
}

// compactNow writes one summary for a side that has requests for it.
func (r *run) compactNow(ctx context.Context, side *definition.Side) error {
	k := &compactor{run: r, policy: definition.CompactionOf(&side.Prompt.Spec), orders: r.ordersFor(side), conv: transcript.New()}
	if side.Handler == nil {
		filtered, err := r.hooks.Filtered(ctx, transcript.WithoutSummaries(r.conv), 0)
		if err != nil {
			return err
		}
		k.conv = r.requests.Chosen(filtered, r.record.ID)
		if client, err := r.client(&side.Model); err == nil {
			_, k.room = model.FillOf(client, model.Request{})
		}
	}
	_, err := k.attempt(ctx)
	return err
}

// Compact asks for a summary of older messages of a thread, for the model of a side ("" for side a), and does not wait for
// it. It returns the id of the request, which is in the event that says what came of it. A repeat under the same key is
// the same request. Errors:
//   - store.ErrNotFound for an unknown thread
//   - store.ErrTerminated for a terminated thread
//   - a *NotReadyError for an agent that is not ready
//   - a *thread.InvalidError for a side that reads no summaries
func (e *Engine) Compact(ctx context.Context, threadID, key, side string) (request string, err error) {
	t, st, err := e.executions.Living(ctx, threadID)
	if err != nil {
		return "", err
	}
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	if err != nil {
		return "", err
	}
	s := agent.Side(side)
	switch {
	case side != "" && s.Name != side:
		return "", &thread.InvalidError{Field: "side", Message: fmt.Sprintf("the agent %s has no side %q: leave side out, or give a, or b for a dual_ai agent", agent.Name, side)}
	case s.Handler != nil:
		return "", &thread.InvalidError{Field: "side", Message: fmt.Sprintf("side %s of the agent %s is code, which reads no summaries", s.Name, agent.Name)}
	case definition.CompactionOf(&s.Prompt.Spec).Mode == skeinv1.CompactionNever:
		return "", &thread.InvalidError{Field: "side", Message: fmt.Sprintf("Prompt %s has spec.compaction.mode: never: set it to auto or manual", s.Prompt.Name)}
	}
	payload, err := json.Marshal(store.CompactOrder{Side: side})
	if err != nil {
		return "", err
	}
	request = "compact-" + runlog.Keyed(threadID, key)
	return request, st.Apply(ctx, &store.Enqueue{Item: store.InboxItem{Key: request, Kind: store.InboxCompact, Payload: payload}})
}
