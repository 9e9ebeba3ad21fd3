package sqlstore

import (
	"context"
	"errors"

	"github.com/skein-dev/skein/internal/store"
)

// segment says that the messages of a thread from above lo up to hi are rows of the source. A fork has segments up
// to its base, where its own messages begin; they are in order and do not overlap. What lies between two of them
// was removed. The rows that a segment covers never change: who wants to change one gives each of its readers a
// copy first (see release), and who removes many leaves them to the readers (see leave).
//
// There is a row of message_block at the edge lo of each segment, both of the thread and of the source.
type segment struct{ thread, lo, hi, source int64 }

func scanSegment(scan scanner) (s segment, err error) {
	err = scan(&s.thread, &s.lo, &s.hi, &s.source)
	return s, err
}

func segments(ctx context.Context, q querier, query string, args ...any) (all []segment, err error) {
	err = q.rows(ctx, query, args, func(scan scanner) error {
		s, err := scanSegment(scan)
		all = append(all, s)
		return err
	})
	return all, err
}

// viewCount gives how many messages a thread has up to a sequence number, its inherited ones included.
func viewCount(ctx context.Context, q querier, key, base, seq int64) (counts, error) {
	if seq >= base {
		return countTo(ctx, q, key, seq)
	}
	s, err := scanSegment(q.one(ctx, qSegmentFloor, key, seq))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // all before it was removed
	}
	if err != nil {
		return nil, err
	}
	before, err := countTo(ctx, q, key, s.lo)
	if err != nil {
		return nil, err
	}
	within, err := within(ctx, q, s, min(seq, s.hi))
	if err != nil {
		return nil, err
	}
	return before.plus(within), nil
}

// within gives how many messages a segment has up to a sequence number of it.
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

// copyOut gives the thread of a segment a copy of one of its messages, which is the thread's own from now on.
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

// release gives all forks that read a message of the thread a copy, so that it may be changed.
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

// hold keeps other writers away from a thread whose segments are about to change.
func (t *tx) hold(key int64) error {
	var id string
	if err := t.row(t.ctx, qThreadIDByKey, []any{key}, &id); err != nil {
		return err
	}
	_, err := t.head(id)
	if errors.Is(err, store.ErrNotFound) {
		return nil // what is left of a thread is nobody's
	}
	return err
}

// find gives a message of the thread that may then be changed: it is the thread's own, and nobody else reads it.
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
	return m, t.copyOut(s, m)
}

// has tells the sequence number of a message of the thread by its id.
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
