package sqlstore

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
)

// leave hands the messages of a thread after a sequence number over to the forks that read them, if there are any. They
// move to a remnant: a thread row that nobody writes to. The other messages stay where they are, for the caller to
// remove.
func (t *tx) leave(h *head, after int64) error {
	readers, err := segments(t.ctx, t, qReadersOf, h.key, after)
	if err != nil || len(readers) == 0 {
		return err
	}
	if err := t.writeBlocks(h); err != nil {
		return err
	}
	var left int64
	if err := t.row(t.ctx, qInsertLeft, []any{"left:" + uuid.NewString(), t.now}, &left); err != nil {
		return err
	}
	if err := t.write(t.ctx, qCopyBlocks, left, h.key, after, h.lastSeq); err != nil {
		return err
	}
	if err := t.write(t.ctx, qMoveMessages, left, h.key, after); err != nil {
		return err
	}
	var edge counts // counts of the thread up to the cut
	for _, s := range readers {
		if err := t.hold(s.thread); err != nil {
			return err
		}
		if s.lo >= after {
			if err := t.write(t.ctx, qMoveSegment, left, s.thread, s.lo); err != nil {
				return err
			}
			continue
		}
		if edge == nil {
			if edge, err = countTo(t.ctx, t, h.key, after); err != nil {
				return err
			}
			if err := t.putBlock(left, block{after, edge}); err != nil {
				return err
			}
		}
		if err := t.divide(s, after, left); err != nil {
			return err
		}
	}
	return nil
}

// divide splits a segment at a cut of its source. What comes after the cut is read from the remnant left.
func (t *tx) divide(s segment, cut, left int64) error {
	before, err := countTo(t.ctx, t, s.thread, s.lo)
	if err != nil {
		return err
	}
	within, err := within(t.ctx, t, s, cut)
	if err != nil {
		return err
	}
	if err := t.putBlock(s.thread, block{cut, before.plus(within)}); err != nil {
		return err
	}
	if err := t.write(t.ctx, qTrimSegment, cut, s.thread, cut, cut); err != nil {
		return err
	}
	return t.write(t.ctx, qPutSegment, s.thread, cut, s.hi, left)
}

// cutMessages removes all messages of a thread after a sequence number. kept is the counts up to it. The log, which
// only grows, keeps their creation and gets their deletion.
func (t *tx) cutMessages(h *head, cut int64, kept counts) error {
	if err := t.writeBlocks(h); err != nil {
		return err
	}
	inherited, err := segments(t.ctx, t, qSegments, h.key, cut)
	if err != nil {
		return err
	}
	removed := []segment{{lo: cut, hi: h.lastSeq, source: h.key}} // the thread's own messages
	for _, s := range inherited {
		if s.source != h.key {
			removed = append(removed, segment{lo: max(s.lo, cut), hi: s.hi, source: s.source})
		}
	}
	for _, s := range removed {
		if err := t.logRemoval(h, s); err != nil {
			return err
		}
	}
	if err := t.leave(h, cut); err != nil {
		return err
	}
	for _, s := range []struct {
		query string
		args  []any
	}{
		{qCutMessages, []any{h.key, cut}}, {qForgetAfter, []any{h.key, cut}}, {qTrimSegment, []any{cut, h.key, cut, cut}}, {qCutSegments, []any{h.key, cut}}, {qCutBlocks, []any{h.key, cut}},
	} {
		if err := t.write(t.ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	if err := t.putBlock(h.key, block{cut, kept}); err != nil {
		return err
	}
	h.counts = kept
	h.touch(store.ChangedThread)
	if cut >= h.base {
		return nil
	}
	h.base = cut
	return t.write(t.ctx, qHeadBase, cut, h.key)
}

func (t *tx) logRemoval(h *head, s segment) error {
	if err := t.write(t.ctx, qLogRemoved, h.key, s.source, s.lo, s.hi); err != nil {
		return err
	}
	n, err := t.exec(t.ctx, qLogDeletions, h.key, h.lastSeq, t.now, s.source, s.lo, s.hi)
	h.lastSeq += n
	h.touch(store.ChangedLog)
	return err
}

// collectLeft removes remnants of threads that no fork reads any more.
func collectLeft(ctx context.Context, s *db) error {
	unread, err := readColumn[int64](ctx, s.readers, qUnread)
	if err != nil {
		return err
	}
	for _, key := range unread {
		for n := int64(purgeStep); n == purgeStep; {
			if err := s.writer.do(ctx, func(t *tx) (err error) {
				n, err = t.exec(t.ctx, qPurgeMessages, key, key, purgeStep)
				return err
			}); err != nil {
				return err
			}
		}
		if err := s.writer.do(ctx, func(t *tx) error {
			_, err := t.exec(t.ctx, qDeleteThread, key)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) truncate(h *head, op *store.Truncate) error {
	if op.ExpectVersion != nil {
		if err := t.expectVersion(h, *op.ExpectVersion); err != nil {
			return err
		}
	}
	under, err := t.underWay(h)
	if err != nil {
		return err
	}
	if under {
		return store.ErrRunning
	}
	cut, index := int64(0), op.Index
	var kept counts
	if op.MessageID != "" || op.Index >= 0 {
		// Set the fields of op only after all checks: a transaction that failed may be run again with the same op.
		if cut, index, err = t.point(h, op.MessageID, op.Index); err != nil {
			return err
		}
		if kept, err = viewCount(t.ctx, t, h.key, h.base, cut); err != nil {
			return err
		}
	}
	op.Index, op.Removed = index, h.counts.total(true, 0, true)-kept.total(true, 0, true)
	if err := t.cutRelationships(h, op.Index); err != nil {
		return err
	}
	if op.Removed == 0 {
		h.touch(store.ChangedThread)
		return nil
	}
	if err := t.cutMessages(h, cut, kept); err != nil {
		return err
	}
	data, err := json.Marshal(truncatedEvent{op.Index, op.Removed})
	if err != nil {
		return err
	}
	_, err = t.log(h, store.Event{Type: store.EventTruncated, Data: data})
	return err
}

// truncatedEvent is the data of EventTruncated.
type truncatedEvent struct {
	Index   int64 `json:"index"`
	Removed int64 `json:"removed"`
}
