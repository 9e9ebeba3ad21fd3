package sqldb

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

// Readers lends connections that only read. It opens them when needed, up to a limit. They never wait for the writer.
type Readers struct {
	*pool
	interruptible bool
}

// pool has the connections of Readers. mu guards closed.
type pool struct {
	Open func(ctx context.Context) (*Conn, error)
	// slots holds one entry for each connection that may be lent: an open connection, or nil for one still to open.
	slots chan *Conn

	mu     sync.Mutex
	closed bool
}

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("the store is closed")

// NewReaders returns readers that open at most n connections; 8 when n is 0.
func NewReaders(n int, open func(ctx context.Context) (*Conn, error)) *Readers {
	if n == 0 {
		n = 8
	}
	p := &pool{Open: open, slots: make(chan *Conn, n)}
	for range n {
		p.slots <- nil
	}
	return &Readers{pool: p}
}

// Interruptible returns readers with the same connections, for queries that may run for a long time before their first row: the end
// of their context interrupts them. Other queries stop between two rows, because with SQLite it costs more to watch a context than
// most queries take.
func (r *Readers) Interruptible() *Readers { return &Readers{pool: r.pool, interruptible: true} }

// Read lends a connection to fn.
func (r *Readers) Read(ctx context.Context, fn func(c *Conn) error) error {
	var c *Conn
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c = <-r.slots:
	}
	defer func() { r.slots <- c }()
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return errors.Join(store.ErrUnavailable, ErrClosed)
	}
	if c != nil && c.Stale() {
		_ = c.Close()
		c = nil
	}
	if c == nil {
		fresh, err := r.Open(ctx)
		if err != nil {
			return err
		}
		c = fresh
	}
	c.Link.setInterruptible(r.interruptible)
	err := fn(c)
	if c.Failed {
		_ = c.Close()
		c = nil
	}
	return err
}

// Row reads one row into dst. It returns store.ErrNotFound when there is none.
func (r *Readers) Row(ctx context.Context, query string, args []any, dst ...any) error {
	return r.Read(ctx, func(c *Conn) error { return c.Row(ctx, query, args, dst...) })
}

// Snapshot lends a connection on which all reads of fn see one moment.
func (r *Readers) Snapshot(ctx context.Context, fn func(c *Conn) error) error {
	return r.Read(ctx, func(c *Conn) error {
		if err := c.Write(ctx, c.Dialect.Snapshot); err != nil {
			c.Failed = true // a driver may report the end of a context after the transaction has begun; the next user would read the past
			return err
		}
		err := fn(c)
		if _, end := c.Exec(context.WithoutCancel(ctx), "END"); end != nil {
			c.Failed = true
			return errors.Join(err, end)
		}
		return err
	})
}

// Close waits for reads in progress.
func (p *pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	var errs []error
	for range cap(p.slots) {
		if c := <-p.slots; c != nil {
			errs = append(errs, c.Close())
		}
	}
	for range cap(p.slots) {
		p.slots <- nil
	}
	return errors.Join(errs...)
}
