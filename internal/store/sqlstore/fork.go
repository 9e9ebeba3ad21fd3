package sqlstore

import (
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// fork makes a new thread begin with another thread's messages. It writes one row for each segment of the origin, and
// the rows of files, whatever the number of messages.
func (t *tx) fork(h *head, op *store.Fork) error {
	if !h.fresh || h.lastSeq != 0 {
		return errors.New("a Fork must be the first operation of a new thread")
	}
	o, err := t.head(op.Origin)
	if err != nil {
		return fmt.Errorf("origin of a fork: %w", err)
	}
	cut, index, err := t.point(o, op.MessageID, op.Index)
	if err != nil {
		return err
	}
	counted, err := viewCount(t.ctx, t, o.key, o.base, cut)
	if err != nil {
		return err
	}
	if err := t.inherit(h, o, cut); err != nil {
		return err
	}
	if err := t.putBlock(h.key, block{cut, counted}); err != nil {
		return err
	}
	h.base, h.lastSeq, h.counts = cut, cut, counted
	for _, s := range []struct {
		query string
		args  []any
	}{
		{qHeadBase, []any{cut, h.key}}, {qOrigin, []any{o.id, index, h.key}}, {qCopyFiles, []any{h.key, o.key}},
		{qCopyFileUsage, []any{h.key, o.key}},
	} {
		if err := t.write(t.ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	op.Index, op.Messages = index, counted.total(true, 0, true)
	h.appended = op.Messages
	return t.relate(h, o, store.Relationship{Type: store.RelationFork, Role: store.RelationChild, MessageIndex: index})
}

// inherit copies the segments of the origin up to a sequence number to the fork, and adds one for the origin's own
// messages.
func (t *tx) inherit(h, o *head, cut int64) error {
	all, err := segments(t.ctx, t, qSegments, o.key, 0)
	if err != nil {
		return err
	}
	if cut > o.base {
		all = append(all, segment{lo: o.base, hi: cut, source: o.key})
	}
	for _, s := range all {
		if s.lo >= cut {
			break
		}
		if err := t.hold(s.source); err != nil {
			return err
		}
		if err := t.write(t.ctx, qPutSegment, h.key, s.lo, min(s.hi, cut), s.source); err != nil {
			return err
		}
	}
	if o.base == 0 {
		return nil
	}
	return t.write(t.ctx, qCopyBlocks, h.key, o.key, 0, min(o.base, cut-1))
}

// point finds a message by its id, or else by its index, and returns its sequence number and index.
func (t *tx) point(h *head, id string, index int64) (seq, at int64, err error) {
	total := h.counts.total(true, 0, true)
	if id != "" {
		if seq, err = t.has(h, id); err != nil {
			if errors.Is(err, store.ErrNotFound) {
				err = fmt.Errorf("message %q: %w", id, store.ErrForkPoint)
			}
			return 0, 0, err
		}
		c, err := viewCount(t.ctx, t, h.key, h.base, seq)
		return seq, c.total(true, 0, true) - 1, err
	}
	if index < 0 || index >= total {
		return 0, 0, fmt.Errorf("message %d of %d: %w", index, total, store.ErrForkPoint)
	}
	p := pager{querier: t, ctx: t.ctx, q: everything, key: h.key, base: h.base, lastSeq: h.lastSeq}
	found, err := p.span(index, index+1, total)
	if err != nil {
		return 0, 0, err
	}
	if len(found) != 1 {
		return 0, 0, fmt.Errorf("thread %s: its message %d of %d cannot be found", h.id, index, total)
	}
	return found[0].Seq, index, nil
}
