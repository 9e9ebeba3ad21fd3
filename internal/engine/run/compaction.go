package run

import (
	"cmp"
	"context"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/compaction"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/runstate"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// CompactAtRest carries out requests to sum up while no run of the thread is under way, or while the run waits. The caller
// holds the lease.
func (s *Service) CompactAtRest(ctx context.Context, t *store.Thread, fence *store.Fence, active *activethreads.Active, last *store.Run, requests []store.InboxItem) error {
	ctx, done := s.opts.Memory.Begin(ctx, t.Namespace)
	defer done()
	agent, err := definition.ForRun(ctx, s.opts.Definitions, t, nil)
	if err != nil {
		return err
	}
	r := s.newRun(t, fence, active)
	r.takeOver(t, agent)
	r.code.Life = ctx
	r.compactor.Take(requests)
	if last != nil && !last.Status.Ended() {
		r.waiting = last.ID
	}
	if r.conv, err = transcript.Load(ctx, s.opts.Store, t, s.opts.Limits.ContextMessages); err != nil {
		return err
	}
	defer r.code.Close()
	for _, side := range agent.Sides() {
		r.State = runstate.State{Turn: runstate.Turn{Side: definition.ShortName(side)}}
		r.code.UseSide()
		for n := 0; n < compaction.Most && len(r.compactor.RequestsFor(side)) > 0; n++ {
			if err := r.compactor.CompactNow(ctx, side); err != nil {
				return err
			}
		}
	}
	if r.code.Exec != nil {
		if err := r.code.Exec.SaveExternal(ctx); err != nil {
			return err
		}
	}
	if len(r.compactor.Pending()) == 0 {
		return nil
	}
	return s.opts.Store.Apply(ctx, t.ID, fence, runlog.DequeueOf(r.compactor.Pending())) // what is left was too much for one go: its summaries are there
}

// compactionPort implements compaction.Port with a run.
type compactionPort struct{ of *run }

// RunID implements compaction.Port.
func (p compactionPort) RunID() string { return p.of.record.ID }

// UnderWay implements compaction.Port.
func (p compactionPort) UnderWay() string { return cmp.Or(p.of.record.ID, p.of.waiting) }

// Steps implements compaction.Port.
func (p compactionPort) Steps() int { return p.of.record.Steps }

// Conversation implements compaction.Port.
func (p compactionPort) Conversation() *transcript.Conversation { return p.of.conv }

// FilterMessages implements compaction.Port.
func (p compactionPort) FilterMessages(ctx context.Context, c *transcript.Conversation) (*transcript.Conversation, error) {
	return p.of.hooks.FilterMessages(ctx, c, p.of.record.Steps)
}

// PrefilterHistory implements compaction.Port.
func (p compactionPort) PrefilterHistory(ctx context.Context, messages []model.Message) ([]model.Message, error) {
	return p.of.hooks.PrefilterHistory(ctx, messages, p.of.record.Steps)
}

// CheckQuotas implements compaction.Port.
func (p compactionPort) CheckQuotas(ctx context.Context) error {
	return p.of.service.opts.Quotas.Refuse(ctx, p.of.Thread.Namespace)
}

// Record implements compaction.Port.
func (p compactionPort) Record(event store.Op) { p.of.hooks.Record(event) }

// Commit implements compaction.Port. What a model used counts for the run, or for the thread where no run is under way.
func (p compactionPort) Commit(ctx context.Context, id string, used *compaction.Used, ops ...store.Op) error {
	r := p.of
	tx := r.newTransaction("compact")
	tx.add(ops...)
	if used != nil && used.Response.Usage != nil {
		r.service.opts.Quotas.CountUsed(r.Thread.Namespace, used.Response.Usage.Tokens(), int64(used.Response.Usage.Cost))
	}
	switch {
	case used == nil:
	case r.record.ID == "":
		tx.add(&store.AddTaskUsage{Task: "compaction " + id, Agent: r.Agent.Name, Usage: usage.Of(used.By, used.Response.Usage)})
	default:
		r.usage.Count(used.Response.Usage)
		r.usage.CountModel(cmp.Or(used.Response.Model, used.By.Name))
		r.record.Usage = r.usage.Encode()
		r.countTime()
		tx.putRun(r.record)
	}
	return tx.commit(ctx)
}
