package txn

import (
	"slices"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
)

// BlockSeqs is the number of sequence numbers between two regular rows of message_block. The transaction that takes the
// first number past such a point writes the row, so that other transactions pay nothing. Tests set it lower.
var BlockSeqs int64 = 512

// Block holds the counts of a thread's messages up to a sequence number.
type Block struct {
	At     int64
	Counts Counts
}

// PutBlock writes a row of message_block.
func (t *Tx) PutBlock(key int64, b Block) error {
	if b.At == 0 {
		return nil // nothing comes before the first message
	}
	c := b.Counts
	if len(c) == 0 {
		c = Counts{{}}
	}
	return t.Write(t.Ctx, queries.PutBlock, key, b.At, c[0][0], c[0][1], c[1:].String())
}

// WriteBlocks writes the rows of message_block that the transaction has passed.
func (t *Tx) WriteBlocks(h *Head) error {
	for _, b := range h.blocks {
		if err := t.PutBlock(h.Key, b); err != nil {
			return err
		}
	}
	h.blocks = nil
	return nil
}

// CountsOrNil returns a copy of the counts; nil when b is nil.
func (b *Block) CountsOrNil() Counts {
	if b == nil {
		return nil
	}
	return slices.Clone(b.Counts)
}
