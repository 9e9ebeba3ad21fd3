package sqlstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
)

// maxDepth limits the depth of messages, because counts has an entry for each depth.
const maxDepth = 100

func (t *tx) appendMessage(h *head, op *store.AppendMessage) error {
	m := op.Message
	if m == nil {
		return errors.New("AppendMessage needs a message")
	}
	if op.To != "" && op.To != h.id {
		to, err := t.head(op.To)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if to.life.asleep&asleepRetained != 0 {
			return nil // a retained receiver counts as missing
		}
		h = to
	}
	if m.Depth < 0 || m.Depth > maxDepth {
		return fmt.Errorf("message %s: its depth is %d, it must be from 0 to %d", m.ID, m.Depth, maxDepth)
	}
	if m.ID == "" {
		m.ID = "msg_" + uuid.Must(uuid.NewV7()).String()
	} else if existed, err := t.existing(h, m); existed || err != nil {
		op.Existed = existed
		return err
	}
	if m.CreatedAt == 0 {
		m.CreatedAt = t.now
	}
	if m.Status == "" {
		m.Status = store.MessageCompleted
	}
	more, err := restOf(m)
	if err != nil {
		return err
	}
	m.Seq = h.next()
	var content any
	if m.Content != nil {
		content = *m.Content
	}
	if err := t.write(t.ctx, qInsertMessage, h.key, m.Seq, m.ID, string(m.Role), m.Silent, m.Depth, string(m.Status),
		m.CreatedAt, m.RunID, nullText(m.ToolCallID), content, more); err != nil {
		return err
	}
	h.counts.add(m.Depth, m.Silent, 1)
	h.appended++
	if m.Role == store.RoleUser {
		h.userAt = max(h.userAt, m.CreatedAt)
	}
	h.touch(store.ChangedLog)
	return nil
}

func (t *tx) updateMessage(h *head, op *store.UpdateMessage) error {
	m, err := t.find(h, op.ID)
	if err != nil {
		return fmt.Errorf("message %s: %w", op.ID, err)
	}
	if op.Content != nil {
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
		if err := t.recount(h, m.Seq, m.Depth, m.Silent, -1); err != nil {
			return err
		}
		m.Silent = *op.Silent
		if err := t.recount(h, m.Seq, m.Depth, m.Silent, 1); err != nil {
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
	if err := t.write(t.ctx, qUpdateMessage, m.Silent, string(m.Status), content, more, h.key, m.Seq); err != nil {
		return err
	}
	if op.Content != nil || op.Silent != nil {
		if err := t.write(t.ctx, qForget, h.key, m.Seq); err != nil {
			return err
		}
	}
	op.Updated = m
	_, err = t.log(h, store.Event{Type: store.EventMessageUpdated, RunID: m.RunID, MessageID: m.ID})
	return err
}

func (t *tx) deleteMessage(h *head, op *store.DeleteMessage) error {
	op.Deleted = false
	m, err := t.find(h, op.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	op.Deleted = true
	if err := t.dropMessage(h, m); err != nil {
		return err
	}
	if m.Role != store.RoleAssistant {
		return nil
	}
	for _, call := range m.ToolCalls {
		results, err := t.toolResults(h, call.ID, m.Seq)
		if err != nil {
			return err
		}
		for _, id := range results {
			r, err := t.find(h, id)
			if err != nil {
				return err
			}
			if err := t.dropMessage(h, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// toolResults returns the ids of the results of a call that follow a message.
func (t *tx) toolResults(h *head, callID string, after int64) (ids []string, err error) {
	add := func(query string, args ...any) error {
		results, err := list(t.ctx, t, scanMessage, query, args...)
		for _, m := range results {
			ids = append(ids, m.ID)
		}
		return err
	}
	if after < h.base {
		inherited, err := segments(t.ctx, t, qSegments, h.key, after)
		if err != nil {
			return nil, err
		}
		for _, s := range inherited {
			if s.source == h.key {
				continue
			}
			if err := add(qInheritedResults, s.source, callID, max(s.lo, after), s.hi); err != nil {
				return nil, err
			}
		}
	}
	err = add(qToolResults, h.key, callID, after)
	return ids, err
}

// dropMessage removes one of the thread's messages. Its creation stays in the log, which only grows (LOG-03).
func (t *tx) dropMessage(h *head, m *store.Message) error {
	for _, query := range []string{qDeleteMessage, qForget} {
		if err := t.write(t.ctx, query, h.key, m.Seq); err != nil {
			return err
		}
	}
	if m.Seq <= h.base {
		if err := t.write(t.ctx, qDeleteSegment, h.key, m.Seq-1); err != nil {
			return err
		}
	}
	if err := t.write(t.ctx, qInsertEvent, h.key, m.Seq, store.EventMessageCreated, m.RunID, m.ID, nil, m.CreatedAt); err != nil {
		return err
	}
	if err := t.recount(h, m.Seq, m.Depth, m.Silent, -1); err != nil {
		return err
	}
	_, err := t.log(h, store.Event{Type: store.EventMessageDeleted, RunID: m.RunID, MessageID: m.ID})
	return err
}

// existing reports whether the thread has a message with this id, and fills in its sequence number.
func (t *tx) existing(h *head, m *store.Message) (bool, error) {
	if h.base == 0 {
		return t.exists(qMessageSeq, []any{h.key, m.ID}, &m.Seq)
	}
	seq, err := t.has(h, m.ID)
	m.Seq = seq
	return found(err)
}

// payloadOf returns the id and the role of the message in an inbox item; "" for each that it lacks.
func payloadOf(payload json.RawMessage) (id string, role store.Role) {
	var m struct {
		ID   string     `json:"id"`
		Role store.Role `json:"role"`
	}
	_ = json.Unmarshal(payload, &m)
	return m.ID, m.Role
}
