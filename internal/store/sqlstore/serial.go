package sqlstore

import (
	"context"
)

// serial commits a batch on the one connection that writes: each transaction under a savepoint, in one of
// the database, and one commit for all.
type serial struct {
	dialect *dialect
	open    opener
	now     func() int64
	conn    *conn
}

var _ committer = (*serial)(nil)

func (s *serial) commit(batch []*job) {
	if err := s.together(batch); err != nil {
		failAll(batch, err)
	}
	if s.conn != nil && s.conn.failed {
		_ = s.conn.close() // the next leader makes another
		s.conn = nil
	}
}

// together gives an error when nothing of the batch was written.
func (s *serial) together(batch []*job) error {
	ctx := context.Background() // a transaction that has begun is not given up halfway
	if s.conn == nil {
		c, err := newConn(ctx, s.dialect, s.open, true)
		if err != nil {
			return err
		}
		s.conn = c
	}
	c := s.conn
	if err := c.write(ctx, c.dialect.begin); err != nil {
		return err
	}
	wrote := false
	for _, j := range batch {
		ok, err := s.runJob(ctx, c, j, len(batch) > 1)
		if err != nil {
			s.rollback(c)
			return err
		}
		wrote = wrote || ok
	}
	if !wrote {
		s.rollback(c)
		return nil
	}
	if err := c.write(ctx, "COMMIT"); err != nil {
		s.rollback(c)
		return err
	}
	return nil
}

// runJob runs one job, under a savepoint when it is not alone. An error is one of the whole batch; the
// job's own goes to the job.
func (s *serial) runJob(ctx context.Context, c *conn, j *job, shared bool) (ok bool, err error) {
	if j.err = j.ctx.Err(); j.err != nil {
		return false, nil
	}
	if shared {
		if err := c.write(ctx, "SAVEPOINT job"); err != nil {
			return false, err
		}
	}
	t := &tx{session: c, ctx: ctx, now: s.now()}
	j.err = t.run(j.fn)
	if c.failed {
		return false, j.err // the database has given up the transaction
	}
	if j.err == nil {
		j.hints = t.hints
	}
	if !shared {
		return j.err == nil, nil
	}
	if j.err != nil {
		if err := c.write(ctx, "ROLLBACK TO job"); err != nil {
			return false, err
		}
	}
	return j.err == nil, c.write(ctx, "RELEASE job")
}

// rollback ends the transaction. Where that fails the connection is given up, and with it the transaction.
func (s *serial) rollback(c *conn) {
	if err := c.write(context.Background(), "ROLLBACK"); err != nil {
		c.failed = true
	}
}

func (s *serial) close() error {
	if s.conn == nil {
		return nil
	}
	c := s.conn
	s.conn = nil
	return c.close()
}
