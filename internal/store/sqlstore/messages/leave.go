package messages

import (
	"encoding/json"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// leave keeps the rows of a thread between after and upto for the forks that read them, if there are any. It moves those rows to a
// remnant, which is a thread row without a writer. left is the key of the remnant; if it is 0, leave makes one and sets left. Rows that no
// fork reads stay where they are, and the caller removes them. Rows after upto must be gone already, or have no reader.
func leave(t *txn.Tx, h *txn.Head, after, upto int64, left *int64) error {
	readers, err := lockedReaders(t, h, after)
	if err != nil || len(readers) == 0 {
		return err
	}
	if err := t.WriteBlocks(h); err != nil {
		return err
	}
	if *left == 0 {
		if *left, err = remnant(t); err != nil {
			return err
		}
	}
	if err := t.Write(t.Ctx, queries.CopyBlocks, *left, h.Key, after, upto); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.MoveMessages, *left, h.Key, after, upto); err != nil {
		return err
	}
	var edge txn.Counts // counts of the thread up to the cut
	for _, s := range readers {
		if s.Lo >= after {
			if err := t.Write(t.Ctx, queries.MoveSegment, *left, s.Thread, s.Lo); err != nil {
				return err
			}
			continue
		}
		if edge == nil {
			if edge, err = countTo(t.Ctx, t, h.Key, after); err != nil {
				return err
			}
			if err := t.PutBlock(*left, txn.Block{At: after, Counts: edge}); err != nil {
				return err
			}
		}
		if err := divide(t, s, after, *left); err != nil {
			return err
		}
	}
	return nil
}

// lockedReaders locks the forks that read rows of a thread after a sequence number, and returns their segments.
func lockedReaders(t *txn.Tx, h *txn.Head, after int64) ([]Segment, error) {
	readers, err := Segments(t.Ctx, t, queries.ReadersOf, h.Key, after)
	if err != nil || len(readers) == 0 {
		return nil, err
	}
	last := int64(0)
	for _, s := range readers { // in the order of their threads
		if s.Thread == last {
			continue
		}
		last = s.Thread
		if _, err := lockSegments(t, s.Thread); err != nil {
			return nil, err
		}
	}
	return Segments(t.Ctx, t, queries.ReadersOf, h.Key, after) // as they are now that no transaction changes them
}

// divide splits a segment at a cut of its source. What comes after the cut is read from the remnant left.
func divide(t *txn.Tx, s Segment, cut, left int64) error {
	before, err := countTo(t.Ctx, t, s.Thread, s.Lo)
	if err != nil {
		return err
	}
	within, err := countsWithin(t.Ctx, t, s, cut)
	if err != nil {
		return err
	}
	if err := t.PutBlock(s.Thread, txn.Block{At: cut, Counts: before.Plus(within)}); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.TrimSegment, cut, s.Thread, cut, cut); err != nil {
		return err
	}
	// When slices move the rows, the segment of the slice before begins where this one ends.
	n, err := t.Exec(t.Ctx, queries.ExtendSegment, cut, s.Thread, s.Hi, left)
	if err != nil || n > 0 {
		return err
	}
	return t.Write(t.Ctx, queries.PutSegment, s.Thread, cut, s.Hi, left)
}

// removeFew removes all messages of a thread after a sequence number in one transaction. kept has the counts of the
// messages up to it. If logs is true, an event in the log records each removal. The events of their creation stay, because the log only grows.
func removeFew(t *txn.Tx, h *txn.Head, cut int64, kept txn.Counts, logs bool) error {
	if err := t.WriteBlocks(h); err != nil {
		return err
	}
	inherited, err := Segments(t.Ctx, t, queries.Segments, h.Key, cut)
	if err != nil {
		return err
	}
	removed := []Segment{{Lo: cut, Hi: h.LastSeq, Source: h.Key}} // the thread's own messages
	for _, s := range inherited {
		if s.Source != h.Key {
			removed = append(removed, Segment{Lo: max(s.Lo, cut), Hi: s.Hi, Source: s.Source})
		}
	}
	for _, s := range removed {
		if !logs { // a purge looks at what its thread has read itself
			break
		}
		if err := logRemoval(t, h, s); err != nil {
			return err
		}
		if s.Source != h.Key {
			t.Freed = append(t.Freed, s.Source)
		}
	}
	var left int64
	if err := leave(t, h, cut, h.LastSeq, &left); err != nil {
		return err
	}
	for _, query := range []string{queries.CutMessages, queries.ForgetAfter, queries.CutBlocks} {
		if err := t.Write(t.Ctx, query, h.Key, cut); err != nil {
			return err
		}
	}
	return trim(t, h, cut, kept)
}

func logRemoval(t *txn.Tx, h *txn.Head, s Segment) error {
	if err := t.Write(t.Ctx, queries.LogRemoved, h.Key, s.Source, s.Lo, s.Hi); err != nil {
		return err
	}
	n, err := t.Exec(t.Ctx, queries.LogDeletions, h.Key, h.LastSeq, t.Now, s.Source, s.Lo, s.Hi)
	h.LastSeq += n
	h.Touch(store.ChangedLog)
	return err
}

// Truncate removes the messages after a message or an index.
func Truncate(t *txn.Tx, h *txn.Head, op *store.Truncate) error {
	if err := h.Whole(); err != nil {
		return err
	}
	if op.ExpectVersion != nil {
		if err := t.ExpectVersion(h, *op.ExpectVersion); err != nil {
			return err
		}
	}
	under, err := runs.HasRunUnderWay(t, h)
	if err != nil {
		return err
	}
	if under {
		return store.ErrRunning
	}
	cut, index := int64(0), op.Index
	var kept txn.Counts
	if op.MessageID != "" || op.Index >= 0 {
		// Set the fields of op only after all checks: a transaction that failed may be run again with the same op.
		if cut, index, err = lockedPoint(t, h, op.MessageID, op.Index); err != nil {
			return err
		}
		if kept, err = viewCount(t.Ctx, t, h.Key, h.Base, cut); err != nil {
			return err
		}
	}
	op.Index, op.Removed = index, h.Counts.Total(true, 0, true)-kept.Total(true, 0, true)
	if err := Remove(t, h, cut, kept, op.Index, true); err != nil {
		return err
	}
	if op.Removed == 0 {
		h.Touch(store.ChangedThread)
		return nil
	}
	data, err := json.Marshal(truncatedEvent{op.Index, op.Removed})
	if err != nil {
		return err
	}
	_, err = t.Log(h, store.Event{Type: store.EventTruncated, Data: data})
	return err
}

// truncatedEvent is the data of EventTruncated.
type truncatedEvent struct {
	Index   int64 `json:"index"`
	Removed int64 `json:"removed"`
}
