package messages

import (
	"context"
	"errors"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Segment says that the messages of a thread after lo, up to and including hi, are rows of the source. A fork has
// segments up to its base, where its own messages begin. They are in order and do not overlap. Messages between two of
// them were removed.
//
// The rows that a segment covers never change. A writer that changes one first copies it for the readers (see release).
// A writer that removes many leaves them to the readers (see leave).
//
// There is a row of message_block at the edge lo of each segment, both of the thread and of the source.
type Segment struct{ Thread, Lo, Hi, Source int64 }

func scanSegment(scan sqldb.Scanner) (*Segment, error) {
	var s Segment
	return &s, scan(&s.Thread, &s.Lo, &s.Hi, &s.Source)
}

// Segments returns the segments that a query selects.
func Segments(ctx context.Context, q sqldb.Querier, query string, args ...any) ([]Segment, error) {
	return sqldb.List(ctx, q, scanSegment, query, args...)
}

// viewCount returns the counts of a thread's messages up to a sequence number, inherited ones included.
func viewCount(ctx context.Context, q sqldb.Querier, key, base, seq int64) (txn.Counts, error) {
	if seq >= base {
		return countTo(ctx, q, key, seq)
	}
	s, err := scanSegment(q.One(ctx, queries.SegmentFloor, key, seq))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // everything before it was removed
	}
	if err != nil {
		return nil, err
	}
	before, err := countTo(ctx, q, key, s.Lo)
	if err != nil {
		return nil, err
	}
	within, err := countsWithin(ctx, q, *s, min(seq, s.Hi))
	if err != nil {
		return nil, err
	}
	return before.Plus(within), nil
}

// countsWithin returns the counts of a segment's messages up to a sequence number in the segment.
func countsWithin(ctx context.Context, q sqldb.Querier, s Segment, seq int64) (txn.Counts, error) {
	from, err := countTo(ctx, q, s.Source, s.Lo)
	if err != nil {
		return nil, err
	}
	to, err := countTo(ctx, q, s.Source, seq)
	if err != nil {
		return nil, err
	}
	return to.Minus(from), nil
}

// copyOut copies a message of a segment to the segment's thread. From then on it is the thread's own message. Both the thread and the
// source must be locked, because the counts of both are read and written.
func copyOut(t *txn.Tx, s Segment, m *store.Message) error {
	if err := cutOut(t, s, m, s.Thread); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.CopyMessage, s.Thread, s.Source, m.Seq)
}

// cutOut divides a segment, so that a message in it is read from another thread.
func cutOut(t *txn.Tx, s Segment, m *store.Message, from int64) error {
	before, err := countTo(t.Ctx, t, s.Thread, s.Lo)
	if err != nil {
		return err
	}
	begin, err := countTo(t.Ctx, t, s.Source, s.Lo)
	if err != nil {
		return err
	}
	end, err := countTo(t.Ctx, t, s.Source, m.Seq)
	if err != nil {
		return err
	}
	upTo := before.Plus(end).Minus(begin)
	if err := t.PutBlock(s.Thread, txn.Block{At: m.Seq - 1, Counts: upTo.Minus(ofOne(m))}); err != nil {
		return err
	}
	if err := t.PutBlock(s.Thread, txn.Block{At: m.Seq, Counts: upTo}); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.DeleteSegment, s.Thread, s.Lo); err != nil {
		return err
	}
	parts := []Segment{{s.Thread, s.Lo, m.Seq - 1, s.Source}, {s.Thread, m.Seq - 1, m.Seq, from}, {s.Thread, m.Seq, s.Hi, s.Source}}
	for _, p := range parts {
		if p.Lo >= p.Hi {
			continue
		}
		if err := t.Write(t.Ctx, queries.PutSegment, p.Thread, p.Lo, p.Hi, p.Source); err != nil {
			return err
		}
	}
	if m.Seq == s.Hi {
		return nil
	}
	return t.PutBlock(s.Source, txn.Block{At: m.Seq, Counts: end})
}

// release makes a message of the thread one that no fork reads, so that it may be changed or removed. copied reports whether forks read it:
// then the first of them has a copy, and the others read that one. Else each of them would add to what is stored.
func release(t *txn.Tx, h *txn.Head, m *store.Message) (copied bool, err error) {
	readers, err := Segments(t.Ctx, t, queries.ReadersAt, h.Key, m.Seq, m.Seq)
	if err != nil || len(readers) == 0 {
		return false, err
	}
	threads := map[int64]bool{} // not remnants, which may be on their way out
	for _, s := range readers {
		if threads[s.Thread], err = lockSegments(t, s.Thread); err != nil {
			return false, err
		}
	}
	readers, err = Segments(t.Ctx, t, queries.ReadersAt, h.Key, m.Seq, m.Seq) // again, since others may have changed them before the locks
	if err != nil || len(readers) == 0 {
		return false, err
	}
	var owner int64
	if i := slices.IndexFunc(readers, func(s Segment) bool { return threads[s.Thread] }); i >= 0 {
		owner = readers[i].Thread
	}
	if err := t.WriteBlocks(h); err != nil {
		return false, err
	}
	for _, s := range readers {
		if owner == 0 || s.Thread == owner {
			err = copyOut(t, s, m)
		} else {
			err = cutOut(t, s, m, owner)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// lockSegments locks a thread whose segments are about to change against other writers. It reports whether there is such a thread: a remnant
// has no writer, and a thread may have been purged since the caller read its segments.
func lockSegments(t *txn.Tx, key int64) (found bool, err error) {
	var id string
	found, err = sqldb.Found(t.Row(t.Ctx, queries.ThreadIDByKey, []any{key}, &id))
	if !found {
		return false, err
	}
	_, err = t.Head(id)
	return sqldb.Found(err)
}

// lockSources locks the threads whose messages a fork has inherited, so that counts of them may be kept: a message that another transaction
// removes would be missing in some and not in others. Where such a thread changes a message that the fork reads at the same time, the two
// wait for each other, and the database ends one of them, which is retried.
func lockSources(t *txn.Tx, h *txn.Head) error {
	if h.Base == 0 {
		return nil
	}
	sources, err := sqldb.Column[string](t.Ctx, t, queries.Sources, h.Key)
	if err != nil {
		return err
	}
	return t.LoadHeads(sources)
}

// find returns a message of the thread that may be changed: it is the thread's own, and no other thread reads it.
func find(t *txn.Tx, h *txn.Head, id string) (*store.Message, error) {
	m, _, err := findToChange(t, h, id)
	return m, err
}

// findToChange is find. It also reports whether it has made a copy of the message for that, because the thread has inherited it or forks read it.
func findToChange(t *txn.Tx, h *txn.Head, id string) (m *store.Message, copied bool, err error) {
	if err := h.Whole(); err != nil {
		return nil, false, err
	}
	m, err = Scan(t.One(t.Ctx, queries.MessageByKey, h.Key, id))
	if err == nil {
		copied, err = release(t, h, m)
		return m, copied, err
	}
	if h.Base == 0 || !errors.Is(err, store.ErrNotFound) {
		return nil, false, err
	}
	if m, err = Scan(t.One(t.Ctx, queries.InheritedByKey, id, h.Key)); err != nil {
		return nil, false, err
	}
	s, err := scanSegment(t.One(t.Ctx, queries.SegmentFloor, h.Key, m.Seq))
	if err != nil {
		return nil, false, err
	}
	if _, err := lockSegments(t, s.Source); err != nil {
		return nil, false, err
	}
	t.Freed = append(t.Freed, s.Source)
	return m, true, copyOut(t, *s, m)
}

// has returns the sequence number of a message of the thread by its id.
func has(t *txn.Tx, h *txn.Head, id string) (seq int64, err error) {
	err = t.Row(t.Ctx, queries.MessageSeq, []any{h.Key, id}, &seq)
	if h.Base == 0 || !errors.Is(err, store.ErrNotFound) {
		return seq, err
	}
	m, err := Scan(t.One(t.Ctx, queries.InheritedByKey, id, h.Key))
	if err != nil {
		return 0, err
	}
	return m.Seq, nil
}
