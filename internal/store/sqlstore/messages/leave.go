package messages

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Leave hands the messages of a thread after a sequence number over to the forks that read them, if there are any. They
// move to a remnant: a thread row that nobody writes to. The other messages stay where they are, for the caller to
// remove.
func Leave(t *txn.Tx, h *txn.Head, after int64) error {
	readers, err := Segments(t.Ctx, t, queries.ReadersOf, h.Key, after)
	if err != nil || len(readers) == 0 {
		return err
	}
	if err := t.WriteBlocks(h); err != nil {
		return err
	}
	var left int64
	if err := t.Row(t.Ctx, queries.InsertLeft, []any{"left:" + uuid.NewString(), t.Now}, &left); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.CopyBlocks, left, h.Key, after, h.LastSeq); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.MoveMessages, left, h.Key, after); err != nil {
		return err
	}
	var edge txn.Counts // counts of the thread up to the cut
	for _, s := range readers {
		if err := hold(t, s.Thread); err != nil {
			return err
		}
		if s.Lo >= after {
			if err := t.Write(t.Ctx, queries.MoveSegment, left, s.Thread, s.Lo); err != nil {
				return err
			}
			continue
		}
		if edge == nil {
			if edge, err = countTo(t.Ctx, t, h.Key, after); err != nil {
				return err
			}
			if err := t.PutBlock(left, txn.Block{At: after, Counts: edge}); err != nil {
				return err
			}
		}
		if err := divide(t, s, after, left); err != nil {
			return err
		}
	}
	return nil
}

// divide splits a segment at a cut of its source. What comes after the cut is read from the remnant left.
func divide(t *txn.Tx, s Segment, cut, left int64) error {
	before, err := countTo(t.Ctx, t, s.Thread, s.Lo)
	if err != nil {
		return err
	}
	within, err := within(t.Ctx, t, s, cut)
	if err != nil {
		return err
	}
	if err := t.PutBlock(s.Thread, txn.Block{At: cut, Counts: before.Plus(within)}); err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.TrimSegment, cut, s.Thread, cut, cut); err != nil {
		return err
	}
	return t.Write(t.Ctx, queries.PutSegment, s.Thread, cut, s.Hi, left)
}

// Cut removes all messages of a thread after a sequence number. kept is the counts up to it. The log, which
// only grows, keeps their creation and gets their deletion.
func Cut(t *txn.Tx, h *txn.Head, cut int64, kept txn.Counts) error {
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
		if err := logRemoval(t, h, s); err != nil {
			return err
		}
	}
	if err := Leave(t, h, cut); err != nil {
		return err
	}
	for _, s := range []struct {
		query string
		args  []any
	}{
		{queries.CutMessages, []any{h.Key, cut}}, {queries.ForgetAfter, []any{h.Key, cut}}, {queries.TrimSegment, []any{cut, h.Key, cut, cut}}, {queries.CutSegments, []any{h.Key, cut}}, {queries.CutBlocks, []any{h.Key, cut}},
	} {
		if err := t.Write(t.Ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	if err := t.PutBlock(h.Key, txn.Block{At: cut, Counts: kept}); err != nil {
		return err
	}
	h.Counts = kept
	h.Touch(store.ChangedThread)
	if cut >= h.Base {
		return nil
	}
	h.Base = cut
	return t.Write(t.Ctx, queries.HeadBase, cut, h.Key)
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

// CollectLeft removes remnants of threads that no fork reads any more.
func CollectLeft(ctx context.Context, db *txn.DB) error {
	unread, err := sqldb.ReadColumn[int64](ctx, db.Readers, queries.Unread)
	if err != nil {
		return err
	}
	for _, key := range unread {
		for n := int64(PurgeStep); n == PurgeStep; {
			if err := db.Writer.Do(ctx, func(t *txn.Tx) (err error) {
				n, err = t.Exec(t.Ctx, queries.PurgeMessages, key, key, PurgeStep)
				return err
			}); err != nil {
				return err
			}
		}
		if err := db.Writer.Do(ctx, func(t *txn.Tx) error {
			_, err := t.Exec(t.Ctx, queries.DeleteThread, key)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// Truncate removes the messages after a message or an index.
func Truncate(t *txn.Tx, h *txn.Head, op *store.Truncate) error {
	if op.ExpectVersion != nil {
		if err := t.ExpectVersion(h, *op.ExpectVersion); err != nil {
			return err
		}
	}
	under, err := runs.UnderWay(t, h)
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
		if cut, index, err = point(t, h, op.MessageID, op.Index); err != nil {
			return err
		}
		if kept, err = viewCount(t.Ctx, t, h.Key, h.Base, cut); err != nil {
			return err
		}
	}
	op.Index, op.Removed = index, h.Counts.Total(true, 0, true)-kept.Total(true, 0, true)
	if err := relations.Cut(t, h, op.Index); err != nil {
		return err
	}
	if op.Removed == 0 {
		h.Touch(store.ChangedThread)
		return nil
	}
	if err := Cut(t, h, cut, kept); err != nil {
		return err
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

// PurgeStep is how many rows of a kind one transaction of a purge removes, so that other writers need not wait long.
const PurgeStep = 1000
