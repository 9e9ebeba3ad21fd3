package messages

import (
	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// Purge is what is still to be removed of a thread that no reader sees any more: its rows, but for its messages and what is bounded.
type Purge struct {
	ID   string
	Key  int64
	next int // the first of queries.PurgeSlices that may have rows
}

// Some removes at most Slice rows and some files. It returns what is left, the contents that no file has any more, and whether there may be more
// to remove. After it has removed files it always reports more: the caller must end the transaction then, because one that has locked contents must
// not lock anything else.
func (p Purge) Some(t *txn.Tx) (rest Purge, freed []string, more bool, err error) {
	has, err := p.tables(t)
	if err != nil {
		return p, nil, false, err
	}
	for room := Slice; p.next < len(has); p.next++ {
		if !has[p.next] {
			continue
		}
		slice := queries.PurgeSlices[p.next]
		args := []any{p.Key, p.Key, room}
		if slice.ByID {
			args = []any{p.ID, room}
		}
		n, err := t.Exec(t.Ctx, slice.Query, args...)
		if err != nil {
			return p, nil, false, err
		}
		if room -= n; room <= 0 {
			return p, nil, true, nil
		}
	}
	freed, more, err = files.PurgeSome(t, p.Key)
	return p, freed, more, err
}

// tables reports for each of queries.PurgeSlices whether it has something to remove. Most threads have rows in few of them.
func (p Purge) tables(t *txn.Tx) ([]bool, error) {
	has := make([]bool, len(queries.PurgeSlices))
	args, dst := make([]any, len(has)), make([]any, len(has))
	for i := range has {
		args[i], dst[i] = p.Key, &has[i]
		if queries.PurgeSlices[i].ByID {
			args[i] = p.ID
		}
	}
	return has, t.Row(t.Ctx, queries.HasRows, args, dst...)
}
