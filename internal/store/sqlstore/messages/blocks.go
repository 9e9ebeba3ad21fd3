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

func scanBlock(scan sqldb.Scanner) (*txn.Block, error) {
	var b txn.Block
	var spoken, silent int64
	var deep string
	if err := scan(&b.At, &spoken, &silent, &deep); err != nil {
		return nil, err
	}
	more, err := txn.ParseCounts(deep)
	if err != nil {
		return nil, err
	}
	b.Counts = append(txn.Counts{{spoken, silent}}, more...)
	return &b, nil
}

// recount adds n to the counts of messages of a depth that are silent or not. It changes the counts of the head and those of all
// blocks at or after seq.
func recount(t *txn.Tx, h *txn.Head, seq int64, depth int, silent bool, n int64) error {
	h.Counts.Add(depth, silent, n)
	if err := t.WriteBlocks(h); err != nil {
		return err
	}
	if depth == 0 {
		spoken, quiet := n, int64(0)
		if silent {
			spoken, quiet = 0, n
		}
		return t.Write(t.Ctx, queries.ShiftBlocks, spoken, quiet, h.Key, seq)
	}
	blocks, err := sqldb.List(t.Ctx, t, scanBlock, queries.BlocksFrom, h.Key, seq)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		b.Counts.Add(depth, silent, n)
		if err := t.Write(t.Ctx, queries.DeepenBlock, b.Counts[1:].String(), h.Key, b.At); err != nil {
			return err
		}
	}
	return nil
}

// blockFloor returns the nearest row at or before a sequence number. Before the first row it returns an empty block.
func blockFloor(ctx context.Context, q sqldb.Querier, key, at int64) (*txn.Block, error) {
	b, err := scanBlock(q.One(ctx, queries.BlockFloor, key, at))
	if errors.Is(err, store.ErrNotFound) {
		return &txn.Block{}, nil
	}
	return b, err
}

// countTo returns the counts of a thread's messages up to a sequence number that lies among its own rows.
func countTo(ctx context.Context, q sqldb.Querier, key, seq int64) (txn.Counts, error) {
	b, err := blockFloor(ctx, q, key, seq)
	if err != nil || b.At == seq {
		return b.CountsOrNil(), err
	}
	total := slices.Clone(b.Counts)
	err = q.Rows(ctx, queries.CountBetween, []any{key, b.At, seq}, func(scan sqldb.Scanner) error {
		var depth int
		var silent bool
		var n int64
		if err := scan(&depth, &silent, &n); err != nil {
			return err
		}
		total.Add(depth, silent, n)
		return nil
	})
	return total, err
}

// ofOne returns the counts of a single message.
func ofOne(m *store.Message) txn.Counts {
	var c txn.Counts
	c.Add(m.Depth, m.Silent, 1)
	return c
}
