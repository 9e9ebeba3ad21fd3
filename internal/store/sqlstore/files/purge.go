package files

import (
	"slices"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// PurgeSome removes some files of a thread that is being purged. It returns the objects that nothing refers to any more,
// and whether it has removed files, so that there may be more. It asks as few questions for many files as for one.
func PurgeSome(t *txn.Tx, key int64) (freed []string, more bool, err error) {
	digests, err := sqldb.Column[string](t.Ctx, t, queries.PurgeFiles, key, key, queries.ContentsAtOnce)
	if err != nil {
		return nil, false, err
	}
	more = len(digests) > 0
	slices.Sort(digests)
	digests = slices.DeleteFunc(slices.Compact(digests), func(d string) bool { return d == "" })
	if len(digests) == 0 {
		return nil, more, nil
	}
	args := make([]any, queries.ContentsAtOnce)
	for i := range args {
		args[i] = digests[min(i, len(digests)-1)]
	}
	// A transaction that comes to refer to one of them holds its row, or finds it gone: see ReferToContents.
	if _, err := t.Exec(t.Ctx, queries.UseSomeContents, append([]any{t.Now}, args...)...); err != nil {
		return nil, false, err
	}
	freed, err = sqldb.Column[string](t.Ctx, t, queries.FreeSomeContents, args...)
	return freed, more, err
}
