package txn

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// maxAttempts limits how often a transaction is run while others keep conflicting with it.
const maxAttempts = 20

// pipeline commits batches on a PostgreSQL server, in as few round trips as it can. A batch is tried in these ways, in
// order:
//
//   - Optimistic: the writer remembers the state of the threads that it wrote last. When the transactions of a batch
//     need nothing more, all their writes are sent at once. The statements that write the threads' heads fail unless
//     each thread still has the remembered version.
//   - Locking: the heads of the batch's threads are locked and read first, always in the same order. Then the
//     transactions run, and their writes are sent with the commit.
//   - Alone: when a transaction cannot share the commit, each one of the batch runs in a transaction of its own. It is
//     run again while it only conflicts with others that write at the same time.
//
// Only the goroutine that leads the writer's batch uses a pipeline, so its fields need no lock.
type pipeline struct {
	dialect *sqldb.Dialect
	open    func(ctx context.Context, writes bool) (*sqldb.Conn, error)
	now     func() int64
	quotas  func(namespace string) store.Quotas

	conn  *sqldb.Conn
	cache headCache
}

var _ committer = (*pipeline)(nil)

// errAlone means that the transactions of a batch must run one by one.
var errAlone = errors.New("the transactions cannot share a commit")

func (p *pipeline) commit(batch []*job) {
	var jobs []*job
	for _, j := range batch {
		if j.err = j.ctx.Err(); j.err == nil {
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return
	}
	done, err := p.commitOptimistically(jobs)
	if done {
		return
	}
	if err == nil {
		err = p.lock(jobs, false)
	}
	switch {
	case err == nil:
	case errors.Is(err, errAlone) || p.dialect.Classify(err) == sqldb.Contended:
		for _, j := range jobs {
			p.alone(j)
		}
	default:
		failAll(jobs, err)
	}
}

// alone runs one job in a transaction of its own until it succeeds or fails for good.
func (p *pipeline) alone(j *job) {
	for range maxAttempts {
		j.err = nil
		err := p.lock([]*job{j}, true)
		if err == nil || p.dialect.Classify(err) != sqldb.Contended {
			failAll([]*job{j}, err)
			return
		}
		if j.err = j.ctx.Err(); j.err != nil {
			return
		}
		failAll([]*job{j}, err)
	}
}

// use calls fn with the connection. It opens one when there is none, and closes one that has failed.
func (p *pipeline) use(fn func(ctx context.Context, c *sqldb.Conn) error) error {
	// The caller cannot cancel a transaction that has begun, and the transaction does not wait for a server for ever.
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.AnswerTimeout)
	defer cancel()
	if p.conn != nil && p.conn.Stale() {
		_ = p.conn.Close()
		p.conn = nil
	}
	if p.conn == nil {
		c, err := p.open(ctx, true)
		if err != nil {
			return err
		}
		p.conn = c
	}
	err := fn(ctx, p.conn)
	if p.conn.Failed {
		_ = p.conn.Close()
		p.conn = nil
	}
	return err
}

// commitOptimistically runs a batch on the remembered state of its threads. When it returns false without an error, nothing was written
// and the batch must be run with locks.
func (p *pipeline) commitOptimistically(jobs []*job) (done bool, err error) {
	if !p.cache.has(jobs) {
		return false, nil
	}
	ps := &pipe{p: p, unlocked: true, heads: map[string]*Head{}}
	var all []statement
	for _, j := range jobs {
		t := ps.run(context.Background(), j)
		if ps.needsLocks || j.err != nil || len(t.endings) > 0 || !ps.guarded(t) {
			j.err = nil
			return false, nil // decided on state that may be out of date
		}
		all = slices.Concat(all, ps.guards, ps.fences, ps.writes)
	}
	if len(all) == 0 {
		return false, nil
	}
	err = p.use(func(ctx context.Context, c *sqldb.Conn) error {
		last := len(all) - 1
		for _, s := range all[:last] {
			if err := c.Write(ctx, s.query, s.args...); err != nil {
				return err
			}
		}
		_, err := c.Exec(ctx, all[last].query, all[last].args...) // statements that are sent together are one transaction
		return err
	})
	if err == nil {
		p.cache.put(ps.heads)
		return true, nil
	}
	p.cache.remove(jobs)
	p.keepIfUnknown(jobs, err)
	if class := p.dialect.Classify(err); class == sqldb.Contended || class == sqldb.Ordinary {
		return false, nil
	}
	return false, err
}

// keepIfUnknown drops the notifications of a batch that failed, unless the database may have committed it.
func (p *pipeline) keepIfUnknown(jobs []*job, err error) {
	unknown := p.dialect.Classify(err) == sqldb.Unavailable
	for _, j := range jobs {
		if j.unknown = unknown; !unknown {
			j.notifications = nil
		}
	}
}

// lock runs a batch in one transaction with the heads of its threads locked. An error means that nothing was written.
// With pessimistic, rows that are most likely new are checked nevertheless.
func (p *pipeline) lock(jobs []*job, pessimistic bool) error {
	alone := len(jobs) == 1
	ps := &pipe{p: p, heads: map[string]*Head{}, pessimistic: pessimistic}
	for _, j := range jobs {
		for _, id := range j.threads {
			if id != "" {
				ps.ids = append(ps.ids, id)
			}
		}
	}
	slices.Sort(ps.ids)
	ps.ids = slices.Compact(ps.ids)
	err := p.use(func(ctx context.Context, c *sqldb.Conn) (err error) {
		ps.conn = c
		defer func() {
			if err != nil && !c.Failed {
				p.rollback(ctx, c)
			}
		}()
		if err := c.Write(ctx, p.dialect.Begin); err != nil {
			return err
		}
		if err := ps.loadHeads(ctx); err != nil {
			return err
		}
		return p.runLocked(ctx, ps, jobs, alone)
	})
	if err != nil {
		p.cache.remove(jobs)
		p.keepIfUnknown(jobs, err)
		return err
	}
	p.cache.remove(jobs) // drops threads that were purged
	p.cache.put(ps.heads)
	return nil
}

func (p *pipeline) runLocked(ctx context.Context, ps *pipe, jobs []*job, alone bool) error {
	c := ps.conn
	wrote := false
	var endings []ending
	for _, j := range jobs {
		t := ps.run(ctx, j)
		switch {
		case c.Failed:
			return cmp.Or(j.err, store.ErrUnavailable)
		case j.err != nil && ps.assumed:
			return errAlone // the error may be wrong for a repeat, whose row already exists
		case j.err != nil && ps.failed && !alone:
			return errAlone // the database has aborted the transaction
		case j.err != nil && alone:
			if p.dialect.Classify(j.err) == sqldb.Contended {
				return j.err
			}
			p.rollback(ctx, c)
			return nil
		case j.err != nil && ps.sent:
			return errAlone // some of it is already written and cannot be undone by itself
		case j.err == nil:
			wrote = wrote || ps.sent || len(ps.writes) > 0
			endings = append(endings, t.endings...)
			if err := ps.flush(ctx); err != nil {
				return err
			}
		}
	}
	if len(endings) > 0 {
		wrote = true
		if refused, err := p.end(ctx, ps, jobs, endings); refused || err != nil {
			return err
		}
	}
	if !wrote {
		p.rollback(ctx, c)
		return nil
	}
	_, err := c.Exec(ctx, sqldb.Commit)
	if err != nil && !alone && p.dialect.Classify(err) == sqldb.Ordinary {
		return errAlone
	}
	return err
}

// rollback ends the transaction. When that fails, the connection is closed, which also ends the transaction.
func (p *pipeline) rollback(ctx context.Context, c *sqldb.Conn) {
	if c.Drop() {
		return
	}
	if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
		c.Failed = true
	}
}

func (p *pipeline) close() error {
	if p.conn == nil {
		return nil
	}
	c := p.conn
	p.conn = nil
	return c.Close()
}

// statement is a statement that waits to be sent.
type statement struct {
	query string
	args  []any
}

// pipe is the session of the transactions of one batch.
type pipe struct {
	p    *pipeline
	conn *sqldb.Conn // nil without locks
	// heads holds the heads of threads as the transactions so far have left them.
	heads map[string]*Head
	ids   []string // ids of the threads whose heads were locked at the beginning
	// leases holds the leases of the locked threads, by thread key.
	leases      map[int64]store.Fence
	unlocked    bool
	pessimistic bool

	// The fields below belong to the transaction that runs now.
	guards     []statement // writes of heads that fail when the state decided on is out of date
	fences     []statement // statements that fail when a lease was lost; they follow the guards
	writes     []statement // not yet sent
	sent       bool        // some of its writes were sent
	needsLocks bool        // it needed something that it cannot read without locks
	failed     bool        // the database refused a statement and with it the transaction
	assumed    bool        // it assumed that a row is new without a check
}

var _ pipelined = (*pipe)(nil)

// errNeedsLocks ends an optimistic transaction that needs to read.
var errNeedsLocks = errors.New("the transaction must be run with locks")

// run runs a job. Its unsent writes are left in guards, fences and writes.
func (ps *pipe) run(ctx context.Context, j *job) *Tx {
	ps.reset()
	t := &Tx{session: ps, Ctx: ctx, Now: ps.p.now(), Quotas: ps.p.quotas, lock: ps.p.dialect.Lock}
	j.err = t.run(j.fn)
	if j.err != nil {
		ps.writes = nil
		return t
	}
	j.notifications = t.Notifications
	for _, h := range t.Heads {
		ps.heads[h.ID] = h.forNext()
	}
	for _, id := range t.gone {
		delete(ps.heads, id)
	}
	return t
}

// reset forgets the transaction that ran last.
func (ps *pipe) reset() {
	ps.guards, ps.fences, ps.writes = nil, nil, nil
	ps.sent, ps.needsLocks, ps.failed, ps.assumed = false, false, false, false
}

// flush sends the transaction's writes so far, ahead of the next statement.
func (ps *pipe) flush(ctx context.Context) error {
	if ps.unlocked {
		ps.needsLocks = true
		return errNeedsLocks
	}
	for _, s := range ps.writes {
		ps.sent = true
		if err := ps.conn.Write(ctx, s.query, s.args...); err != nil {
			return err
		}
	}
	ps.writes = nil
	return nil
}

// result records the outcome of a statement.
func (ps *pipe) result(query string, err error) error {
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		ps.failed = true
	}
	if !strings.HasPrefix(query, "SELECT") {
		ps.sent = true
	}
	return err
}

func (ps *pipe) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	if err := ps.flush(ctx); err != nil {
		return 0, err
	}
	ps.changesLease(query)
	n, err := ps.conn.Exec(ctx, query, args...)
	return n, ps.result(query, err)
}

func (ps *pipe) Row(ctx context.Context, query string, args []any, dst ...any) error {
	if err := ps.flush(ctx); err != nil {
		return err
	}
	return ps.result(query, ps.conn.Row(ctx, query, args, dst...))
}

func (ps *pipe) One(ctx context.Context, query string, args ...any) sqldb.Scanner {
	return func(dst ...any) error { return ps.Row(ctx, query, args, dst...) }
}

func (ps *pipe) Rows(ctx context.Context, query string, args []any, each func(scan sqldb.Scanner) error) error {
	if err := ps.flush(ctx); err != nil {
		return err
	}
	return ps.result(query, ps.conn.Rows(ctx, query, args, each))
}

func (ps *pipe) Write(_ context.Context, query string, args ...any) error {
	ps.changesLease(query)
	ps.writes = append(ps.writes, statement{query, args})
	return nil
}

func (ps *pipe) optimistic() bool {
	ps.assumed = ps.assumed || !ps.pessimistic
	return !ps.pessimistic
}
