package sqlstore

import (
	"context"
	"fmt"

	"github.com/skein-dev/skein/internal/store"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error {
	return s.writer.do(ctx, func(t *tx) error {
		h, err := t.head(threadID)
		if err != nil {
			return err
		}
		if fence != nil {
			if err := t.checkFence(h, fence); err != nil {
				return err
			}
		}
		return t.applyOnce(h, ops)
	}, touched(threadID, ops)...)
}

// touched returns the ids of the threads that ops on a thread may write.
func touched(threadID string, ops []store.Op) []string {
	threads := []string{threadID}
	for _, op := range ops {
		if e, ok := op.(*store.Enqueue); ok && e.To != "" && e.To != threadID {
			threads = append(threads, e.To)
		}
	}
	return threads
}

func (t *tx) applyAll(h *head, ops []store.Op) error {
	for _, op := range ops {
		if err := t.apply(h, op); err != nil {
			return err
		}
	}
	return nil
}

// checkFence returns store.ErrFenced unless the fence belongs to the present holder (THR-12). An expired lease still
// passes while nobody has taken it: the epoch is the fence, not the clock.
func (t *tx) checkFence(h *head, f *store.Fence) error {
	if p, ok := t.session.(pipelined); ok && f.ThreadID == h.id {
		if known, holds := p.checkFence(h, f); known && holds {
			return nil
		}
	}
	l, err := t.leaseOf(h)
	if err != nil {
		return err
	}
	if f.ThreadID != h.id || !l.heldBy(f) {
		return fmt.Errorf("thread %s: %w", h.id, store.ErrFenced)
	}
	return nil
}

func (t *tx) apply(h *head, op store.Op) error {
	if err := h.takes(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *store.AppendMessage:
		return t.appendMessage(h, op)
	case *store.UpdateMessage:
		return t.updateMessage(h, op)
	case *store.DeleteMessage:
		return t.deleteMessage(h, op)
	case *store.Mark:
		op.Before, op.After = h.seqBefore, h.lastSeq
		return nil
	case *store.Enqueue:
		return t.enqueue(h, op)
	case *store.Dequeue:
		return t.dequeue(h, op)
	case *store.Hold:
		return t.holdItem(h, op)
	case *store.PutRun:
		return t.putRun(h, op)
	case *store.AppendEvent:
		seq, err := t.log(h, op.Event)
		op.Event.Seq = seq
		return err
	case *store.TrimLines:
		return t.trimLines(h, op.Keep)
	case *store.PutValue:
		return t.putValue(h, op)
	case *store.PutFile:
		return t.putFile(h, op)
	case *store.RemoveFile:
		return t.removeFile(h, op)
	case *store.SetFileQuota:
		return t.setFileQuota(h, op)
	case *store.Handoff:
		return t.handOver(h, op)
	case *store.UpdateThread:
		return t.updateThread(h, op)
	case *store.MergeState:
		return t.mergeState(h, op)
	case *store.SkipState:
		return t.skipState(h, op)
	case *store.ImportConversation:
		return t.importConversation(h, op)
	case *store.ExpectActive:
		if h.terminatedAt != 0 {
			return fmt.Errorf("thread %s: %w", h.id, store.ErrTerminated)
		}
		return nil
	case *store.ExpectVersion:
		return t.expectVersion(h, op.Version)
	case *store.Fork:
		return t.fork(h, op)
	case *store.Truncate:
		return t.truncate(h, op)
	case *store.PutRelationship:
		return t.putRelationship(h, op)
	case *store.Terminate:
		return t.terminate(h, op)
	case *store.SetEnv:
		return t.setEnv(h, op)
	case *store.UnsetEnv:
		return t.unsetEnv(h, op)
	case *store.ScopeEnv:
		return t.scopeEnv(h, op)
	case *store.PutEmbedding:
		return t.putEmbedding(h, op)
	case *store.AddTaskUsage:
		return t.addTaskUsage(h, op)
	}
	if known, err := t.applyLife(h, op); known {
		return err
	}
	return fmt.Errorf("unknown store operation %T", op)
}
