package txn

import (
	"context"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// serial commits a batch on the only connection that writes, in one transaction of the database. Because no other
// connection writes, it remembers the state of the threads that it wrote last, with their leases, and does not read
// them again.
//
//   - Optimistic: the callers' transactions run one after the other, and then what they do last. One that fails before it has
//     written anything leaves the others as they are. One that fails later, or that assumed an existing row to be new, undoes
//     the batch.
//   - Pessimistic: then all run again, each under a savepoint, and check rows instead of assuming that they are new.
//
// Only the goroutine that leads the writer's batch uses a serial, so its fields need no lock.
type serial struct {
	dialect *sqldb.Dialect
	open    sqldb.Opener
	now     func() int64
	quotas  func(namespace string) store.Quotas
	conn    *sqldb.Conn
	cache   headCache
	facts   facts
}

var _ committer = (*serial)(nil)

func (s *serial) commit(batch []*job) {
	if err := s.runBatch(batch); err != nil {
		s.cache, s.facts = headCache{}, nil // what was written may be unknown
		failAll(batch, err)
	}
	if s.conn != nil && s.conn.Failed {
		_ = s.conn.Close() // the next batch opens another
		s.conn = nil
	}
}

// runBatch runs and commits the jobs of a batch: first optimistically and then, if that has undone the batch, pessimistically. When it
// returns an error, nothing of the batch was written.
func (s *serial) runBatch(batch []*job) error {
	ctx := context.Background() // the caller cannot cancel a transaction that has begun
	if s.conn == nil {
		c, err := sqldb.Open(ctx, s.dialect, s.open, true)
		if err != nil {
			return err
		}
		s.conn = c
	}
	done, err := s.pass(ctx, batch, false)
	if !done && err == nil {
		for _, j := range batch {
			j.err, j.notifications = nil, nil
		}
		_, err = s.pass(ctx, batch, true)
	}
	return err
}

// pass runs the jobs of a batch and commits what they wrote. When it returns false without an error, they must be run
// again pessimistically.
func (s *serial) pass(ctx context.Context, batch []*job, pessimistic bool) (done bool, err error) {
	c := s.conn
	if err := c.Write(ctx, c.Dialect.Begin); err != nil {
		return false, err
	}
	if s.facts == nil {
		s.facts = facts{}
	}
	ss := &serialSession{Conn: c, cache: &s.cache, facts: s.facts, heads: map[string]*Head{}, pessimistic: pessimistic}
	wrote := false
	for _, j := range batch {
		ok, again, err := s.runJob(ctx, ss, j, pessimistic && len(batch) > 1)
		if err != nil || again {
			s.rollback(c)
			return false, err
		}
		wrote = wrote || ok && ss.wrote
	}
	if len(ss.endings) > 0 {
		wrote = true
		if err := end(ctx, ss, s.dialect, ss.endings); err != nil {
			s.rollback(c)
			if !c.Failed {
				err = nil // of one of the transactions
			}
			return false, err
		}
	}
	if !wrote {
		s.rollback(c)
		return true, nil
	}
	if err := c.Write(ctx, sqldb.Commit); err != nil {
		s.rollback(c)
		return false, err
	}
	s.cache.put(ss.heads)
	return true, nil
}

// runJob runs one job, under a savepoint when it must be undone separately. err is an error of the whole batch; the
// job's own error is stored in the job. again reports that nothing of the batch may be kept.
func (s *serial) runJob(ctx context.Context, ss *serialSession, j *job, saved bool) (ok, again bool, err error) {
	if j.err = j.ctx.Err(); j.err != nil {
		return false, false, nil
	}
	c := ss.Conn
	if saved {
		if err := c.Write(ctx, "SAVEPOINT job"); err != nil {
			return false, false, err
		}
	}
	ss.wrote, ss.assumed = false, false
	t := &Tx{session: ss, Ctx: ctx, Now: s.now(), Quotas: s.quotas, lock: s.dialect.Lock}
	if j.err = t.run(j.fn); j.err == nil && ss.pessimistic {
		j.err = end(ctx, ss, s.dialect, t.endings)
	}
	if j.err != nil {
		clear(ss.facts)
	}
	switch {
	case c.Failed:
		return false, false, j.err // the database has aborted the transaction
	case j.err == nil:
		j.notifications = t.Notifications
		ss.remember(j, t)
		if !ss.pessimistic {
			ss.endings = append(ss.endings, t.endings...)
		}
	case !ss.pessimistic:
		again = ss.wrote || ss.assumed
	case saved:
		err = c.Write(ctx, "ROLLBACK TO job")
	default:
		ss.wrote = false // it is the only job, and is rolled back with the transaction
	}
	if saved && err == nil {
		err = c.Write(ctx, "RELEASE job")
	}
	return j.err == nil, again, err
}

// rollback ends the transaction. When that fails, the connection is closed, which also ends the transaction.
func (s *serial) rollback(c *sqldb.Conn) {
	clear(s.facts)
	if err := c.Write(context.Background(), "ROLLBACK"); err != nil {
		c.Failed = true
	}
}

func (s *serial) close() error {
	if s.conn == nil {
		return nil
	}
	c := s.conn
	s.conn = nil
	return c.Close()
}

// serialSession is the session of the transactions of one batch.
type serialSession struct {
	*sqldb.Conn
	cache *headCache
	facts facts
	// heads holds the heads of threads as the transactions of the batch so far have left them.
	heads       map[string]*Head
	pessimistic bool
	endings     []ending // what is done once all transactions of the batch have run

	// The fields below belong to the transaction that runs now.
	wrote   bool
	assumed bool // it assumed that a row is new without a check
}

var _ pipelined = (*serialSession)(nil)

// remember remembers the heads that a transaction loaded. It forgets threads that the job names but did not load, because
// it may have removed them.
func (ss *serialSession) remember(j *job, t *Tx) {
	for _, id := range j.threads {
		if !slices.ContainsFunc(t.Heads, func(h *Head) bool { return h.ID == id }) {
			delete(ss.heads, id)
			delete(ss.cache.byID, id)
		}
	}
	for _, h := range t.Heads {
		ss.heads[h.ID] = h.forNext()
	}
}

func (ss *serialSession) loadHead(ctx context.Context, id string) (*Head, error) {
	if h := ss.heads[id]; h != nil {
		return h.forNext(), nil
	}
	if h := ss.cache.get(id); h != nil {
		return h.forNext(), nil
	}
	return scanHead(ss.One(ctx, queries.Head, id))
}

// loadMore does nothing: SQLite has no round trips.
func (ss *serialSession) loadMore(context.Context, []string) error { return nil }

func (ss *serialSession) writeHead(ctx context.Context, _ *Head, query string, args ...any) error {
	return ss.Write(ctx, query, args...)
}

// checkFence knows nothing: the lease is remembered with the head.
func (ss *serialSession) checkFence(*Head, *store.Fence) (known, holds bool) { return false, false }

func (ss *serialSession) optimistic() bool {
	ss.assumed = ss.assumed || !ss.pessimistic
	return !ss.pessimistic
}

func (ss *serialSession) Write(ctx context.Context, query string, args ...any) error {
	ss.wrote = true
	return ss.Conn.Write(ctx, query, args...)
}

func (ss *serialSession) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	ss.wrote = true
	return ss.Conn.Exec(ctx, query, args...)
}

func (ss *serialSession) Row(ctx context.Context, query string, args []any, dst ...any) error {
	ss.reads(query)
	return ss.Conn.Row(ctx, query, args, dst...)
}

func (ss *serialSession) One(ctx context.Context, query string, args ...any) sqldb.Scanner {
	return func(dst ...any) error { return ss.Row(ctx, query, args, dst...) }
}

func (ss *serialSession) Rows(ctx context.Context, query string, args []any, each func(scan sqldb.Scanner) error) error {
	ss.reads(query)
	return ss.Conn.Rows(ctx, query, args, each)
}

// reads records whether a statement that returns rows also writes.
func (ss *serialSession) reads(query string) {
	ss.wrote = ss.wrote || !strings.HasPrefix(query, "SELECT") && !strings.HasPrefix(query, "WITH")
}
