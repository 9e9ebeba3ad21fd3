package compaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// A request to sum up by hand is an inbox item. A run that is under way carries it out before its next step, otherwise it
// is carried out while the thread is at rest, without a run. The item leaves the inbox in the transaction that writes the
// summary, or says why there is none. So a crash loses no request, and twenty at once lead to one summary.

// Split splits inbox items into requests to sum up and the rest.
func Split(items []store.InboxItem) (requests, rest []store.InboxItem) {
	if !slices.ContainsFunc(items, func(i store.InboxItem) bool { return i.Kind == store.InboxCompact }) {
		return nil, items
	}
	for _, item := range items {
		if item.Kind == store.InboxCompact {
			requests = append(requests, item)
		} else {
			rest = append(rest, item)
		}
	}
	return requests, rest
}

// sideOf returns the name of the side that a request is for; "" when it cannot be read or names none.
func sideOf(item store.InboxItem) string {
	var request store.CompactionRequest
	_ = json.Unmarshal(item.Payload, &request)
	return request.Side
}

// RequestsFor returns the requests for a side.
func (m *Compactor) RequestsFor(s *definition.Side) (requests []store.InboxItem) {
	for _, item := range m.requests {
		if m.opts.Role.Agent.Side(sideOf(item)).Name == s.Name {
			requests = append(requests, item)
		}
	}
	return requests
}

// Take takes the requests to sum up out of inbox items, and returns the rest. They replace those that were taken before.
func (m *Compactor) Take(items []store.InboxItem) (rest []store.InboxItem) {
	m.requests, rest = Split(items)
	return rest
}

// Pending returns the requests that are not carried out.
func (m *Compactor) Pending() []store.InboxItem { return m.requests }

// carriedOut removes requests from the memory of the run.
func (m *Compactor) carriedOut(requests []store.InboxItem) {
	m.requests = slices.DeleteFunc(m.requests, func(item store.InboxItem) bool {
		return slices.ContainsFunc(requests, func(done store.InboxItem) bool { return done.Seq == item.Seq })
	})
}

// CompactNow writes one summary for a side that has requests for it, or records why there is none. Nothing else has looked at the quotas,
// since no run is under way.
func (m *Compactor) CompactNow(ctx context.Context, side *definition.Side) error {
	k := &attempt{of: m, opts: m.opts, policy: definition.CompactionOf(&side.Prompt.Spec), requests: m.RequestsFor(side), conv: transcript.New()}
	var full *failure.Error
	switch err := m.opts.Port.CheckQuotas(ctx); {
	case errors.As(err, &full):
		return k.refuse(ctx, &noCompaction{compactionQuota, full.Message})
	case err != nil:
		return err
	}
	if side.Handler == nil {
		filtered, err := m.opts.Port.FilterMessages(ctx, transcript.WithoutSummaries(m.opts.Port.Conversation()))
		if err != nil {
			return err
		}
		k.conv = m.opts.Requests.Choose(filtered, m.opts.Port.RunID())
		if client, err := m.opts.Requests.Client(&side.Model); err == nil {
			_, k.capacity = model.FillOf(client, model.Request{})
		}
	}
	_, err := k.try(ctx)
	return err
}

// Request asks for a summary of older messages of a thread, for the model of a side ("" for side a), and does not wait for
// it. It returns the id of the request, which is in the event that says what came of it. A repeat under the same key is
// the same request. The error is a *thread.InvalidError for a side that reads no summaries.
func Request(ctx context.Context, agent *definition.Agent, st *thread.State, threadID, key, side string) (request string, err error) {
	s := agent.Side(side)
	switch {
	case side != "" && s.Name != side:
		return "", &thread.InvalidError{Field: "side", Message: fmt.Sprintf("the agent %s has no side %q: leave side out, or give a, or b for a dual_ai agent", agent.Name, side)}
	case s.Handler != nil:
		return "", &thread.InvalidError{Field: "side", Message: fmt.Sprintf("side %s of the agent %s is code, which reads no summaries", s.Name, agent.Name)}
	case definition.CompactionOf(&s.Prompt.Spec).Mode == skeinv1.CompactionNever:
		return "", &thread.InvalidError{Field: "side", Message: fmt.Sprintf("Prompt %s has spec.compaction.mode: never: set it to auto or manual", s.Prompt.Name)}
	}
	payload, err := json.Marshal(store.CompactionRequest{Side: side})
	if err != nil {
		return "", err
	}
	request = "compact-" + runlog.KeyFor(threadID, key)
	return request, st.Apply(ctx, &store.Enqueue{Item: store.InboxItem{Key: request, Kind: store.InboxCompact, Payload: payload}, Bounded: true})
}
