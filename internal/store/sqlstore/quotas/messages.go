package quotas

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// partsAtOnce is how many parts of conversations one transaction counts, so that it ends soon.
const partsAtOnce = 32

// countOldMessages counts the bytes of messages that were written before the database began to count them. It goes on where an earlier
// call was cut off. Several may do this at once.
func (s Store) countOldMessages(ctx context.Context) error {
	for more := true; more; {
		if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
			more, err = countSome(t)
			return err
		}); err != nil {
			return fmt.Errorf("count the bytes of earlier messages: %w", err)
		}
	}
	return nil
}

// countSome counts the next parts. It reports whether there are more.
func countSome(t *txn.Tx) (more bool, err error) {
	var thread, seq, through int64
	err = t.Row(t.Ctx, queries.MessageFill, nil, &thread, &seq, &through)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil // all are counted
	}
	if err != nil {
		return false, err
	}
	for range partsAtOnce {
		err := t.Row(t.Ctx, queries.PartToCount, []any{thread, seq, through, thread, seq / queries.PartSeqs, through}, &thread, &seq)
		if errors.Is(err, store.ErrNotFound) {
			return false, t.Write(t.Ctx, queries.EndMessageFill)
		}
		if err != nil {
			return false, err
		}
		part := seq / queries.PartSeqs
		end := (part + 1) * queries.PartSeqs
		if err := t.Write(t.Ctx, queries.CountMessages, part, part*queries.PartSeqs, end, part, thread); err != nil {
			return false, err
		}
		if err := t.Write(t.Ctx, queries.DropLostUses, thread); err != nil {
			return false, err
		}
		seq = end - 1
	}
	return true, t.Write(t.Ctx, queries.SetMessageFill, thread, seq)
}

// rowsAtOnce is how many rows of message_usage one transaction moves to another namespace.
const rowsAtOnce = 1000

// countRestored counts the messages of restores that a replica of an earlier release has finished. Such a replica makes the threads visible,
// and leaves their bytes with the placeholder of the restore.
func (s Store) countRestored(ctx context.Context) error {
	staged, err := sqldb.ReadColumn[string](ctx, s.DB.Readers, queries.StagedUses)
	if err != nil {
		return fmt.Errorf("look for the bytes of restored messages: %w", err)
	}
	for _, name := range staged {
		namespace := name[strings.LastIndexByte(name, '/')+1:]
		for n := int64(rowsAtOnce); n == rowsAtOnce; {
			if err := s.DB.Writer.Do(ctx, func(t *txn.Tx) (err error) {
				n, err = t.Exec(t.Ctx, queries.ShowUses, namespace, name, rowsAtOnce)
				return err
			}); err != nil {
				return fmt.Errorf("count the bytes of restored messages: %w", err)
			}
		}
	}
	return nil
}
