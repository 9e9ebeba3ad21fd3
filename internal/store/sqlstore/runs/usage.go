package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// addUsage adds what a run used, once it has ended (LOG-03).
func addUsage(t *txn.Tx, h *txn.Head, r *store.Run) error {
	var u store.RunUsage
	if len(r.Usage) > 0 {
		_ = json.Unmarshal(r.Usage, &u) // usage in another form has nothing to sum
	}
	duration := max(r.EndedAt-r.StartedAt, 0) / 1000
	sums := []any{1, r.Steps, u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, u.Cost, duration, 1}
	if t.OneWriter() { // elsewhere it would be a round trip more
		n, err := t.Exec(t.Ctx, queries.AddToUsage, append(slices.Clone(sums), h.Namespace, r.Agent, h.ID, h.Key)...)
		if n > 0 || err != nil {
			return err
		}
	}
	return t.Write(t.Ctx, queries.AddUsage, append(append([]any{r.Agent}, sums...), h.Key)...)
}

// AddTaskUsage adds what a post-run task used, once.
func AddTaskUsage(t *txn.Tx, h *txn.Head, op *store.AddTaskUsage) error {
	usage, err := json.Marshal(op.Usage)
	if err != nil {
		return err
	}
	n, err := t.Exec(t.Ctx, queries.AddTaskUsage, h.Key, op.RunID, op.Task, op.Agent, string(usage), t.Now)
	if op.Added = n > 0; err != nil || !op.Added {
		return err
	}
	if err := quotas.Spend(t, h, nil, usage); err != nil {
		return err
	}
	u := op.Usage
	return t.Write(t.Ctx, queries.AddUsage, op.Agent, 0, 0, u.InputTokens, u.OutputTokens, u.CachedTokens, u.ReasoningTokens, u.Cost, 0, 0, h.Key)
}

// AddEmptyUsage gives a thread a row of usage with zeros. The usage of a tree is summed over these rows from parent to child, so
// each child needs one, also without a run. The row stays when the child is purged.
func AddEmptyUsage(t *txn.Tx, h *txn.Head, agent string) error {
	return t.Write(t.Ctx, queries.AddUsage, agent, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, h.Key)
}

// PurgeUsage keeps what a purged thread used in the sums of its agent and namespace. While the root of its tree exists, the row of the
// thread stays too, for the sums of its ancestors. The purge of the root adds all rows of the tree to the sums and removes them.
func PurgeUsage(t *txn.Tx, id, rootID string) error {
	if err := t.Write(t.Ctx, queries.MarkUsagePurged, id); err != nil {
		return err
	}
	if rootID != id {
		var one int64
		if there, err := sqldb.Found(t.Row(t.Ctx, queries.RootThere, []any{rootID}, &one)); err != nil || there {
			return err // the purge of the root folds it
		}
	}
	if _, err := t.Exec(t.Ctx, queries.OwnUsage, rootID, rootID); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.FoldUsage, rootID); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.DropFolded, rootID)
}

// AddOpen adds the usage of runs that a purge ends.
func AddOpen(t *txn.Tx, h *txn.Head) error {
	runs, err := sqldb.List(t.Ctx, t, func(scan sqldb.Scanner) (*store.Run, error) {
		var r store.Run
		var usage sqldb.Text
		err := scan(&r.ID, &r.Agent, &r.Status, &r.Steps, &r.StartedAt, &usage)
		r.Usage, r.EndedAt = usage.Raw(), t.Now
		return &r, err
	}, queries.OpenRuns, h.Key)
	if err != nil {
		return err
	}
	for i := range runs {
		if err := addUsage(t, h, &runs[i]); err != nil {
			return err
		}
	}
	if len(runs) == 0 {
		return nil
	}
	h.Run = txn.LastRun{}
	return t.Write(t.Ctx, queries.EndRuns, t.Now, h.Key) // a repeated purge finds none
}

// Usage implements store.SessionStore.
func (s Store) Usage(ctx context.Context, q store.UsageQuery) (*store.UsageSum, error) {
	query, args := queries.UsageOfNamespace, []any{q.Namespace, q.NamespaceUID, q.NamespaceUID}
	switch {
	case q.ThreadID != "" && q.Subtree:
		query, args = queries.UsageOfTree, []any{q.ThreadID}
	case q.ThreadID != "":
		query, args = queries.UsageOfThread, []any{q.ThreadID}
	case q.Agent != "":
		query, args = queries.UsageOfAgent, []any{q.Namespace, q.NamespaceUID, q.NamespaceUID, q.Agent}
	}
	var u store.UsageSum
	if err := s.DB.Readers.Interruptible().Row(ctx, query, args, &u.Runs, &u.Turns, &u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.ReasoningTokens,
		&u.Cost, &u.DurationMs, &u.Threads); err != nil {
		return nil, fmt.Errorf("sum usage: %w", err)
	}
	return &u, nil
}

// UsageRecords implements store.SessionStore.
func (s Store) UsageRecords(ctx context.Context, threadID string, limit, offset int) ([]store.UsageRecord, error) {
	records, err := sqldb.ReadList(ctx, s.DB.Readers, scanUsageRecord, queries.UsageRecords, threadID, threadID, sqldb.PageSize(limit), max(offset, 0))
	if err != nil {
		return nil, fmt.Errorf("usage of thread %s: %w", threadID, err)
	}
	return records, nil
}

func scanUsageRecord(scan sqldb.Scanner) (*store.UsageRecord, error) {
	var r store.UsageRecord
	var usage sqldb.Text
	if err := scan(&r.RunID, &r.Task, &r.Agent, &r.Status, &r.Turns, &r.StartedAt, &r.EndedAt, &usage); err != nil {
		return nil, err
	}
	if usage.Valid {
		_ = json.Unmarshal(usage.Raw(), &r.Usage) // usage in another form counts as none
	}
	return &r, nil
}
