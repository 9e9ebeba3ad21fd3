package engine

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// compacted is the data of store.EventContextCompacted.
type compacted struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Messages int      `json:"messages"`
	Side     string   `json:"side,omitempty"`
	Prompt   string   `json:"prompt,omitempty"`
	Model    string   `json:"model"`
	Requests []string `json:"requests,omitempty"`
}

// compactionFailure is the data of store.EventCompactionFailed.
type compactionFailure struct {
	Reason   string   `json:"reason"`
	Message  string   `json:"message"`
	Side     string   `json:"side,omitempty"`
	Prompt   string   `json:"prompt,omitempty"`
	Requests []string `json:"requests,omitempty"`
}

// requests returns the ids of the requests that the compactor carries out.
func (k *compactor) requests() (ids []string) {
	for _, item := range k.orders {
		ids = append(ids, item.Key)
	}
	return ids
}

func (k *compactor) failure(not *noCompaction) compactionFailure {
	text := clip.Text(k.run.requests.Redacted(not.Message), runlog.MaxMessage)
	return compactionFailure{Reason: not.Reason, Message: text, Side: k.run.Mark(), Prompt: k.run.Side().Prompt.Name, Requests: k.requests()}
}

// write records a summary, what it used, and that the requests for it are carried out, in one step.
func (k *compactor) write(ctx context.Context, m *store.Message, by *definition.Model, res *model.Response, whole bool) error {
	r := k.run
	if res.Usage != nil {
		m.Usage, _ = json.Marshal(res.Usage) // numbers only: cannot fail
	}
	done := compacted{
		From: m.Summary.From, To: m.Summary.To, Messages: m.Summary.Messages, Side: m.Summary.Side, Prompt: m.Summary.Prompt, Model: cmp.Or(res.Model, by.Name),
	}
	s := r.newStep("compact")
	s.appendMessage(m)
	if whole && len(k.orders) > 0 {
		done.Requests = k.requests()
		s.add(runlog.DequeueOf(k.orders))
	}
	s.add(runlog.Event(r.record.ID, store.EventContextCompacted, m.ID, done))
	k.countIn(s, m.ID, by, res)
	if err := s.commit(ctx); err != nil {
		return err
	}
	if whole {
		r.carriedOut(k.orders)
	}
	if stored := r.conv.Message(m.ID); stored == nil { // a replica that was lost since has written it
		return k.reload(ctx, m.ID)
	}
	return nil
}

// reload adds a stored summary to the memory of the run.
func (k *compactor) reload(ctx context.Context, id string) error {
	m, err := k.run.engine.store.Message(ctx, k.run.Thread.ID, id)
	if err != nil {
		return err
	}
	k.run.conv.Add(*m)
	return nil
}

// refuse records that requests are not carried out, and why.
func (k *compactor) refuse(ctx context.Context, not *noCompaction) error {
	r := k.run
	s := r.newStep("compact")
	s.add(runlog.DequeueOf(k.orders), runlog.Event(r.record.ID, store.EventCompactionFailed, "", k.failure(not)))
	if err := s.commit(ctx); err != nil {
		return err
	}
	r.carriedOut(k.orders)
	return nil
}

// count records what an answer used that is no summary.
func (k *compactor) count(ctx context.Context, by *definition.Model, res *model.Response) error {
	r := k.run
	s := r.newStep("compact")
	k.countIn(s, runlog.NewMessageID(), by, res)
	return s.commit(ctx)
}

// countIn adds to a step what a model used: to the run, or to the thread where no run is under way.
func (k *compactor) countIn(s *step, id string, by *definition.Model, res *model.Response) {
	r := k.run
	if r.record.ID == "" {
		s.add(&store.AddTaskUsage{Task: "compaction " + id, Agent: r.Agent.Name, Usage: usage.Of(by, res.Usage)})
		return
	}
	r.usage.Count(res.Usage)
	r.usage.CountModel(cmp.Or(res.Model, by.Name))
	r.record.Usage = r.usage.Encode()
	r.countTime()
	s.checkpoint(r.record)
}
