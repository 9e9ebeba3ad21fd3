// Package runs holds the runs of threads with what follows from them: usage and the lifecycle feed.
package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
	"github.com/skein-dev/skein/internal/store/sqlstore/values"
	"github.com/skein-dev/skein/internal/store/sqlstore/webhooks"
)

// Put makes or changes a run, and logs its start, its waiting and its end.
func Put(t *txn.Tx, h *txn.Head, op *store.PutRun) error {
	r := &op.Run
	if r.ID == "" {
		return errors.New("PutRun needs a run with an id")
	}
	r.ThreadID = h.ID
	was, err := runBefore(t, h, r.ID)
	if err != nil {
		return err
	}
	before, started, ended, made := was.Status, was.Started, was.Ended, was.ID == ""
	if r.StartedAt == 0 {
		if r.StartedAt = started; made {
			r.StartedAt = t.Now
		}
	}
	if r.Status.Ended() && r.EndedAt == 0 {
		if r.EndedAt = ended; ended == 0 {
			r.EndedAt = t.Now
		}
	}
	if r.Status != store.RunWaiting {
		r.WakeAt = 0
	}
	if err := logRun(t, h, r, before, made); err != nil {
		return err
	}
	if made {
		err = t.Write(t.Ctx, queries.InsertRun, h.Key, r.ID, h.LastSeq, r.Agent, string(r.Status), r.Reason, r.Message, r.Steps,
			r.StartedAt, r.EndedAt, r.WakeAt, sqldb.NullJSON(r.State), sqldb.NullJSON(r.Usage), sqldb.NullJSON(r.SessionState))
	} else {
		err = t.Write(t.Ctx, queries.UpdateRun, r.Agent, string(r.Status), r.Reason, r.Message, r.Steps, r.StartedAt, r.EndedAt, r.WakeAt,
			sqldb.NullJSON(r.State), sqldb.NullJSON(r.Usage), sqldb.NullJSON(r.SessionState), h.Key, r.ID)
	}
	if err != nil {
		return err
	}
	h.Run = txn.LastRun{Known: true, ID: r.ID, Status: r.Status, Started: r.StartedAt, Ended: r.EndedAt, Usage: r.Usage}
	h.Touch(0)
	if err := quotas.Spend(t, h, was.Usage, r.Usage); err != nil {
		return err
	}
	if err := recordRun(t, h, r, before, made); err != nil {
		return err
	}
	// Items that come to a run while it waits are delayed. h.Queued counts messages only, and spares most ends the statement.
	if before == store.RunWaiting && r.Status != store.RunWaiting || r.Status.Ended() && h.Queued > 0 {
		if err := endDelays(t, h); err != nil {
			return err
		}
	}
	switch was, is := before == store.RunRunning, r.Status == store.RunRunning; {
	case is && !was:
		h.Running++
	case was && !is:
		h.Running--
		h.Taken = true
	}
	return nil
}

// endDelays makes due what a run that waited has left in the inbox for later. Hooks keep the times of their retries.
func endDelays(t *txn.Tx, h *txn.Head) error {
	n, err := t.Exec(t.Ctx, queries.EndDelays, h.Key)
	if n > 0 {
		h.Waiting += n
		h.Taken = true // the oldest work may be older now
		h.Touch(store.ChangedInbox)
	}
	return err
}

// runBefore returns a run as it is stored, without an id when there is none. A run other than the one written last is
// most likely new, so it is not looked up first when the session can detect a repeat.
func runBefore(t *txn.Tx, h *txn.Head, id string) (txn.LastRun, error) {
	switch {
	case h.Run.Known && h.Run.ID == id:
		return h.Run, nil
	case h.Run.Known && t.Assumes():
		return txn.LastRun{}, nil
	}
	r := txn.LastRun{ID: id}
	var usage sqldb.Text
	if known, err := sqldb.Found(t.Row(t.Ctx, queries.RunBefore, []any{h.Key, id}, &r.Status, &r.Started, &r.Ended, &usage)); err != nil || !known {
		return txn.LastRun{}, err
	}
	r.Usage = usage.Raw()
	return r, nil
}

// recordRun records what follows from the start and the end of a run: entries of the lifecycle feed, its usage in the sums, deliveries of
// webhooks, and the end of a warning about the state of its session.
func recordRun(t *txn.Tx, h *txn.Head, r *store.Run, before store.RunStatus, made bool) error {
	if made {
		if err := Feed(t, h, store.LifecycleSessionStarted, r.Agent, r.ID, ""); err != nil {
			return err
		}
	}
	if !r.Status.Ended() || before.Ended() && !made {
		return nil
	}
	if err := addUsage(t, h, r); err != nil {
		return err
	}
	if r.SessionState != nil {
		if err := values.UnwarnState(t, h, store.ScopeSession); err != nil {
			return err
		}
	}
	if err := webhooks.QueueOfThread(t, h, store.WebhookRunEnded, r.Agent, r.ID, func() map[string]any {
		return map[string]any{
			"runId": r.ID, "status": string(r.Status), "reason": r.Reason, "message": r.Message, "steps": r.Steps, "startedAt": r.StartedAt, "endedAt": r.EndedAt,
		}
	}); err != nil {
		return err
	}
	return Feed(t, h, store.LifecycleSessionCompleted, r.Agent, r.ID, string(r.Status))
}

// logRun logs the changes of the run: its start, its waiting and its end.
func logRun(t *txn.Tx, h *txn.Head, r *store.Run, before store.RunStatus, made bool) error {
	var types []string
	if made {
		types = append(types, store.EventRunStarted)
	}
	if before != r.Status {
		change := store.ChangedAtWork
		switch {
		case r.Status.Ended():
			types, change = append(types, store.EventRunEnded), store.ChangedThread
		case r.Status == store.RunWaiting:
			types = append(types, store.EventRunWaiting)
		}
		h.Touch(change)
	}
	for _, kind := range types {
		e := runEvent{Agent: r.Agent, Status: r.Status, Reason: r.Reason, Message: r.Message, Steps: r.Steps}
		if kind == store.EventRunEnded {
			e.Usage, e.DurationMs = r.Usage, max(r.EndedAt-r.StartedAt, 0)/1000
		}
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if _, err := t.Log(h, store.Event{Type: kind, RunID: r.ID, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

// runEvent is the data of a run's log entries.
type runEvent struct {
	Agent   string          `json:"agent,omitempty"`
	Status  store.RunStatus `json:"status"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
	Steps   int             `json:"steps,omitempty"`
	// The fields below are set when the run has ended.
	Usage      json.RawMessage `json:"usage,omitempty"`
	DurationMs int64           `json:"durationMs,omitempty"`
}

// HasRunUnderWay reports whether a run of the thread is in progress or parked.
func HasRunUnderWay(t *txn.Tx, h *txn.Head) (bool, error) {
	var one int
	return sqldb.Found(t.Row(t.Ctx, queries.UnderWay, []any{h.Key}, &one))
}

// Run implements store.Store.
func (s Store) Run(ctx context.Context, threadID, runID string) (*store.Run, error) {
	query, args := queries.Run, []any{threadID, runID}
	if runID == "" {
		query, args = queries.Runs, []any{threadID, 1, 0}
	}
	r, err := sqldb.ReadOne(ctx, s.DB.Readers, ScanOf(threadID), query, args...)
	if err != nil {
		return nil, fmt.Errorf("run %s of thread %s: %w", runID, threadID, err)
	}
	return r, nil
}

// FirstRun implements store.Store.
func (s Store) FirstRun(ctx context.Context, threadID string) (*store.Run, error) {
	r, err := sqldb.ReadOne(ctx, s.DB.Readers, ScanOf(threadID), queries.FirstRun, threadID)
	if err != nil {
		return nil, fmt.Errorf("first run of thread %s: %w", threadID, err)
	}
	return r, nil
}

// Runs implements store.Store.
func (s Store) Runs(ctx context.Context, threadID string, limit, offset int) ([]store.Run, error) {
	runs, err := sqldb.ReadList(ctx, s.DB.Readers, ScanOf(threadID), queries.Runs, threadID, sqldb.PageSize(limit), offset)
	if err != nil {
		return nil, fmt.Errorf("runs of thread %s: %w", threadID, err)
	}
	return runs, nil
}

// RunsWithin implements store.Store. Of the rows behind the page it keeps none.
func (s Store) RunsWithin(ctx context.Context, threadID string, limit, offset int, most int64) (runs []store.Run, more bool, err error) {
	limit = sqldb.PageSize(limit)
	err = s.DB.Readers.Read(ctx, func(c *sqldb.Conn) error {
		runs, more = []store.Run{}, false
		left, read := most, ScanOf(threadID)
		return c.Rows(ctx, queries.Runs, []any{threadID, limit + 1, offset}, func(scan sqldb.Scanner) error {
			if more {
				return nil
			}
			r, err := read(scan)
			if err != nil {
				return err
			}
			if left -= r.Bytes(); len(runs) == limit || left < 0 && len(runs) > 0 {
				more = true
				return nil
			}
			runs = append(runs, *r)
			return nil
		})
	})
	if err != nil {
		return nil, false, fmt.Errorf("runs of thread %s: %w", threadID, err)
	}
	return runs, more, nil
}

// Wakes implements store.Store. It leaves out held inbox items of threads that are retained or have a running run.
func (s Store) Wakes(ctx context.Context, limit, offset int) ([]store.Wake, error) {
	wakes, err := sqldb.ReadList(ctx, s.DB.Readers, func(scan sqldb.Scanner) (*store.Wake, error) {
		var w store.Wake
		return &w, scan(&w.ThreadID, &w.RunID, &w.At)
	}, queries.Wakes, sqldb.PageSize(limit), offset)
	if err != nil {
		return nil, fmt.Errorf("list runs that wait for a time: %w", err)
	}
	return wakes, nil
}

// ScanOf returns the function that reads a run of a thread.
func ScanOf(threadID string) func(sqldb.Scanner) (*store.Run, error) {
	return func(scan sqldb.Scanner) (*store.Run, error) {
		r := store.Run{ThreadID: threadID}
		var state, usage, session sqldb.Text
		if err := scan(&r.ID, &r.Agent, &r.Status, &r.Reason, &r.Message, &r.Steps, &r.StartedAt, &r.EndedAt, &r.WakeAt, &state, &usage, &session); err != nil {
			return nil, err
		}
		r.State, r.Usage, r.SessionState = state.Raw(), usage.Raw(), session.Raw()
		return &r, nil
	}
}

// Store reads runs and what they used.
type Store struct{ DB *txn.DB }
