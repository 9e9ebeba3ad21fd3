package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

func (t *tx) putRun(h *head, op *store.PutRun) error {
	r := &op.Run
	if r.ID == "" {
		return errors.New("PutRun needs a run with an id")
	}
	r.ThreadID = h.id
	was, err := t.runBefore(h, r.ID)
	if err != nil {
		return err
	}
	before, started, ended, made := was.status, was.started, was.ended, was.id == ""
	if r.StartedAt == 0 {
		if r.StartedAt = started; made {
			r.StartedAt = t.now
		}
	}
	if r.Status.Ended() && r.EndedAt == 0 {
		if r.EndedAt = ended; ended == 0 {
			r.EndedAt = t.now
		}
	}
	if r.Status != store.RunWaiting {
		r.WakeAt = 0
	}
	if err := t.logRun(h, r, before, made); err != nil {
		return err
	}
	if made {
		err = t.write(t.ctx, qInsertRun, h.key, r.ID, h.lastSeq, r.Agent, string(r.Status), r.Reason, r.Message, r.Steps,
			r.StartedAt, r.EndedAt, r.WakeAt, nullJSON(r.State), nullJSON(r.Usage), nullJSON(r.SessionState))
	} else {
		err = t.write(t.ctx, qUpdateRun, r.Agent, string(r.Status), r.Reason, r.Message, r.Steps, r.StartedAt, r.EndedAt, r.WakeAt,
			nullJSON(r.State), nullJSON(r.Usage), nullJSON(r.SessionState), h.key, r.ID)
	}
	if err != nil {
		return err
	}
	h.run = lastRun{known: true, id: r.ID, status: r.Status, started: r.StartedAt, ended: r.EndedAt}
	h.touch(0)
	if err := t.followRun(h, r, before, made); err != nil {
		return err
	}
	switch was, is := before == store.RunRunning, r.Status == store.RunRunning; {
	case is && !was:
		h.running++
	case was && !is:
		h.running--
		h.taken = true
	}
	return nil
}

// lastRun is the run that was written last, as far as the head knows it.
type lastRun struct {
	known          bool
	id             string // "" when there is none
	status         store.RunStatus
	started, ended int64
}

// runBefore returns a run as it is stored, without an id when there is none. A run other than the one written last is
// most likely new, so it is not looked up first when the session can detect a repeat.
func (t *tx) runBefore(h *head, id string) (lastRun, error) {
	switch {
	case h.run.known && h.run.id == id:
		return h.run, nil
	case h.run.known && t.assumes():
		return lastRun{}, nil
	}
	r := lastRun{id: id}
	if known, err := found(t.row(t.ctx, qRunBefore, []any{h.key, id}, &r.status, &r.started, &r.ended)); err != nil || !known {
		return lastRun{}, err
	}
	return r, nil
}

// followRun adds a run's start and end to the lifecycle feed, and its usage to the sums.
func (t *tx) followRun(h *head, r *store.Run, before store.RunStatus, made bool) error {
	if made {
		if err := t.feed(h, store.LifecycleSessionStarted, r.Agent, r.ID, ""); err != nil {
			return err
		}
	}
	if !r.Status.Ended() || before.Ended() && !made {
		return nil
	}
	if err := t.addUsage(h, r); err != nil {
		return err
	}
	if r.SessionState != nil {
		if err := t.unwarnState(h, store.ScopeSession); err != nil {
			return err
		}
	}
	return t.feed(h, store.LifecycleSessionCompleted, r.Agent, r.ID, string(r.Status))
}

// logRun logs the changes of the run: its start, its waiting and its end.
func (t *tx) logRun(h *head, r *store.Run, before store.RunStatus, made bool) error {
	var types []string
	if made {
		types = append(types, store.EventRunStarted)
	}
	if before != r.Status {
		switch {
		case r.Status.Ended():
			types = append(types, store.EventRunEnded)
		case r.Status == store.RunWaiting:
			types = append(types, store.EventRunWaiting)
		}
		h.touch(store.ChangedThread)
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
		if _, err := t.log(h, store.Event{Type: kind, RunID: r.ID, Data: data}); err != nil {
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

// Run implements store.Store.
func (s *Store) Run(ctx context.Context, threadID, runID string) (*store.Run, error) {
	query, args := qRun, []any{threadID, runID}
	if runID == "" {
		query, args = qRuns, []any{threadID, 1, 0}
	}
	r, err := readOne(ctx, s.readers, runOf(threadID), query, args...)
	if err != nil {
		return nil, fmt.Errorf("run %s of thread %s: %w", runID, threadID, err)
	}
	return r, nil
}

// Runs implements store.Store.
func (s *Store) Runs(ctx context.Context, threadID string, limit, offset int) ([]store.Run, error) {
	runs, err := readList(ctx, s.readers, runOf(threadID), qRuns, threadID, pageSize(limit), offset)
	if err != nil {
		return nil, fmt.Errorf("runs of thread %s: %w", threadID, err)
	}
	return runs, nil
}

// Wakes implements store.Store. It leaves out held inbox items of threads that are retained or have a running run.
func (s *Store) Wakes(ctx context.Context, limit, offset int) ([]store.Wake, error) {
	wakes, err := readList(ctx, s.readers, func(scan scanner) (*store.Wake, error) {
		var w store.Wake
		return &w, scan(&w.ThreadID, &w.RunID, &w.At)
	}, qWakes, pageSize(limit), offset)
	if err != nil {
		return nil, fmt.Errorf("list runs that wait for a time: %w", err)
	}
	return wakes, nil
}
