package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/skein-dev/skein/internal/store"
)

// session is where a transaction's statements go.
type session interface {
	querier
	// write runs a statement whose result nobody asks for. It may be sent later; what is read afterwards
	// shows it.
	write(ctx context.Context, query string, args ...any) error
}

// pipelined is a session that knows of threads before it asks for them.
type pipelined interface {
	session
	// loadHead gives a thread as the transaction finds it, locked against others; store.ErrNotFound when absent.
	loadHead(ctx context.Context, id string) (*head, error)
	// writeHead is write of a thread's counters.
	writeHead(ctx context.Context, h *head, query string, args ...any) error
	// checkFence lets the transaction pass only as the holder of the thread's lease.
	checkFence(h *head, f *store.Fence) (known, holds bool)
	// hopes tells that the transaction may take for new what most likely is, and finds out when it is written.
	hopes() bool
}

// tx is one caller's transaction.
type tx struct {
	session
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

// exists reads the row that has a unique key, and tells whether there is one. Where a pipeline can find
// that out by writing, it does not ask: a repeat makes the transaction run again, and then it asks.
func (t *tx) exists(query string, args []any, dst ...any) (bool, error) {
	if p, ok := t.session.(pipelined); ok && p.hopes() {
		return false, nil
	}
	err := t.row(t.ctx, query, args, dst...)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
