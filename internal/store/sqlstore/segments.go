package sqlstore

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// segment says that the messages of a thread after lo, up to and including hi, are rows of the source. A fork has
// segments up to its base, where its own messages begin. They are in order and do not overlap. Messages between two of
// them were removed.
//
// The rows that a segment covers never change. A writer that changes one first copies it for each reader (see release).
// A writer that removes many leaves them to the readers (see leave).
//
// There is a row of message_block at the edge lo of each segment, both of the thread and of the source.
type segment struct{ thread, lo, hi, source int64 }

func scanSegment(scan scanner) (*segment, error) {
	var s segment
	return &s, scan(&s.thread, &s.lo, &s.hi, &s.source)
}

func segments(ctx context.Context, q querier, query string, args ...any) ([]segment, error) {
	return list(ctx, q, scanSegment, query, args...)
}

// viewCount returns the counts of a thread's messages up to a sequence number, inherited ones included.
func viewCount(ctx context.Context, q querier, key, base, seq int64) (counts, error) {
	if seq >= base {
		return countTo(ctx, q, key, seq)
	}
	s, err := scanSegment(q.one(ctx, qSegmentFloor, key, seq))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // everything before it was removed
	}
	if err != nil {
		return nil, err
	}
	before, err := countTo(ctx, q, key, s.lo)
	if err != nil {
		return nil, err
	}
	within, err := within(ctx, q, *s, min(seq, s.hi))
	if err != nil {
		return nil, err
	}
	return before.plus(within), nil
}

// within returns the counts of a segment's messages up to a sequence number in the segment.
func within(ctx context.Context, q querier, s segment, seq int64) (counts, error) {
	from, err := countTo(ctx, q, s.source, s.lo)
	if err != nil {
		return nil, err
	}
	to, err := countTo(ctx, q, s.source, seq)
	if err != nil {
		return nil, err
	}
	return to.minus(from), nil
}

// copyOut copies a message of a segment to the segment's thread. From then on it is the thread's own message.
func (t *tx) copyOut(s segment, m *store.Message) error {
	before, err := countTo(t.ctx, t, s.thread, s.lo)
	if err != nil {
		return err
	}
	from, err := countTo(t.ctx, t, s.source, s.lo)
	if err != nil {
		return err
	}
	to, err := countTo(t.ctx, t, s.source, m.Seq)
	if err != nil {
		return err
	}
	upTo := before.plus(to).minus(from)
	if err := t.putBlock(s.thread, block{m.Seq - 1, upTo.minus(ofOne(m))}); err != nil {
		return err
	}
	if err := t.putBlock(s.thread, block{m.Seq, upTo}); err != nil {
		return err
	}
	if err := t.write(t.ctx, qDeleteSegment, s.thread, s.lo); err != nil {
		return err
	}
	parts := []segment{{s.thread, s.lo, m.Seq - 1, s.source}, {s.thread, m.Seq - 1, m.Seq, s.thread}, {s.thread, m.Seq, s.hi, s.source}}
	for _, p := range parts {
		if p.lo >= p.hi {
			continue
		}
		if err := t.write(t.ctx, qPutSegment, p.thread, p.lo, p.hi, p.source); err != nil {
			return err
		}
	}
	if m.Seq < s.hi {
		if err := t.putBlock(s.source, block{m.Seq, to}); err != nil {
			return err
		}
	}
	return t.write(t.ctx, qCopyMessage, s.thread, s.source, m.Seq)
}

// release copies a message to all forks that read it from the thread, so that the message may be changed.
func (t *tx) release(h *head, m *store.Message) error {
	readers, err := segments(t.ctx, t, qReadersAt, h.key, m.Seq, m.Seq)
	if err != nil || len(readers) == 0 {
		return err
	}
	if err := t.writeBlocks(h); err != nil {
		return err
	}
	for _, s := range readers {
		if err := t.hold(s.thread); err != nil {
			return err
		}
		if err := t.copyOut(s, m); err != nil {
			return err
		}
	}
	return nil
}

// hold locks a thread whose segments are about to change against other writers.
func (t *tx) hold(key int64) error {
	var id string
	if err := t.row(t.ctx, qThreadIDByKey, []any{key}, &id); err != nil {
		return err
	}
	_, err := t.head(id)
	if errors.Is(err, store.ErrNotFound) {
		return nil // nobody writes to the remnant of a thread
	}
	return err
}

// find returns a message of the thread that may be changed: it is the thread's own, and no other thread reads it.
func (t *tx) find(h *head, id string) (*store.Message, error) {
	m, err := scanMessage(t.one(t.ctx, qMessageByKey, h.key, id))
	if err == nil {
		return m, t.release(h, m)
	}
	if h.base == 0 || !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if m, err = scanMessage(t.one(t.ctx, qInheritedByKey, id, h.key)); err != nil {
		return nil, err
	}
	s, err := scanSegment(t.one(t.ctx, qSegmentFloor, h.key, m.Seq))
	if err != nil {
		return nil, err
	}
	return m, t.copyOut(*s, m)
}

// has returns the sequence number of a message of the thread by its id.
func (t *tx) has(h *head, id string) (seq int64, err error) {
	err = t.row(t.ctx, qMessageSeq, []any{h.key, id}, &seq)
	if h.base == 0 || !errors.Is(err, store.ErrNotFound) {
		return seq, err
	}
	m, err := scanMessage(t.one(t.ctx, qInheritedByKey, id, h.key))
	if err != nil {
		return 0, err
	}
	return m.Seq, nil
}
