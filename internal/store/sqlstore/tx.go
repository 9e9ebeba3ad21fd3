package sqlstore

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/skein-dev/skein/internal/store"
)

// session runs a transaction's statements.
type session interface {
	querier
	// write runs a statement whose result is not needed. It may be sent later, but always before the next read.
	write(ctx context.Context, query string, args ...any) error
}

// pipelined is a session that may know threads before it reads them.
type pipelined interface {
	session
	// loadHead returns a thread as the transaction finds it, locked against other writers, or store.ErrNotFound.
	loadHead(ctx context.Context, id string) (*head, error)
	// writeHead is write for a thread's counters.
	writeHead(ctx context.Context, h *head, query string, args ...any) error
	// checkFence reports whether the fence holds, where the session knows that (known) without a read.
	checkFence(h *head, f *store.Fence) (known, holds bool)
	// optimistic reports whether the transaction may assume a row to be new that most likely is, because a wrong assumption
	// is detected when it is written.
	optimistic() bool
}

// tx is one caller's transaction. One goroutine uses it.
type tx struct {
	session
	ctx           context.Context
	now           int64
	heads         []*head
	notifications []store.Notification
}

// run runs fn and flushes. A panic of fn becomes its error, so that it does not end the other callers' transactions.
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

// exists reads the row with a unique key and reports whether it exists. Where the session can detect a repeat by
// writing, exists does not read: a repeat makes the transaction run again, and then it reads.
func (t *tx) exists(query string, args []any, dst ...any) (bool, error) {
	if t.assumes() {
		return false, nil
	}
	return found(t.row(t.ctx, query, args, dst...))
}

// assumes reports whether the transaction may assume a row to be new that most likely is. See pipelined.optimistic.
func (t *tx) assumes() bool {
	p, ok := t.session.(pipelined)
	return ok && p.optimistic()
}
