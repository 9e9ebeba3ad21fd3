package txn

import (
	"context"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// ending is a function that AtEnd has registered.
type ending struct {
	namespace string
	once      string
	do        func() error
}

// AtEnd registers a function that runs at the end of the transaction, after all its writes and with the row of the namespace locked.
// When the function fails, so does the transaction. Functions of one namespace with the same name once do the same, and only one of
// them runs; "" is no name. Transactions of other callers may share the commit. The function sees what they have written.
//
// So all transactions take the locks of PostgreSQL in the same order: first the heads of threads and their rows, then the rows of
// namespaces, sorted by name. A transaction that has locked a namespace does not lock a head any more, which rules out deadlocks of the two.
func (t *Tx) AtEnd(namespace, once string, do func() error) {
	t.endings = append(t.endings, ending{namespace, once, do})
}

// end runs the functions that transactions have registered with AtEnd.
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

// end runs the functions that the transactions of a batch have registered with AtEnd. refused reports that this made the only transaction of the batch fail, and that it was
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
