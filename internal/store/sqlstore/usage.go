package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// addUsage adds what a run used, once it has ended (LOG-03).
func (t *tx) addUsage(h *head, r *store.Run) error {
	var u store.RunUsage
	if len(r.Usage) > 0 {
		_ = json.Unmarshal(r.Usage, &u) // usage in another form has nothing to sum
	}
	duration := max(r.EndedAt-r.StartedAt, 0) / 1000
	return t.write(t.ctx, qAddUsage, r.Agent, 1, r.Steps, u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, u.Cost, duration, 1, h.key)
}

// addTaskUsage adds what a post-run task used, once.
func (t *tx) addTaskUsage(h *head, op *store.AddTaskUsage) error {
	usage, err := json.Marshal(op.Usage)
	if err != nil {
		return err
	}
	n, err := t.exec(t.ctx, qAddTaskUsage, h.key, op.RunID, op.Task, op.Agent, string(usage), t.now)
	if op.Added = n > 0; err != nil || !op.Added {
		return err
	}
	u := op.Usage
	return t.write(t.ctx, qAddUsage, op.Agent, 0, 0, u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, u.Cost, 0, 0, h.key)
}

// joinTree inserts the row that leads from the ancestors to a child's usage, also after the child is purged.
func (t *tx) joinTree(h *head, agent string) error {
	return t.write(t.ctx, qAddUsage, agent, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, h.key)
}

// purgeUsage keeps what a purged thread used in the sums of its agent and namespace. While the root of the tree exists,
// it keeps it in those of its ancestors too.
func (t *tx) purgeUsage(id, rootID string) error {
	if err := t.write(t.ctx, qMarkUsagePurged, id); err != nil {
		return err
	}
	if rootID != id {
		var one int64
		if there, err := found(t.row(t.ctx, qRootThere, []any{rootID}, &one)); err != nil || there {
			return err // the purge of the root folds it
		}
	}
	if err := t.write(t.ctx, qFoldUsage, rootID); err != nil {
		return err
	}
	return t.write(t.ctx, qDropFolded, rootID)
}

// addOpenRuns adds the usage of runs that a purge ends.
func (t *tx) addOpenRuns(h *head) error {
	runs, err := list(t.ctx, t, func(scan scanner) (*store.Run, error) {
		var r store.Run
		var usage text
		err := scan(&r.ID, &r.Agent, &r.Status, &r.Steps, &r.StartedAt, &usage)
		r.Usage, r.EndedAt = usage.raw(), t.now
		return &r, err
	}, qOpenRuns, h.key)
	if err != nil {
		return err
	}
	for i := range runs {
		if err := t.addUsage(h, &runs[i]); err != nil {
			return err
		}
	}
	if len(runs) == 0 {
		return nil
	}
	h.run = lastRun{}
	return t.write(t.ctx, qEndRuns, t.now, h.key) // a repeated purge finds none
}

// Usage implements store.SessionStore.
func (s *Store) Usage(ctx context.Context, q store.UsageQuery) (*store.UsageSum, error) {
	query, args := qUsageOfNamespace, []any{q.Namespace}
	switch {
	case q.ThreadID != "" && q.Subtree:
		query, args = qUsageOfTree, []any{q.ThreadID}
	case q.ThreadID != "":
		query, args = qUsageOfThread, []any{q.ThreadID}
	case q.Agent != "":
		query, args = qUsageOfAgent, []any{q.Namespace, q.Agent}
	}
	var u store.UsageSum
	ctx = long(ctx)
	if err := s.readers.read(ctx, func(c *conn) error {
		return c.row(ctx, query, args, &u.Runs, &u.Turns, &u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.ReasoningTokens,
			&u.Cost, &u.DurationMs, &u.Threads)
	}); err != nil {
		return nil, fmt.Errorf("sum usage: %w", err)
	}
	return &u, nil
}

// UsageRecords implements store.SessionStore.
func (s *Store) UsageRecords(ctx context.Context, threadID string, limit, offset int) ([]store.UsageRecord, error) {
	records, err := readList(ctx, s.readers, scanUsageRecord, qUsageRecords, threadID, threadID, pageSize(limit), max(offset, 0))
	if err != nil {
		return nil, fmt.Errorf("usage of thread %s: %w", threadID, err)
	}
	return records, nil
}

func scanUsageRecord(scan scanner) (*store.UsageRecord, error) {
	var r store.UsageRecord
	var usage text
	if err := scan(&r.RunID, &r.Task, &r.Agent, &r.Status, &r.Turns, &r.StartedAt, &r.EndedAt, &usage); err != nil {
		return nil, err
	}
	if usage.Valid {
		_ = json.Unmarshal(usage.raw(), &r.Usage) // usage in another form counts as none
	}
	return &r, nil
}
