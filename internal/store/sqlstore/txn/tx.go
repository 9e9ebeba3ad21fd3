// Package txn runs transactions on threads. Writers gather the transactions of many callers in one commit. Within a
// transaction, a Head holds what changes of a thread; it is read once and written once. The packages of the tables
// (messages, runs, files and others) write their rows through a Tx.
package txn

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// session runs a transaction's statements.
type session interface {
	sqldb.Querier
	// Write runs a statement whose result is not needed. It may be sent later, but always before the next read.
	Write(ctx context.Context, query string, args ...any) error
}

// pipelined is a session that may know threads before it reads them.
type pipelined interface {
	session
	// loadHead returns a thread as the transaction finds it, locked against other writers, or store.ErrNotFound.
	loadHead(ctx context.Context, id string) (*Head, error)
	// loadMore loads threads for loadHead, in as many round trips as one of them takes.
	loadMore(ctx context.Context, ids []string) error
	// writeHead is write for a thread's counters.
	writeHead(ctx context.Context, h *Head, query string, args ...any) error
	// checkFence reports whether the fence holds, where the session knows that (known) without a read.
	checkFence(h *Head, f *store.Fence) (known, holds bool)
	// optimistic reports whether the transaction may assume a row to be new that most likely is, because a wrong assumption
	// is detected when it is written.
	optimistic() bool
}

// Tx is one caller's transaction. One goroutine uses it.
type Tx struct {
	session
	Ctx           context.Context
	Now           int64
	Heads         []*Head
	Notifications []store.Notification
	// Quotas returns the quotas of a namespace (K8S-11).
	Quotas func(namespace string) store.Quotas
	// Freed has the keys of the threads some of whose messages a fork reads no more after this transaction. Remnants among them may have
	// no reader left (messages.CollectLeft).
	Freed []int64
	// lock is the dialect's query that locks a name.
	lock    string
	endings []ending
	gone    []string // ids of the threads that Forget was told of
}

// run runs fn and flushes. What the transaction does last is left in endings.
func (t *Tx) run(fn func(*Tx) error) error {
	return recovered(func() error {
		if err := fn(t); err != nil {
			return err
		}
		return t.flush()
	})
}

// recovered calls a caller's function. A panic becomes its error, so that it does not end the other callers' transactions.
func recovered(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a store transaction: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

// OneWriter reports whether this transaction's connection is the only one that writes. Its reads need no round trip, and no other transaction
// changes what they found.
func (t *Tx) OneWriter() bool { return t.lock == "" }

// Lock waits until no other transaction has locked the name, and keeps others from locking it until this one ends. It orders
// transactions of which one depends on a row that is not there, and another one writes that row.
func (t *Tx) Lock(name string) error {
	if t.OneWriter() {
		return nil
	}
	var one int
	return t.Row(t.Ctx, t.lock, []any{name}, &one)
}

// Exists reads the row with a unique key and reports whether it exists. Where the session can detect a repeat by
// writing, Exists does not read: a repeat makes the transaction run again, and then it reads.
func (t *Tx) Exists(query string, args []any, dst ...any) (bool, error) {
	if t.Assumes() {
		return false, nil
	}
	return sqldb.Found(t.Row(t.Ctx, query, args, dst...))
}

// Assumes reports whether the transaction may assume a row to be new that most likely is. See pipelined.optimistic.
func (t *Tx) Assumes() bool {
	p, ok := t.session.(pipelined)
	return ok && p.optimistic()
}
