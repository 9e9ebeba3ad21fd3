package sqldb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

// Readers lends connections that only read. It opens them when needed, up to a limit. They never wait for the writer.
type Readers struct {
	*pool
	interruptible bool
}

// pool has the connections of Readers.
type pool struct {
	Open func(ctx context.Context) (*Conn, error)
	// slots holds one entry for each connection that may be lent.
	slots chan struct{}

	mu     sync.Mutex // guards what follows
	closed bool
	// idle has the open connections that are not lent, those first that have not been used for the longest time. The last one is lent next:
	// what it has read of the database is the newest, and no more connections are open than are needed at once.
	idle []idleConn
}

// idleConn is a connection that is not lent.
type idleConn struct {
	*Conn
	since time.Time
}

// idleFor is how long a connection may be idle while others are used. It is less than the time after which networks and servers give up
// connections.
const idleFor = time.Minute

// ErrClosed means that the store was closed.
var ErrClosed = errors.New("the store is closed")

// NewReaders returns readers that open at most n connections; 8 when n is 0.
func NewReaders(n int, open func(ctx context.Context) (*Conn, error)) *Readers {
	if n == 0 {
		n = 8
	}
	p := &pool{Open: open, slots: make(chan struct{}, n)}
	for range n {
		p.slots <- struct{}{}
	}
	return &Readers{pool: p}
}

// Interruptible returns readers with the same connections, for queries that may run for a long time: the end of their context interrupts
// them. Other queries of SQLite stop between two rows, because it costs more to watch a context than most queries take. Those of PostgreSQL
// may take AnswerTimeout.
func (r *Readers) Interruptible() *Readers { return &Readers{pool: r.pool, interruptible: true} }

// Read lends a connection to fn.
func (r *Readers) Read(ctx context.Context, fn func(c *Conn) error) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.slots:
	}
	c, closed := r.take()
	lent := false
	defer func() {
		if lent { // fn has panicked, perhaps within a transaction
			_ = c.Close()
			c = nil
		}
		r.giveBack(c)
		r.slots <- struct{}{}
	}()
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
	lent = true
	err := fn(c)
	lent = false
	if c.Failed {
		_ = c.Close()
		c = nil
	}
	return err
}

// take returns the connection that was given back last, or nil when none is idle. closed reports that none may be used any more.
func (p *pool) take() (c *Conn, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == 0 {
		return nil, p.closed
	}
	last := len(p.idle) - 1
	c = p.idle[last].Conn
	p.idle = p.idle[:last]
	return c, false
}

// giveBack makes a connection idle, and closes one that has been idle for too long. c is nil when there is none any more.
func (p *pool) giveBack(c *Conn) {
	now := time.Now()
	p.mu.Lock()
	var unused *Conn
	if len(p.idle) > 0 && now.Sub(p.idle[0].since) > idleFor {
		unused = p.idle[0].Conn
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	if c != nil {
		p.idle = append(p.idle, idleConn{c, now})
	}
	p.mu.Unlock()
	if unused != nil {
		_ = unused.Close()
	}
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
		c.Link.setInterruptible(false) // the end takes no time, unless the server is gone
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
	for range cap(p.slots) {
		<-p.slots
	}
	var errs []error
	for _, c := range p.idle { // all of them: none is lent
		errs = append(errs, c.Close())
	}
	p.idle = nil
	for range cap(p.slots) { // who comes later learns that the store is closed
		p.slots <- struct{}{}
	}
	return errors.Join(errs...)
}
