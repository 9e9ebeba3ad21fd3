package messages

import (
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/inbox"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/quotas"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// maxDepth limits the depth of messages, because counts has an entry for each depth.
const maxDepth = 100

// Append adds a message to the thread, or to op.To.
func Append(t *txn.Tx, h *txn.Head, op *store.AppendMessage) error {
	m := op.Message
	if m == nil {
		return errors.New("AppendMessage needs a message")
	}
	if op.To != "" && op.To != h.ID {
		to, err := t.HeadIn(h.Namespace, op.To)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if to.Life.Asleep&txn.AsleepRetained != 0 {
			return nil // a retained receiver counts as missing
		}
		h = to
	}
	if err := h.Whole(); err != nil {
		return err
	}
	if m.Depth < 0 || m.Depth > maxDepth {
		return fmt.Errorf("message %s: its depth is %d, it must be from 0 to %d", m.ID, m.Depth, maxDepth)
	}
	if m.ID == "" {
		m.ID = "msg_" + uuid.Must(uuid.NewV7()).String()
	} else if existed, err := hasMessage(t, h, m); existed || err != nil {
		op.Existed = existed
		return err
	}
	if m.CreatedAt == 0 {
		m.CreatedAt = t.Now
	}
	if m.Status == "" {
		m.Status = store.MessageCompleted
	}
	summaryTo, err := setSummaryRange(t, h, m)
	if err != nil {
		return err
	}
	more, err := restOf(m)
	if err != nil {
		return err
	}
	m.Seq = h.Next()
	var content any
	if m.Content != nil {
		content = *m.Content
	}
	if err := t.Write(t.Ctx, queries.InsertMessage, h.Key, m.Seq, m.ID, string(m.Role), m.Silent, m.Depth, string(m.Status),
		m.CreatedAt, m.RunID, sqldb.NullText(m.ToolCallID), content, more, summaryTo); err != nil {
		return err
	}
	h.Counts.Add(m.Depth, m.Silent, 1)
	h.Appended++
	if m.Role == store.RoleUser {
		h.UserAt = max(h.UserAt, m.CreatedAt)
	}
	h.Touch(store.ChangedLog)
	if op.Bounded {
		quotas.Messages(t, h.Namespace)
	}
	return nil
}

// Update changes a message.
func Update(t *txn.Tx, h *txn.Head, op *store.UpdateMessage) error {
	m, copied, err := findToChange(t, h, op.ID)
	if err != nil {
		return fmt.Errorf("message %s: %w", op.ID, err)
	}
	before, err := restOf(m)
	if err != nil {
		return err
	}
	size := sizeOf(m, before) // now, since what follows changes m
	if op.Content != nil {
		if m.Content == nil || *m.Content != *op.Content {
			if err := dropSummaries(t, h, m.Seq); err != nil {
				return err
			}
		}
		m.Content = op.Content
	}
	if len(op.Metadata) > 0 {
		merged := maps.Clone(m.Metadata)
		if merged == nil {
			merged = map[string]any{}
		}
		for k, v := range op.Metadata {
			if v == nil {
				delete(merged, k)
			} else {
				merged[k] = v
			}
		}
		m.Metadata = merged
	}
	if op.Status != nil {
		m.Status = *op.Status
	}
	if op.ToolStatus != nil {
		m.ToolStatus = *op.ToolStatus
	}
	if op.Silent != nil && *op.Silent != m.Silent {
		if err := recount(t, h, m.Seq, m.Depth, m.Silent, -1); err != nil {
			return err
		}
		m.Silent = *op.Silent
		if err := recount(t, h, m.Seq, m.Depth, m.Silent, 1); err != nil {
			return err
		}
	}
	more, err := restOf(m)
	if err != nil {
		return err
	}
	var content any
	if m.Content != nil {
		content = *m.Content
	}
	if err := t.Write(t.Ctx, queries.UpdateMessage, m.Silent, string(m.Status), content, more, h.Key, m.Seq); err != nil {
		return err
	}
	if op.Bounded && (copied || sizeOf(m, more) > size) {
		quotas.Messages(t, h.Namespace)
	}
	if op.Content != nil || op.Silent != nil {
		if err := t.Write(t.Ctx, queries.Forget, h.Key, m.Seq); err != nil {
			return err
		}
	}
	op.Updated = m
	_, err = t.Log(h, store.Event{Type: store.EventMessageUpdated, RunID: m.RunID, MessageID: m.ID})
	return err
}

// Delete removes a message, with the results of its tool calls.
func Delete(t *txn.Tx, h *txn.Head, op *store.DeleteMessage) error {
	op.Deleted = false
	m, err := find(t, h, op.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	op.Deleted = true
	if err := dropMessage(t, h, m); err != nil {
		return err
	}
	if err := dropSummaries(t, h, m.Seq); err != nil {
		return err
	}
	if m.Role != store.RoleAssistant || len(m.ToolCalls) == 0 {
		return nil
	}
	for _, call := range m.ToolCalls {
		results, err := toolResults(t, h, call.ID, m.Seq)
		if err != nil {
			return err
		}
		for _, id := range results {
			r, err := find(t, h, id)
			if err != nil {
				return err
			}
			if err := dropMessage(t, h, r); err != nil {
				return err
			}
			if err := dropSummaries(t, h, r.Seq); err != nil {
				return err
			}
		}
	}
	return inbox.Wake(t, h, queries.RunWaits) // it may have waited for a call that is not in the conversation any more
}

// toolResults returns the ids of the results of a call that follow a message.
func toolResults(t *txn.Tx, h *txn.Head, callID string, after int64) (ids []string, err error) {
	add := func(query string, args ...any) error {
		results, err := sqldb.List(t.Ctx, t, Scan, query, args...)
		for _, m := range results {
			ids = append(ids, m.ID)
		}
		return err
	}
	if after < h.Base {
		inherited, err := Segments(t.Ctx, t, queries.Segments, h.Key, after)
		if err != nil {
			return nil, err
		}
		for _, s := range inherited {
			if s.Source == h.Key {
				continue
			}
			if err := add(queries.InheritedResults, s.Source, callID, max(s.Lo, after), s.Hi); err != nil {
				return nil, err
			}
		}
	}
	err = add(queries.ToolResults, h.Key, callID, after)
	return ids, err
}

// dropMessage removes one of the thread's messages. Its creation stays in the log, which only grows (LOG-03).
func dropMessage(t *txn.Tx, h *txn.Head, m *store.Message) error {
	for _, query := range []string{queries.DeleteMessage, queries.Forget} {
		if err := t.Write(t.Ctx, query, h.Key, m.Seq); err != nil {
			return err
		}
	}
	if m.Seq <= h.Base {
		if err := t.Write(t.Ctx, queries.DeleteSegment, h.Key, m.Seq-1); err != nil {
			return err
		}
	}
	if err := t.Write(t.Ctx, queries.InsertEvent, h.Key, m.Seq, store.EventMessageCreated, m.RunID, m.ID, nil, m.CreatedAt); err != nil {
		return err
	}
	if err := recount(t, h, m.Seq, m.Depth, m.Silent, -1); err != nil {
		return err
	}
	_, err := t.Log(h, store.Event{Type: store.EventMessageDeleted, RunID: m.RunID, MessageID: m.ID})
	return err
}

// hasMessage reports whether the thread has a message with this id, and fills in its sequence number.
func hasMessage(t *txn.Tx, h *txn.Head, m *store.Message) (bool, error) {
	if h.Base == 0 {
		return t.Exists(queries.MessageSeq, []any{h.Key, m.ID}, &m.Seq)
	}
	seq, err := has(t, h, m.ID)
	m.Seq = seq
	return sqldb.Found(err)
}
