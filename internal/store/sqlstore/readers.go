package sqlstore

import (
	"context"
	"errors"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

// readers lends connections that only read. It opens them when needed, up to a limit. They never wait for the writer.
// mu guards closed.
type readers struct {
	open func(ctx context.Context) (*conn, error)
	// slots holds one entry for each connection that may be lent: an open connection, or nil for one still to open.
	slots chan *conn

	mu     sync.Mutex
	closed bool
}

var errClosed = errors.New("the store is closed")

func newReaders(n int, open func(ctx context.Context) (*conn, error)) *readers {
	if n == 0 {
		n = 8
	}
	r := &readers{open: open, slots: make(chan *conn, n)}
	for range n {
		r.slots <- nil
	}
	return r
}

// read lends a connection to fn.
func (r *readers) read(ctx context.Context, fn func(c *conn) error) error {
	var c *conn
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
		return errors.Join(store.ErrUnavailable, errClosed)
	}
	if c != nil && c.stale() {
		_ = c.close()
		c = nil
	}
	if c == nil {
		fresh, err := r.open(ctx)
		if err != nil {
			return err
		}
		c = fresh
	}
	err := fn(c)
	if c.failed {
		_ = c.close()
		c = nil
	}
	return err
}

// snapshot lends a connection on which all reads of fn see one moment.
func (r *readers) snapshot(ctx context.Context, fn func(c *conn) error) error {
	return r.read(ctx, func(c *conn) error {
		if err := c.write(ctx, c.dialect.snapshot); err != nil {
			c.failed = true // a driver may report the end of a context after the transaction has begun; the next user would read the past
			return err
		}
		err := fn(c)
		if _, end := c.exec(context.WithoutCancel(ctx), "END"); end != nil {
			c.failed = true
			return errors.Join(err, end)
		}
		return err
	})
}

// close waits for reads in progress.
func (r *readers) close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	var errs []error
	for range cap(r.slots) {
		if c := <-r.slots; c != nil {
			errs = append(errs, c.close())
		}
	}
	for range cap(r.slots) {
		r.slots <- nil
	}
	return errors.Join(errs...)
}
