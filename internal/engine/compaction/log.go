package compaction

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
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

// requestIDs returns the ids of the requests that the compactor carries out.
func (k *attempt) requestIDs() (ids []string) {
	for _, item := range k.requests {
		ids = append(ids, item.Key)
	}
	return ids
}

// failure returns the data of the event that says why there is no summary.
func (k *attempt) failure(reason *noCompaction) compactionFailure {
	text := clip.Text(k.opts.Requests.Redacted(reason.Message), runlog.MaxMessage)
	return compactionFailure{Reason: reason.Reason, Message: text, Side: k.opts.Role.Mark(), Prompt: k.opts.Role.Side().Prompt.Name, Requests: k.requestIDs()}
}

// write records a summary and what it used, in one step. whole says that the summary covers all that was to be summed up: then the
// requests for it are carried out, and leave the inbox in the same step.
func (k *attempt) write(ctx context.Context, m *store.Message, by *definition.Model, res *model.Response, whole bool) error {
	if res.Usage != nil {
		m.Usage, _ = json.Marshal(res.Usage) // numbers only: cannot fail
	}
	done := compacted{
		From: m.Summary.From, To: m.Summary.To, Messages: m.Summary.Messages, Side: m.Summary.Side, Prompt: m.Summary.Prompt, Model: cmp.Or(res.Model, by.Name),
	}
	ops := []store.Op{&store.AppendMessage{Message: m}}
	if whole && len(k.requests) > 0 {
		done.Requests = k.requestIDs()
		ops = append(ops, runlog.DequeueOf(k.requests))
	}
	ops = append(ops, runlog.Event(k.opts.Port.RunID(), store.EventContextCompacted, m.ID, done))
	if err := k.opts.Port.Commit(ctx, m.ID, &Used{By: by, Response: res}, ops...); err != nil {
		return err
	}
	if whole {
		k.of.carriedOut(k.requests)
	}
	if stored := k.opts.Port.Conversation().Message(m.ID); stored == nil { // a replica that was lost since has written it
		return k.reload(ctx, m.ID)
	}
	return nil
}

// reload adds a stored summary to the memory of the run.
func (k *attempt) reload(ctx context.Context, id string) error {
	m, err := k.opts.Store.Message(ctx, k.opts.Role.Thread.ID, id)
	if err != nil {
		return err
	}
	k.opts.Port.Conversation().Add(*m)
	return nil
}

// refuse records that requests are not carried out, and why.
func (k *attempt) refuse(ctx context.Context, not *noCompaction) error {
	failed := runlog.Event(k.opts.Port.RunID(), store.EventCompactionFailed, "", k.failure(not))
	if err := k.opts.Port.Commit(ctx, "", nil, runlog.DequeueOf(k.requests), failed); err != nil {
		return err
	}
	k.of.carriedOut(k.requests)
	return nil
}

// count records what an answer used that contains no summary.
func (k *attempt) count(ctx context.Context, by *definition.Model, res *model.Response) error {
	return k.opts.Port.Commit(ctx, runlog.NewMessageID(), &Used{By: by, Response: res})
}
