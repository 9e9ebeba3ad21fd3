package sqlstore

import (
	"context"
	"errors"
	"slices"

	"github.com/skein-dev/skein/internal/store"
)

// blockSeqs is the number of sequence numbers between two regular rows of message_block. The transaction that takes the
// first number past such a point writes the row, so that other transactions pay nothing. Tests set it lower.
var blockSeqs int64 = 512

// block holds the counts of a thread's messages up to a sequence number.
type block struct {
	at     int64
	counts counts
}

func scanBlock(scan scanner) (*block, error) {
	var b block
	var spoken, silent int64
	var deep string
	if err := scan(&b.at, &spoken, &silent, &deep); err != nil {
		return nil, err
	}
	more, err := parseCounts(deep)
	if err != nil {
		return nil, err
	}
	b.counts = append(counts{{spoken, silent}}, more...)
	return &b, nil
}

func (t *tx) putBlock(key int64, b block) error {
	if b.at == 0 {
		return nil // nothing comes before the first message
	}
	c := b.counts
	if len(c) == 0 {
		c = counts{{}}
	}
	return t.write(t.ctx, qPutBlock, key, b.at, c[0][0], c[0][1], c[1:].String())
}

// writeBlocks writes the rows of message_block that the transaction has passed.
func (t *tx) writeBlocks(h *head) error {
	for _, b := range h.blocks {
		if err := t.putBlock(h.key, b); err != nil {
			return err
		}
	}
	h.blocks = nil
	return nil
}

// recount adds n messages of a kind to all rows from a message on.
func (t *tx) recount(h *head, seq int64, depth int, silent bool, n int64) error {
	h.counts.add(depth, silent, n)
	if err := t.writeBlocks(h); err != nil {
		return err
	}
	if depth == 0 {
		spoken, quiet := n, int64(0)
		if silent {
			spoken, quiet = 0, n
		}
		return t.write(t.ctx, qShiftBlocks, spoken, quiet, h.key, seq)
	}
	blocks, err := list(t.ctx, t, scanBlock, qBlocksFrom, h.key, seq)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		b.counts.add(depth, silent, n)
		if err := t.write(t.ctx, qDeepenBlock, b.counts[1:].String(), h.key, b.at); err != nil {
			return err
		}
	}
	return nil
}

// blockFloor returns the nearest row at or before a sequence number. Before the first row it returns an empty block.
func blockFloor(ctx context.Context, q querier, key, at int64) (*block, error) {
	b, err := scanBlock(q.one(ctx, qBlockFloor, key, at))
	if errors.Is(err, store.ErrNotFound) {
		return &block{}, nil
	}
	return b, err
}

// countTo returns the counts of a thread's messages up to a sequence number that lies among its own rows.
func countTo(ctx context.Context, q querier, key, seq int64) (counts, error) {
	b, err := blockFloor(ctx, q, key, seq)
	if err != nil || b.at == seq {
		return b.countsOrNil(), err
	}
	total := slices.Clone(b.counts)
	err = q.rows(ctx, qCountBetween, []any{key, b.at, seq}, func(scan scanner) error {
		var depth int
		var silent bool
		var n int64
		if err := scan(&depth, &silent, &n); err != nil {
			return err
		}
		total.add(depth, silent, n)
		return nil
	})
	return total, err
}

func (b *block) countsOrNil() counts {
	if b == nil {
		return nil
	}
	return slices.Clone(b.counts)
}

// plus returns the sum of two counts, minus the difference.
func (c counts) plus(d counts) counts  { return c.combine(d, 1) }
func (c counts) minus(d counts) counts { return c.combine(d, -1) }

func (c counts) combine(d counts, sign int64) counts {
	sum := slices.Clone(c)
	for depth, pair := range d {
		sum.add(depth, false, sign*pair[0])
		sum.add(depth, true, sign*pair[1])
	}
	return sum
}

// ofOne returns the counts of a single message.
func ofOne(m *store.Message) counts {
	var c counts
	c.add(m.Depth, m.Silent, 1)
	return c
}
