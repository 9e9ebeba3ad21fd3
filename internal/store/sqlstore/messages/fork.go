package messages

import (
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// A fork locks as many threads as it has sources, and copies as many rows as it has segments. Both grow by one with each fork of a fork, and segments by
// two with each change of an inherited message. Tests set the bounds lower.
var (
	MaxSources  int64 = store.MaxForkSources
	MaxSegments int64 = store.MaxForkSegments
)

// Fork makes a new thread begin with another thread's messages. It copies the rows of the origin's segments and files, with as many statements
// for many as for one, whatever the number of messages.
func Fork(t *txn.Tx, h *txn.Head, op *store.Fork) error {
	if !h.Fresh || h.LastSeq != 0 {
		return errors.New("a Fork must be the first operation of a new thread")
	}
	o, err := t.HeadIn(h.Namespace, op.Origin)
	if err != nil {
		return fmt.Errorf("origin of a fork: %w", err)
	}
	if err := o.Whole(); err != nil {
		return err
	}
	if err := lockSources(t, o); err != nil {
		return err
	}
	at := op.Index
	if total := o.Counts.Total(true, 0, true); op.Newest {
		at = total - 1
	} else if total == 0 { // also while the origin is being purged
		return fmt.Errorf("the origin has no messages: %w", store.ErrForkPoint)
	}
	var cut, index int64
	if op.Seq != 0 {
		cut, index, err = placed(t, o, op.Seq)
	} else {
		cut, index, err = point(t, o, op.MessageID, at)
	}
	if err != nil {
		return err
	}
	counted, err := viewCount(t.Ctx, t, o.Key, o.Base, cut)
	if err != nil {
		return err
	}
	if err := inherit(t, h, o, cut); err != nil {
		return err
	}
	if err := t.PutBlock(h.Key, txn.Block{At: cut, Counts: counted}); err != nil {
		return err
	}
	h.Base, h.LastSeq, h.Counts = cut, cut, counted
	for _, s := range []struct {
		query string
		args  []any
	}{
		{queries.HeadBase, []any{cut, h.Key}}, {queries.Origin, []any{o.ID, index, h.Key}}, {queries.CopyFiles, []any{h.Key, o.Key}},
		{queries.CopyFileUsage, []any{h.Key, o.Key}},
	} {
		if err := t.Write(t.Ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	quotas.Bytes(t, h.Namespace)
	op.Index, op.Messages = index, counted.Total(true, 0, true)
	h.Appended = op.Messages
	return relations.Relate(t, h, o, store.Relationship{Type: store.RelationFork, Role: store.RelationChild, MessageIndex: index}, cut)
}

// inherit copies the segments of the origin up to a sequence number to the fork, and adds one for the origin's own
// messages. The origin and the threads that its segments read must be locked. It fails with store.ErrForkSources when there are too many of
// either.
func inherit(t *txn.Tx, h, o *txn.Head, cut int64) error {
	var segments, sources int64
	if o.Base > 0 {
		if err := t.Row(t.Ctx, queries.CountSegments, []any{o.Key, cut}, &segments, &sources); err != nil {
			return err
		}
	}
	own := cut > o.Base
	if own {
		segments, sources = segments+1, sources+1 // as large as it can get
	}
	if segments > MaxSegments || sources > MaxSources {
		return fmt.Errorf("%d parts of the messages of %d threads: %w", segments, sources, store.ErrForkSources)
	}
	if o.Base > 0 {
		if err := t.Write(t.Ctx, queries.CopySegments, h.Key, cut, cut, o.Key, cut); err != nil {
			return err
		}
	}
	if own {
		if err := t.Write(t.Ctx, queries.PutSegment, h.Key, o.Base, cut, o.Key); err != nil {
			return err
		}
	}
	if o.Base == 0 {
		return nil
	}
	return t.Write(t.Ctx, queries.CopyBlocks, h.Key, o.Key, 0, min(o.Base, cut-1))
}

// placed finds a message by its sequence number, and returns that and its index.
func placed(t *txn.Tx, h *txn.Head, seq int64) (same, at int64, err error) {
	p := pager{Querier: t, ctx: t.Ctx, q: everything, key: h.Key, base: h.Base, lastSeq: h.LastSeq}
	found, err := p.Read(place{seq: seq - 1}, 1)
	if err != nil {
		return 0, 0, err
	}
	if len(found) != 1 || found[0].Seq != seq {
		return 0, 0, fmt.Errorf("message with the sequence number %d: %w", seq, store.ErrForkPoint)
	}
	c, err := viewCount(t.Ctx, t, h.Key, h.Base, seq)
	return seq, c.Total(true, 0, true) - 1, err
}

// SeqAt returns the sequence number of the message of a thread with an index. It fails with store.ErrForkPoint when there is none.
func SeqAt(t *txn.Tx, h *txn.Head, index int64) (int64, error) {
	seq, _, err := lockedPoint(t, h, "", index)
	return seq, err
}

// lockedPoint is point. Where the message is inherited, counts of other threads' messages are needed, and it locks these threads.
func lockedPoint(t *txn.Tx, h *txn.Head, id string, index int64) (seq, at int64, err error) {
	if seq, at, err = point(t, h, id, index); err != nil || seq >= h.Base {
		return seq, at, err
	}
	if err := lockSources(t, h); err != nil {
		return 0, 0, err
	}
	return point(t, h, id, index)
}

// point finds a message by its id, or else by its index, and returns its sequence number and index.
func point(t *txn.Tx, h *txn.Head, id string, index int64) (seq, at int64, err error) {
	total := h.Counts.Total(true, 0, true)
	if id != "" {
		if seq, err = has(t, h, id); err != nil {
			if errors.Is(err, store.ErrNotFound) {
				err = fmt.Errorf("message %q: %w", id, store.ErrForkPoint)
			}
			return 0, 0, err
		}
		c, err := viewCount(t.Ctx, t, h.Key, h.Base, seq)
		return seq, c.Total(true, 0, true) - 1, err
	}
	if index < 0 || index >= total {
		return 0, 0, fmt.Errorf("message %d of %d: %w", index, total, store.ErrForkPoint)
	}
	p := pager{Querier: t, ctx: t.Ctx, q: everything, key: h.Key, base: h.Base, lastSeq: h.LastSeq}
	found, err := p.span(index, index+1, total)
	if err != nil {
		return 0, 0, err
	}
	if len(found) != 1 {
		return 0, 0, fmt.Errorf("thread %s: its message %d of %d cannot be found", h.ID, index, total)
	}
	return found[0].Seq, index, nil
}
