package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

// maxBatch bounds how many transactions share one commit, so that nobody waits long for others.
const maxBatch = 256

// writer commits transactions in groups. There is one connection that writes. Whoever finds it free
// leads: he takes all that wait by then, runs each under a savepoint in one transaction, commits once for
// all, and hands over to the first that came meanwhile. So a lone caller pays for no hand-over and no
// timer, and many callers share one sync of the disk.
type writer struct {
	open  func(ctx context.Context) (*conn, error)
	after func(hints []store.Hint)
	now   func() int64

	mu     sync.Mutex
	queue  []*job
	busy   bool
	closed bool
	idle   *sync.Cond

	conn *conn // of the leader
}

// job is one caller's transaction.
type job struct {
	ctx   context.Context
	fn    func(*tx) error
	err   error
	hints []store.Hint
	// lead says, when the waiting ends: true, lead; false, done.
	lead chan bool
}

func newWriter(open func(ctx context.Context) (*conn, error), now func() int64, after func([]store.Hint)) *writer {
	w := &writer{open: open, now: now, after: after}
	w.idle = sync.NewCond(&w.mu)
	return w
}

// do runs fn in a transaction and returns once it is on disk, or was rolled back. A context that ends
// before the transaction's turn keeps it from running; afterwards it has no effect.
func (w *writer) do(ctx context.Context, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{ctx: ctx, fn: fn}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errors.Join(store.ErrUnavailable, errClosed)
	}
	w.queue = append(w.queue, j)
	if w.busy {
		j.lead = make(chan bool, 1)
		w.mu.Unlock()
		if !<-j.lead {
			return j.err
		}
	} else {
		w.busy = true
		w.mu.Unlock()
	}
	w.leadBatch()
	return j.err
}

// leadBatch runs what waits, the leader's own first.
func (w *writer) leadBatch() {
	w.mu.Lock()
	n := min(len(w.queue), maxBatch)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	w.mu.Unlock()

	w.run(batch)

	for _, j := range batch[1:] {
		j.lead <- false
	}
	w.mu.Lock()
	if len(w.queue) > 0 {
		w.queue[0].lead <- true
	} else {
		w.queue = nil
		w.busy = false
		w.idle.Broadcast()
	}
	w.mu.Unlock()
	for _, j := range batch {
		if j.err == nil && len(j.hints) > 0 {
			w.after(j.hints)
		}
	}
}

// run commits a batch and sets the error of each of its jobs.
func (w *writer) run(batch []*job) {
	err := w.commit(batch)
	if err != nil {
		for _, j := range batch {
			if j.err == nil {
				j.err = err
			}
		}
	}
	if w.conn != nil && w.conn.failed {
		_ = w.conn.close() // the next leader makes another
		w.conn = nil
	}
}

// commit gives an error when nothing of the batch was written.
func (w *writer) commit(batch []*job) error {
	ctx := context.Background() // a transaction that has begun is not given up halfway
	if w.conn == nil {
		c, err := w.open(ctx)
		if err != nil {
			return err
		}
		w.conn = c
	}
	c := w.conn
	if _, err := c.exec(ctx, c.dialect.begin); err != nil {
		return err
	}
	wrote := false
	for _, j := range batch {
		ok, err := w.runJob(ctx, c, j, len(batch) > 1)
		if err != nil {
			w.rollback(c)
			return err
		}
		wrote = wrote || ok
	}
	if !wrote {
		w.rollback(c)
		return nil
	}
	if _, err := c.exec(ctx, "COMMIT"); err != nil {
		w.rollback(c)
		return err
	}
	return nil
}

// runJob runs one job, under a savepoint when it is not alone. An error is one of the whole batch; the
// job's own goes to the job.
func (w *writer) runJob(ctx context.Context, c *conn, j *job, shared bool) (ok bool, err error) {
	if j.err = j.ctx.Err(); j.err != nil {
		return false, nil
	}
	if shared {
		if _, err := c.exec(ctx, "SAVEPOINT job"); err != nil {
			return false, err
		}
	}
	t := &tx{conn: c, ctx: ctx, now: w.now()}
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
		if _, err := c.exec(ctx, "ROLLBACK TO job"); err != nil {
			return false, err
		}
	}
	_, err = c.exec(ctx, "RELEASE job")
	return j.err == nil, err
}

// rollback ends the transaction. Where that fails the connection is given up, and with it the transaction.
func (w *writer) rollback(c *conn) {
	if _, err := c.exec(context.Background(), "ROLLBACK"); err != nil {
		c.failed = true
	}
}

// close waits for the transactions that were accepted.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	for w.busy {
		w.idle.Wait()
	}
	w.mu.Unlock()
	if w.conn == nil {
		return nil
	}
	c := w.conn
	w.conn = nil
	return c.close()
}

// tx is one caller's transaction.
type tx struct {
	*conn
	ctx   context.Context
	now   int64
	heads []*head
	hints []store.Hint
}

// run keeps a panic of one caller from taking the other callers' transactions with it.
func (t *tx) run(fn func(*tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a store transaction: %v\n%s", p, debug.Stack())
		}
	}()
	if err := fn(t); err != nil {
		return err
	}
	return t.flush()
}
