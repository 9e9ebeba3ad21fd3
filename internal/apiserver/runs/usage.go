package runs

import (
	"net/http"
	"strings"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
)

// GetUsage answers GET usage of a thread: what its ended runs used, and with subtree=true also those of its
// descendants (LOG-03).
func (h *Handler) GetUsage(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	subtree := q.Flag("subtree", false)
	if err := q.Check(); err != nil {
		return err
	}
	u, err := c.Thread.Usage(c.Context(), subtree)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, usageOf(u))
}

// NamespaceUsage answers GET usage of a namespace, or of one agent in it.
func (h *Handler) NamespaceUsage(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	agent := q.Text("agent")
	if strings.ContainsRune(agent, 0) {
		q.Bad("agent", "it must be the name of an Agent")
	}
	if err := q.Check(); err != nil {
		return err
	}
	u, err := h.Threads.Usage(c.Context(), c.Namespace, agent)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, usageOf(u))
}

func usageOf(u *store.UsageSum) runtimev1.Usage {
	return runtimev1.Usage{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindUsage), Threads: u.Threads, Runs: u.Runs, Turns: u.Turns,
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, CacheReadTokens: u.CacheReadTokens, ReasoningTokens: u.ReasoningTokens,
		Cost: u.Cost, DurationMs: u.DurationMs,
	}
}

// ListUsage answers GET usage/records: the usage of each ended run of a thread and of each task that followed a run,
// newest first (RUN-07).
func (h *Handler) ListUsage(c *call.Call) error {
	if c.Rest() != runtimev1.UsageRecords {
		return status.NoSuchPath(c.Request)
	}
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	records, err := c.Thread.UsageRecords(c.Context(), limit+1, offset)
	if err != nil {
		return err
	}
	list := runtimev1.UsageRecordList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindUsageRecords), Records: []runtimev1.UsageRecord{}}
	if list.HasMore = len(records) > limit; list.HasMore {
		records = records[:limit]
	}
	for i := range records {
		list.Records = append(list.Records, usageRecordOf(&records[i]))
	}
	return c.WriteJSON(http.StatusOK, list)
}

func usageRecordOf(r *store.UsageRecord) runtimev1.UsageRecord {
	return runtimev1.UsageRecord{
		RunID: r.RunID, Task: r.Task, Agent: r.Agent, Models: r.Usage.Models, Status: string(r.Status), Turns: r.Turns,
		InputTokens: r.Usage.InputTokens, OutputTokens: r.Usage.OutputTokens, CacheReadTokens: r.Usage.CachedTokens, ReasoningTokens: r.Usage.ReasoningTokens,
		Cost: r.Usage.Cost, DurationMs: max(r.EndedAt-r.StartedAt, 0) / 1000, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}
