package sqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// head is the state of a thread within a transaction: its counters, and what the transaction has changed.
type head struct {
	id           string
	key          int64
	namespace    string
	terminatedAt int64

	version   int64
	lastSeq   int64
	counts    counts
	base      int64 // messages up to here are inherited
	queued    int64
	waiting   int64
	running   int64
	workSince sql.NullInt64
	second    int64
	appended  int64           // messages ever appended
	userAt    int64           // creation time of the newest message of a user
	diff      store.DiffStats // of this transaction
	life      life
	lease     lease
	run       lastRun

	fresh   bool // created by this transaction, at version 0
	changed bool
	taken   bool // inbox items were taken, or a run has stopped, so the oldest work may have changed
	kinds   store.Change
	blocks  []block // rows to write

	workBefore   sql.NullInt64
	seqBefore    int64
	secondBefore int64
}

// head loads a thread once for each transaction. It returns store.ErrNotFound when the thread does not exist.
func (t *tx) head(id string) (*head, error) {
	for _, h := range t.heads {
		if h.id == id {
			return h, nil
		}
	}
	h, err := t.loadHead(id)
	if err != nil {
		return nil, fmt.Errorf("thread %s: %w", id, err)
	}
	t.heads = append(t.heads, h)
	return h, nil
}

func (t *tx) loadHead(id string) (*head, error) {
	if p, ok := t.session.(pipelined); ok {
		return p.loadHead(t.ctx, id)
	}
	return scanHead(t.one(t.ctx, qHead, id))
}

// scanHead reads headColumns, and the columns after them into more.
func scanHead(scan scanner, more ...any) (*head, error) {
	h := &head{}
	var counted string
	if err := scan(append([]any{&h.id, &h.key, &h.namespace, &h.terminatedAt, &h.version, &h.lastSeq, &counted, &h.queued,
		&h.waiting, &h.running, &h.workSince, &h.second, &h.appended, &h.userAt, &h.base,
		&h.life.asleep, &h.life.idleExpiry, &h.life.expiresAt}, more...)...); err != nil {
		return nil, err
	}
	var err error
	if h.counts, err = parseCounts(counted); err != nil {
		return nil, err
	}
	h.workBefore, h.secondBefore, h.seqBefore = h.workSince, h.second, h.lastSeq
	return h, nil
}

// settled returns the head as the next transaction finds it.
func (h *head) settled() *head {
	next := *h
	next.counts = slices.Clone(h.counts)
	next.life.woken, next.life.cleared = false, false
	next.fresh, next.changed, next.taken, next.kinds, next.blocks = false, false, false, 0, nil
	next.diff = store.DiffStats{}
	next.workBefore, next.secondBefore, next.seqBefore = h.workSince, h.second, h.lastSeq
	return &next
}

// next takes the next sequence number of the thread.
func (h *head) next() int64 {
	if h.lastSeq%blockSeqs == 0 && h.lastSeq > h.base {
		h.blocks = append(h.blocks, block{h.lastSeq, slices.Clone(h.counts)})
	}
	h.lastSeq++
	return h.lastSeq
}

// touch records a change.
func (h *head) touch(kinds store.Change) {
	h.changed = true
	h.kinds |= kinds
}

// log appends an entry to the thread's log.
func (t *tx) log(h *head, e store.Event) (seq int64, err error) {
	if e.CreatedAt == 0 {
		e.CreatedAt = t.now
	}
	seq = h.next()
	h.touch(store.ChangedLog)
	return seq, t.write(t.ctx, qInsertEvent, h.key, seq, e.Type, e.RunID, e.MessageID, nullJSON(e.Data), e.CreatedAt)
}

// flush writes the heads that have changed. Each gets one new version, whatever the number of ops (THR-11).
func (t *tx) flush() error {
	for _, h := range t.heads {
		if !h.changed {
			continue
		}
		if err := t.settle(h); err != nil {
			return err
		}
		if err := t.writeBlocks(h); err != nil {
			return err
		}
		if err := t.armExpiry(h); err != nil {
			return err
		}
		if !h.fresh {
			h.version++
		}
		h.second = t.now / time.Second.Microseconds()
		args := []any{h.version, h.lastSeq, h.counts.String(), h.queued, h.waiting, h.running, t.now, h.appended, h.userAt}
		query := qUpdateHead
		if h.workSince != h.workBefore || h.second != h.secondBefore {
			query = qUpdateHeadIndexed
			args = append(args, h.workSince, h.second)
		}
		if err := t.writeHead(h, query, append(args, h.key)...); err != nil {
			return err
		}
		if h.diff != (store.DiffStats{}) {
			if err := t.write(t.ctx, qAddDiff, h.diff.Added, h.diff.Changed, h.diff.Removed, h.key); err != nil {
				return err
			}
		}
		t.notifications = append(t.notifications, store.Notification{ThreadID: h.id, Changed: h.kinds})
	}
	return nil
}

func (t *tx) writeHead(h *head, query string, args ...any) error {
	if p, ok := t.session.(pipelined); ok {
		return p.writeHead(t.ctx, h, query, args...)
	}
	return t.write(t.ctx, query, args...)
}

// settle works out since when the thread has had work: from its oldest inbox item, or from when its run continued. A
// thread has no work when it is at rest, when its run is parked with nothing to take, or when its inbox is asleep.
func (t *tx) settle(h *head) error {
	switch {
	case h.waiting == 0 && h.running == 0, h.life.asleep != 0 && h.running == 0:
		h.workSince = sql.NullInt64{}
	case !h.workSince.Valid && h.life.woken && h.waiting > 0:
		h.workSince.Valid = true
		return t.row(t.ctx, qOldestWaits, []any{h.key}, &h.workSince.Int64)
	case !h.workSince.Valid:
		h.workSince = sql.NullInt64{Int64: t.now, Valid: true}
	case h.waiting > 0 && h.taken:
		return t.row(t.ctx, qOldestWaits, []any{h.key}, &h.workSince.Int64)
	}
	return nil
}
