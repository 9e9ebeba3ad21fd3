package txn

import (
	"context"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// ending is what a transaction does last, with the row of a namespace locked.
type ending struct {
	namespace string
	once      string
	do        func() error
}

// AtEnd adds what the transaction does last: do is called after everything else is written, while no other transaction calls such a
// function for the namespace. When it fails, so does the transaction. Of those of a namespace with the same once, do is called for one only;
// "" stands for no such name. The transactions of other callers may share the commit, and do sees what they have written.
//
// This gives the locks of PostgreSQL one order: first the heads of threads and the rows that belong to them, then the rows of
// namespaces, by their names. A transaction that has locked a namespace waits for no head, so it cannot wait for one that waits for it.
func (t *Tx) AtEnd(namespace, once string, do func() error) {
	t.endings = append(t.endings, ending{namespace, once, do})
}

// end does what transactions do last.
func end(ctx context.Context, s session, d *sqldb.Dialect, endings []ending) error {
	slices.SortStableFunc(endings, func(a, b ending) int { return strings.Compare(a.namespace, b.namespace) })
	done := map[string]bool{} // of the present namespace
	for i, e := range endings {
		if i == 0 || e.namespace != endings[i-1].namespace {
			clear(done)
			if d.Lock != "" { // there are other writers
				if err := s.Write(ctx, queries.LockQuota, e.namespace); err != nil {
					return err
				}
			}
		}
		if e.once != "" && done[e.once] {
			continue
		}
		done[e.once] = true
		if err := recovered(e.do); err != nil {
			return err
		}
	}
	return nil
}

// end does what the transactions of a batch do last. refused reports that this made the only transaction of the batch fail, and that it was
// rolled back.
func (p *pipeline) end(ctx context.Context, ps *pipe, jobs []*job, endings []ending) (refused bool, err error) {
	ps.reset()
	err = end(ctx, ps, p.dialect, endings)
	if err == nil {
		err = ps.flush(ctx)
	}
	switch {
	case err == nil:
		return false, nil
	case ps.conn.Failed, ps.pessimistic && p.dialect.Classify(err) == sqldb.Contended:
		return false, err
	case !ps.pessimistic:
		return false, errAlone // it may concern one of the transactions only, or be wrong for a repeat
	}
	jobs[0].err, jobs[0].notifications = err, nil
	ps.heads = nil // they are not as the transaction would have left them
	p.rollback(ctx, ps.conn)
	return true, nil
}
