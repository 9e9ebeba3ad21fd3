package run

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

// A transaction is one checkpoint of a run. It collects operations, and commit writes all of them at once: what is
// added to the conversation, the run's row, the state that code has changed, and the hooks that are to be called. The memory
// of the run changes only after that. Features add to a transaction; nothing else writes on behalf of a run.
//
// A transaction belongs to the goroutine of its run.
type transaction struct {
	run *run
	// point names the transaction to fault injection: commit passes point.before and point.after.
	point  string
	ops    []store.Op
	row    *store.PutRun // one of ops; nil while the transaction does not write the run's row
	scopes *scopes.Save  // nil while the transaction does not save what code has changed
}

// newTransaction returns an empty transaction. The point is a constant, so that the crash suites find it in the source.
func (r *run) newTransaction(point string) *transaction { return &transaction{run: r, point: point} }

// add appends operations.
func (tx *transaction) add(ops ...store.Op) { tx.ops = append(tx.ops, ops...) }

// putRun writes the run's row, at this place among the operations. The row becomes the run's record with the commit.
func (tx *transaction) putRun(row store.Run) {
	tx.row = &store.PutRun{Run: row}
	tx.add(tx.row)
}

// appendMessage appends a message to the conversation.
func (tx *transaction) appendMessage(m *store.Message) { tx.add(&store.AppendMessage{Message: m}) }

// createMessage appends a message and has after_create_message called for it.
func (tx *transaction) createMessage(ctx context.Context, m *store.Message) {
	tx.appendMessage(m)
	tx.run.hooks.AfterCreate(ctx, m)
}

// clear removes the conversation, if a handler has asked for that.
func (tx *transaction) clear() {
	if tx.run.destroys {
		tx.add(&store.Destroy{Reason: store.DestroyedExplicit, Within: true})
	}
}

// saveScopes stores the session's and the thread's state as code has left them. final is for the run's end: earlier transactions keep
// back changes that make the state too large.
//
// No change of a finished transaction is lost. Changes of one that a crash cuts off are lost with it when its work is repeated. The
// exception is what parallel calls, and code that waits for a prompt, had changed when a transaction beside or within theirs was
// committed (docs/adr/0035-what-code-waits-for.md).
func (tx *transaction) saveScopes(final bool) {
	if session := tx.run.code.Session(); session != nil {
		tx.scopes = session.Save(final)
		tx.add(tx.scopes.Ops...)
	}
}

// save writes the run as it stands now, with the state that code has changed, and commits the transaction.
func (tx *transaction) save(ctx context.Context) error {
	tx.putRun(tx.run.record)
	tx.saveScopes(false)
	return tx.commit(ctx)
}

// commit writes the transaction. After an error nothing of it was written, and the memory of the run has not changed.
func (tx *transaction) commit(ctx context.Context) error {
	r := tx.run
	r.service.fault(tx.point + ".before")
	tx.writeSessionState()
	ops, written := r.hooks.AddTo(tx.ops)
	mark := &store.Mark{}
	if err := r.service.opts.Store.Apply(ctx, r.Thread.ID, r.fence, append(ops, mark)...); err != nil {
		return err
	}
	tx.remember(ops, mark)
	written()
	r.service.fault(tx.point + ".after")
	return nil
}

// writeSessionState puts the session's state into the run's row.
func (tx *transaction) writeSessionState() {
	if tx.scopes == nil || tx.scopes.State == nil {
		return
	}
	if tx.row == nil {
		tx.putRun(tx.run.record)
	}
	tx.row.Run.SessionState = tx.scopes.State
}

// remember updates the memory of the run to what was written.
func (tx *transaction) remember(ops []store.Op, mark *store.Mark) {
	r := tx.run
	known := int64(0) // others have written since the last read
	if r.known == mark.Before {
		known = mark.After
	}
	for _, op := range ops {
		switch op := op.(type) {
		case *store.Destroy:
			r.conv, r.destroys = r.conv.Forget(), false
		case *store.AppendMessage:
			if op.Existed {
				known = 0
			}
			own := op.To == "" || op.To == r.Thread.ID
			if r.conv != nil && own && (r.Frame != nil || op.Message.Depth == 0 && !op.Existed) {
				r.conv.Add(*op.Message) // others belong to a called prompt, which reads them when it continues
			}
		case *store.Enqueue:
			if op.To == "" || op.To == r.Thread.ID {
				known = 0 // the run has to read the inbox again
			}
		}
	}
	r.known = known
	if tx.row != nil {
		r.record = tx.row.Run
		r.record.SessionState = nil // a later write of the row leaves the stored state as it is
	}
	if tx.scopes != nil {
		if tx.scopes.State != nil {
			r.code.Saved = tx.scopes.State // for an execution that replaces a lost one
		}
		tx.scopes.Done()
	}
}
