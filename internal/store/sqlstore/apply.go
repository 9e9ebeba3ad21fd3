package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/env"
	"github.com/skein-dev/skein/internal/store/sqlstore/eventlog"
	"github.com/skein-dev/skein/internal/store/sqlstore/files"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/relations"
	"github.com/skein-dev/skein/internal/store/sqlstore/runs"
	"github.com/skein-dev/skein/internal/store/sqlstore/search"
	"github.com/skein-dev/skein/internal/store/sqlstore/threads"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
	"github.com/skein-dev/skein/internal/store/sqlstore/values"
	"github.com/skein-dev/skein/internal/store/sqlstore/webhooks"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, threadID string, fence *store.Fence, ops ...store.Op) error {
	cut, freed := false, []int64(nil)
	err := s.whole(ctx, func() error {
		return s.db.Writer.Do(ctx, func(t *txn.Tx) error {
			h, err := t.Head(threadID)
			if err != nil {
				return err
			}
			if fence != nil {
				if err := t.CheckFence(h, fence); err != nil {
					return err
				}
			}
			err = applyOnce(t, h, ops)
			cut, freed = h.Cuts(), t.Freed
			return err
		}, touched(threadID, ops)...)
	})
	if err == nil && cut {
		// The removal is decided. What this does not finish is left for FinishRemovals, or for the next writer.
		_, _ = messages.FinishRemoval(ctx, s.db, threadID)
	}
	if err == nil {
		_ = messages.CollectLeft(ctx, s.db, freed) // what this does not remove is left for SweepRemnants
	}
	return err
}

// whole runs a transaction. When it needs messages of a thread of which some are being removed, it first helps to remove
// them, and then runs it again.
func (s *Store) whole(ctx context.Context, do func() error) error {
	for {
		err := do()
		var cut *txn.CutError
		if !errors.As(err, &cut) {
			return err
		}
		// Another writer may have removed the last ones meanwhile, so what this call has removed says nothing.
		if _, err := messages.FinishRemoval(ctx, s.db, cut.ThreadID); err != nil {
			return err
		}
	}
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

func applyAll(t *txn.Tx, h *txn.Head, ops []store.Op) error {
	for _, op := range ops {
		if err := apply(t, h, op); err != nil {
			return err
		}
	}
	return nil
}

func apply(t *txn.Tx, h *txn.Head, op store.Op) error {
	if err := h.Takes(op); err != nil {
		return err
	}
	switch op := op.(type) {
	case *store.AppendMessage:
		return messages.Append(t, h, op)
	case *store.UpdateMessage:
		return messages.Update(t, h, op)
	case *store.DeleteMessage:
		return messages.Delete(t, h, op)
	case *store.Mark:
		op.Before, op.After = h.SeqBefore, h.LastSeq
		return nil
	case *store.Enqueue:
		return inbox.Enqueue(t, h, op)
	case *store.Dequeue:
		return inbox.Dequeue(t, h, op)
	case *store.Delay:
		return inbox.Delay(t, h, op)
	case *store.PutRun:
		return runs.Put(t, h, op)
	case *store.AppendEvent:
		return appendEvent(t, h, op)
	case *store.TrimLines:
		return eventlog.TrimLines(t, h, op.Keep)
	case *store.PutValue:
		return values.Put(t, h, op)
	case *store.PutFile:
		return files.Put(t, h, op)
	case *store.RemoveFile:
		return files.Remove(t, h, op)
	case *store.SetFileQuota:
		return files.SetQuota(t, h, op)
	case *store.Handoff:
		return threads.HandOver(t, h, op)
	case *store.UpdateThread:
		return threads.Update(t, h, op)
	case *store.MergeState:
		return values.MergeState(t, h, op)
	case *store.SkipState:
		return values.SkipState(t, h, op)
	case *store.ImportConversation:
		return messages.Import(t, h, op)
	case *store.ExpectActive:
		if h.TerminatedAt != 0 || h.Deleting() {
			return fmt.Errorf("thread %s: %w", h.ID, store.ErrTerminated)
		}
		return nil
	case *store.ExpectVersion:
		return t.ExpectVersion(h, op.Version)
	case *store.Fork:
		return messages.Fork(t, h, op)
	case *store.Truncate:
		return messages.Truncate(t, h, op)
	case *store.PutRelationship:
		return relations.Put(t, h, op, messages.SeqAt)
	case *store.Terminate:
		return threads.Terminate(t, h, op)
	case *store.SetEnv:
		return env.Set(t, h, op)
	case *store.UnsetEnv:
		return env.Unset(t, h, op)
	case *store.ScopeEnv:
		return env.Scope(t, h, op)
	case *store.PutEmbedding:
		return search.PutEmbedding(t, h, op)
	case *store.AddTaskUsage:
		return runs.AddTaskUsage(t, h, op)
	case *store.AwaitQuota:
		return quotas.Await(t, h, op)
	}
	if known, err := applyLife(t, h, op); known {
		return err
	}
	return fmt.Errorf("unknown store operation %T", op)
}

// appendEvent logs an event, and queues what webhooks are told of it.
func appendEvent(t *txn.Tx, h *txn.Head, op *store.AppendEvent) (err error) {
	if op.Event.Seq, err = t.Log(h, op.Event); err != nil || op.Event.Type != store.EventApprovalRequested {
		return err
	}
	data := map[string]any{}
	if err := json.Unmarshal(op.Event.Data, &data); err != nil {
		return fmt.Errorf("data of %s: %w", op.Event.Type, err)
	}
	data["runId"], data["messageId"] = op.Event.RunID, op.Event.MessageID
	return webhooks.QueueOfThread(t, h, store.WebhookApprovalWanted, "", strconv.FormatInt(op.Event.Seq, 10), func() map[string]any { return data })
}

// applyLife applies the operations of ops_life.go. known is false for others.
func applyLife(t *txn.Tx, h *txn.Head, op store.Op) (known bool, err error) {
	switch op := op.(type) {
	case *store.Destroy:
		return true, threads.Destroy(t, h, op)
	case *store.SetIdleExpiry:
		return true, threads.SetIdleExpiry(t, h, op.Expiry)
	case *store.Park:
		return true, threads.Park(t, h, op)
	case *store.Continue:
		return true, threads.Continue(t, h, op)
	case *store.Revoke:
		return true, t.Revoke(h)
	case *store.Retain:
		return true, threads.Retain(t, h, op)
	case *store.Adopt:
		return true, threads.Adopt(t, h, op)
	case *store.ExpectRoot:
		if h.ParentID != "" {
			return true, fmt.Errorf("thread %s: %w", h.ID, store.ErrHasParent)
		}
		return true, nil
	case *store.Attach:
		return true, threads.Attach(t, h, op)
	case *store.MarkForPurge:
		return true, threads.MarkPurged(t, h)
	}
	return false, nil
}
