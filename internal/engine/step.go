package engine

import (
	"context"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/scopes"
)

// A step is one checkpoint of a run. It collects operations, and commit writes all of them in one transaction: what is
// added to the conversation, the run's row, the state that code has changed, and the hooks that are to be called. The memory
// of the run changes only after that transaction. Features add to a step; nothing else writes on behalf of a run.
//
// A step belongs to the goroutine of its run.
type step struct {
	run *run
	// point names the step to fault injection: commit passes point.before and point.after.
	point  string
	ops    []store.Op
	row    *store.PutRun // one of ops; nil while the step does not write the run's row
	scopes *scopes.Save  // nil while the step does not save what code has changed
}

// newStep returns an empty step. The point is a constant, so that the crash suites find it in the source.
func (r *run) newStep(point string) *step { return &step{run: r, point: point} }

// add appends operations.
func (s *step) add(ops ...store.Op) { s.ops = append(s.ops, ops...) }

// checkpoint writes the run's row, at this place among the operations. The row becomes the run's record with the commit.
func (s *step) checkpoint(row store.Run) {
	s.row = &store.PutRun{Run: row}
	s.add(s.row)
}

// appendMessage appends a message to the conversation.
func (s *step) appendMessage(m *store.Message) { s.add(&store.AppendMessage{Message: m}) }

// createMessage appends a message and has after_create_message called for it.
func (s *step) createMessage(ctx context.Context, m *store.Message) {
	s.appendMessage(m)
	s.run.hooks.AfterCreate(ctx, m)
}

// clear removes the conversation, if a handler has asked for that.
func (s *step) clear() {
	if s.run.destroys {
		s.add(&store.Destroy{Reason: store.DestroyedExplicit, Within: true})
	}
}

// saveScopes stores the session's and the thread's state as code has left them. final is for the run's end: earlier steps keep
// back changes that make the state too large.
//
// No change of a finished step is lost. Changes of a step that a crash cuts off are lost with it when it is repeated. The
// exception is what parallel calls, and code that waits for a prompt, had changed when a step beside or within theirs was
// committed (docs/adr/0035-what-code-waits-for.md).
func (s *step) saveScopes(final bool) {
	if session := s.run.code.Session(); session != nil {
		s.scopes = session.Save(final)
		s.add(s.scopes.Ops...)
	}
}

// save writes the run as it stands now, with the state that code has changed, and commits the step.
func (s *step) save(ctx context.Context) error {
	s.checkpoint(s.run.record)
	s.saveScopes(false)
	return s.commit(ctx)
}

// commit writes the step. After an error nothing of it was written, and the memory of the run has not changed.
func (s *step) commit(ctx context.Context) error {
	r := s.run
	r.engine.fault(s.point + ".before")
	s.writeSessionState()
	ops, written := r.hooks.AddTo(s.ops)
	mark := &store.Mark{}
	if err := r.engine.store.Apply(ctx, r.Thread.ID, r.fence, append(ops, mark)...); err != nil {
		return err
	}
	s.remember(ops, mark)
	written()
	r.engine.fault(s.point + ".after")
	return nil
}

// writeSessionState puts the session's state into the run's row.
func (s *step) writeSessionState() {
	if s.scopes == nil || s.scopes.State == nil {
		return
	}
	if s.row == nil {
		s.checkpoint(s.run.record)
	}
	s.row.Run.SessionState = s.scopes.State
}

// remember updates the memory of the run to what the transaction has written.
func (s *step) remember(ops []store.Op, mark *store.Mark) {
	r := s.run
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
	if s.row != nil {
		r.record = s.row.Run
		r.record.SessionState = nil // a later write of the row leaves the stored state as it is
	}
	if s.scopes != nil {
		if s.scopes.State != nil {
			r.code.Saved = s.scopes.State // for an execution that replaces a lost one
		}
		s.scopes.Done()
	}
}
