package txn

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// Head is the state of a thread within a transaction: its counters, and what the transaction has changed.
type Head struct {
	ID           string
	Key          int64
	Namespace    string
	TerminatedAt int64
	ParentID     string

	version   int64
	LastSeq   int64
	Counts    Counts
	Base      int64 // messages up to here are inherited
	Queued    int64
	Waiting   int64
	Running   int64
	WorkSince sql.NullInt64
	Second    int64
	Appended  int64           // messages ever appended
	UserAt    int64           // creation time of the newest message of a user
	Diff      store.DiffStats // of this transaction
	Life      Life
	lease     Lease
	Run       LastRun

	Fresh   bool // created by this transaction, at version 0
	changed bool
	Taken   bool // inbox items were taken, or a run has stopped, so the oldest work may have changed
	kinds   store.Change
	blocks  []Block // rows to write

	workBefore   sql.NullInt64
	SeqBefore    int64
	SecondBefore int64
}

// Head loads a thread once for each transaction. It returns store.ErrNotFound when the thread does not exist.
func (t *Tx) Head(id string) (*Head, error) {
	for _, h := range t.Heads {
		if h.ID == id {
			return h, nil
		}
	}
	h, err := t.loadHead(id)
	if err != nil {
		return nil, fmt.Errorf("thread %s: %w", id, err)
	}
	t.Heads = append(t.Heads, h)
	return h, nil
}

// Forget drops what the transaction has loaded of a thread that it removes. Otherwise the writer would remember it.
func (t *Tx) Forget(id string) {
	t.Heads = slices.DeleteFunc(t.Heads, func(h *Head) bool { return h.ID == id })
	t.gone = append(t.gone, id)
}

// LoadHeads loads threads for Head, in as many round trips as one of them takes. It leaves out threads that do not exist.
func (t *Tx) LoadHeads(ids []string) error {
	if p, ok := t.session.(pipelined); ok {
		if err := p.loadMore(t.Ctx, ids); err != nil {
			return err
		}
	}
	for _, id := range ids {
		_, err := t.Head(id)
		if _, err = sqldb.Found(err); err != nil {
			return err
		}
	}
	return nil
}

// HeadIn is Head for a thread that another one of the namespace is tied to: its parent, its origin, the receiver of what it sends. A
// thread of another namespace does not exist for it.
func (t *Tx) HeadIn(namespace, id string) (*Head, error) {
	h, err := t.Head(id)
	if err == nil && h.Namespace != namespace {
		return nil, fmt.Errorf("thread %s in namespace %s: %w", id, namespace, store.ErrNotFound)
	}
	return h, err
}

func (t *Tx) loadHead(id string) (*Head, error) {
	if p, ok := t.session.(pipelined); ok {
		return p.loadHead(t.Ctx, id)
	}
	return scanHead(t.One(t.Ctx, queries.Head, id))
}

// scanHead reads queries.HeadColumns, and the columns after them into more.
func scanHead(scan sqldb.Scanner, more ...any) (*Head, error) {
	h := &Head{}
	var counted string
	if err := scan(append([]any{&h.ID, &h.Key, &h.Namespace, &h.TerminatedAt, &h.version, &h.LastSeq, &counted, &h.Queued,
		&h.Waiting, &h.Running, &h.WorkSince, &h.Second, &h.Appended, &h.UserAt, &h.Base,
		&h.Life.Asleep, &h.Life.IdleExpiry, &h.Life.ExpiresAt, &h.ParentID}, more...)...); err != nil {
		return nil, err
	}
	var err error
	if h.Counts, err = ParseCounts(counted); err != nil {
		return nil, err
	}
	h.workBefore, h.SecondBefore, h.SeqBefore = h.WorkSince, h.Second, h.LastSeq
	return h, nil
}

// forNext returns the head as the next transaction finds it.
func (h *Head) forNext() *Head {
	next := *h
	next.Counts = slices.Clone(h.Counts)
	next.Life.woken, next.Life.Cleared, next.Life.cut = false, false, false
	next.Fresh, next.changed, next.Taken, next.kinds, next.blocks = false, false, false, 0, nil
	next.Diff = store.DiffStats{}
	next.workBefore, next.SecondBefore, next.SeqBefore = h.WorkSince, h.Second, h.LastSeq
	return &next
}

// Next takes the next sequence number of the thread.
func (h *Head) Next() int64 {
	if h.LastSeq%BlockSeqs == 0 && h.LastSeq > h.Base {
		h.blocks = append(h.blocks, Block{h.LastSeq, slices.Clone(h.Counts)})
	}
	h.LastSeq++
	return h.LastSeq
}

// Touch records a change.
func (h *Head) Touch(kinds store.Change) {
	h.changed = true
	h.kinds |= kinds
}

// Log appends an entry to the thread's log.
func (t *Tx) Log(h *Head, e store.Event) (seq int64, err error) {
	if e.CreatedAt == 0 {
		e.CreatedAt = t.Now
	}
	seq = h.Next()
	h.Touch(store.ChangedLog)
	return seq, t.Write(t.Ctx, queries.InsertEvent, h.Key, seq, e.Type, e.RunID, e.MessageID, sqldb.NullJSON(e.Data), e.CreatedAt)
}

// flush writes the heads that have changed. Each gets one new version, whatever the number of ops (THR-11).
func (t *Tx) flush() error {
	for _, h := range t.Heads {
		if !h.changed {
			continue
		}
		if err := t.computeWork(h); err != nil {
			return err
		}
		if err := t.WriteBlocks(h); err != nil {
			return err
		}
		if err := t.armExpiry(h); err != nil {
			return err
		}
		if !h.Fresh {
			h.version++
		}
		h.Second = t.Now / time.Second.Microseconds()
		args := []any{h.version, h.LastSeq, h.Counts.String(), h.Queued, h.Waiting, h.Running, t.Now, h.Appended, h.UserAt}
		query := queries.UpdateHead
		switch {
		case h.Second != h.SecondBefore:
			query, args = queries.UpdateHeadIndexed, append(args, h.WorkSince, h.Second)
		case h.WorkSince != h.workBefore:
			query, args = queries.UpdateHeadWork, append(args, h.WorkSince)
		}
		if err := t.writeHead(h, query, append(args, h.Key)...); err != nil {
			return err
		}
		if h.Diff != (store.DiffStats{}) {
			if err := t.Write(t.Ctx, queries.AddDiff, h.Diff.Added, h.Diff.Changed, h.Diff.Removed, h.Key); err != nil {
				return err
			}
		}
		t.Notifications = append(t.Notifications, store.Notification{ThreadID: h.ID, Changed: h.kinds})
	}
	return nil
}

func (t *Tx) writeHead(h *Head, query string, args ...any) error {
	if p, ok := t.session.(pipelined); ok {
		return p.writeHead(t.Ctx, h, query, args...)
	}
	return t.Write(t.Ctx, query, args...)
}

// computeWork works out since when the thread has had work: from its oldest inbox item, or from when its run continued. A
// thread has no work when it is at rest, when its run is parked with nothing to take, or when its inbox is asleep.
func (t *Tx) computeWork(h *Head) error {
	switch {
	case h.Waiting == 0 && h.Running == 0, h.Life.sleeps() && h.Running == 0, h.Deleting():
		h.WorkSince = sql.NullInt64{}
	case !h.WorkSince.Valid && h.Life.woken && h.Waiting > 0:
		h.WorkSince.Valid = true
		return t.Row(t.Ctx, queries.OldestWaits, []any{h.Key}, &h.WorkSince.Int64)
	case !h.WorkSince.Valid:
		h.WorkSince = sql.NullInt64{Int64: t.Now, Valid: true}
	case h.Waiting > 0 && h.Taken:
		return t.Row(t.Ctx, queries.OldestWaits, []any{h.Key}, &h.WorkSince.Int64)
	}
	return nil
}

// LastRun is the run that was written last, as far as the head knows it.
type LastRun struct {
	Known          bool
	ID             string // "" when there is none
	Status         store.RunStatus
	Started, Ended int64
	Usage          json.RawMessage
}

// ExpectVersion returns a store.VersionError unless the thread has the version.
func (t *Tx) ExpectVersion(h *Head, expected int64) error {
	if h.version != expected {
		return &store.VersionError{ThreadID: h.ID, Expected: expected, Current: h.version}
	}
	return nil
}
