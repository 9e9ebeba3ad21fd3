package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
)

// NewMessage describes a message to inject or to queue.
type NewMessage struct {
	ID          string     // generated when empty
	Role        store.Role // user when empty; "info" is a silent system message
	Content     *string
	Name        string
	Silent      bool
	Metadata    map[string]any
	Attachments []store.Attachment // files of this thread; only Path is required
	ToolCalls   []store.ToolCall
	ToolCallID  string
	ToolStatus  string // success or error, on results

	// The next fields apply to injected messages only.
	ParentID         string
	Depth            int                 // 0 to 100
	Status           store.MessageStatus // completed when empty
	ReasoningContent string

	// IdempotencyKey makes a repeat return the first result (MSG-10).
	IdempotencyKey string
	// Digest identifies what the caller sends under IdempotencyKey. With it another message under a used key fails with
	// store.ErrKeyReused. What the message becomes later, by hooks or by edits, does not count.
	Digest string
	// Unpark lets a parked thread continue with this message (MSG-08). Every message that is not FromSystem does so.
	Unpark bool
	// FromSystem messages do not count against the limit of waiting user messages (MSG-07).
	FromSystem bool
}

// MessageUpdate says what to change of a message; nil leaves a field as it is.
type MessageUpdate struct {
	Content    *string
	Metadata   map[string]any // merged; nil values remove keys
	Status     *store.MessageStatus
	ToolStatus *string
	Silent     *bool
}

// roleInfo is the name that other systems use for a silent system message.
const roleInfo store.Role = "info"

const (
	injectedPrefix = "msg_"
	queuedPrefix   = "queued-" // MSG-07
	maxPage        = 1000
	maxIDBytes     = 200
	maxDepth       = 100
)

// Messages returns a page (MSG-02). Queued messages come last, as pending and with metadata.queued = true (MSG-05),
// unless the query reads after a sequence number.
func (st *State) Messages(ctx context.Context, q store.MessageQuery) (*store.MessagePage, error) {
	switch {
	case q.Limit < 0 || q.Limit > maxPage:
		return nil, invalid("limit", "give a number from 1 to %d, or leave it out for 100", maxPage)
	case q.Offset < 0:
		return nil, invalid("offset", "give 0 or more")
	case q.MaxDepth < 0:
		return nil, invalid("maxDepth", "give 0 or more")
	case q.Order != "" && q.Order != "asc" && q.Order != "desc":
		return nil, invalid("order", `give "asc", "desc" or nothing, not %q`, q.Order)
	}
	q.IncludeQueued = q.AfterSeq == 0
	return st.svc.store.Messages(ctx, st.id, q)
}

// Message returns one message, also a queued one; nil when it does not exist (MSG-03).
func (st *State) Message(ctx context.Context, id string) (*store.Message, error) {
	m, err := st.storedMessage(ctx, id)
	if m != nil || err != nil {
		return m, err
	}
	item, err := st.svc.store.QueuedMessage(ctx, st.id, id)
	if err == nil {
		var queued store.Message
		if err := json.Unmarshal(item.Payload, &queued); err != nil {
			return nil, fmt.Errorf("inbox item %d of thread %s is not a message: %w", item.Seq, st.id, err)
		}
		queued.MarkQueued()
		return &queued, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	// The message may have moved from the inbox into the conversation between the two reads.
	return st.storedMessage(ctx, id)
}

func (st *State) storedMessage(ctx context.Context, id string) (*store.Message, error) {
	m, err := st.svc.store.Message(ctx, st.id, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return m, err
}

// Inject appends a message and never starts execution (MSG-04).
func (st *State) Inject(ctx context.Context, n NewMessage) (*store.Message, error) {
	m, err := st.prepare(ctx, n, injectedPrefix)
	if err != nil {
		return nil, err
	}
	with, err := st.callCreateHooks(ctx, m)
	if err != nil {
		return nil, err
	}
	op := &store.AppendMessage{Message: m, Bounded: !n.FromSystem}
	if err := st.Apply(ctx, append([]store.Op{op}, with...)...); err != nil {
		return nil, err
	}
	if op.Existed {
		return st.first(ctx, m)
	}
	return m, nil
}

// UpdateMessage merges metadata and replaces the given fields (MSG-06). It returns store.ErrNotFound when the message
// does not exist.
func (st *State) UpdateMessage(ctx context.Context, id string, u MessageUpdate) (*store.Message, error) {
	if err := st.svc.CheckUpdate(u); err != nil {
		return nil, err
	}
	with, err := st.callUpdateHooks(ctx, id, &u)
	if err != nil {
		return nil, err
	}
	op := &store.UpdateMessage{ID: id, Content: u.Content, Metadata: u.Metadata, Status: u.Status, ToolStatus: u.ToolStatus, Silent: u.Silent, Bounded: true}
	if err := st.Apply(ctx, append([]store.Op{op}, with...)...); err != nil {
		return nil, err
	}
	return op.Updated, nil
}

// CheckUpdate refuses updates that no message can take.
func (s *Service) CheckUpdate(u MessageUpdate) error {
	if u.Status != nil {
		switch *u.Status {
		case store.MessagePending, store.MessageCompleted, store.MessageFailed:
		default:
			return invalid("status", "give pending, completed or failed, not %q", *u.Status)
		}
	}
	if s := u.ToolStatus; s != nil && *s != "success" && *s != "error" {
		return invalid("tool_status", "give success or error, not %q", *s)
	}
	return s.checkSize("message", struct {
		Content  *string
		Metadata map[string]any
	}{u.Content, u.Metadata})
}

// DeleteMessage removes a message and the results of its tool calls, and reports whether it existed (MSG-06). A queued
// message is removed from the queue.
func (st *State) DeleteMessage(ctx context.Context, id string) (bool, error) {
	op := &store.DeleteMessage{ID: id}
	if err := st.Apply(ctx, op); err != nil || op.Deleted {
		return op.Deleted, err
	}
	item, err := st.svc.store.QueuedMessage(ctx, st.id, id)
	if err == nil {
		// If a run takes it in the meantime, it is in the conversation by then.
		return true, st.Apply(ctx, &store.Dequeue{Seqs: []int64{item.Seq}}, &store.DeleteMessage{ID: id},
			&store.AppendEvent{Event: store.Event{Type: store.EventMessageDeleted, MessageID: id}})
	}
	if !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	// The message may have moved from the inbox into the conversation between the two operations.
	err = st.Apply(ctx, op)
	return op.Deleted, err
}

// prepare checks a message's parts and fills in those that were left out.
func (st *State) prepare(ctx context.Context, n NewMessage, prefix string) (*store.Message, error) {
	for i, a := range n.Attachments {
		full, err := st.attachment(ctx, a)
		if err != nil {
			return nil, err
		}
		if i == 0 { // do not change the caller's slice
			n.Attachments = append([]store.Attachment(nil), n.Attachments...)
		}
		n.Attachments[i] = full
	}
	m, err := st.svc.build(st.id, n, prefix)
	if err != nil || n.IdempotencyKey == "" || n.Digest == "" {
		return m, err
	}
	return m, st.Claim(ctx, prefix+n.IdempotencyKey, n.Digest)
}

// build makes the message from its description and checks it.
func (s *Service) build(threadID string, n NewMessage, prefix string) (*store.Message, error) {
	switch n.Role {
	case "":
		n.Role = store.RoleUser
	case roleInfo: // MSG-01
		n.Role, n.Silent = store.RoleSystem, true
	}
	switch n.Role {
	case store.RoleSystem, store.RoleUser, store.RoleAssistant:
	case store.RoleTool:
		if n.ToolCallID == "" {
			return nil, invalid("tool_call_id", "a message of the role tool names the call that it answers")
		}
	default:
		return nil, invalid("role", "give system, user, assistant or tool, not %q", n.Role)
	}
	if n.Content == nil && len(n.ToolCalls) == 0 && len(n.Attachments) == 0 {
		return nil, invalid("content", "a message needs content, attachments or tool calls")
	}
	switch n.Status {
	case "", store.MessagePending, store.MessageCompleted, store.MessageFailed:
	default:
		return nil, invalid("status", "give pending, completed or failed, not %q", n.Status)
	}
	if n.Depth < 0 || n.Depth > maxDepth {
		return nil, invalid("depth", "give a number from 0 to %d", maxDepth)
	}
	if len(n.ID) > maxIDBytes || len(n.IdempotencyKey) > maxIDBytes {
		return nil, invalid("id", "ids and idempotency keys have at most %d bytes", maxIDBytes)
	}
	if n.ID == "" {
		n.ID = prefix + messageUUID(threadID, n.IdempotencyKey)
	}
	m := &store.Message{
		ID: n.ID, Role: n.Role, Content: n.Content, Name: n.Name, ToolCalls: n.ToolCalls, ToolCallID: n.ToolCallID,
		CreatedAt: s.now(), Silent: n.Silent, Metadata: n.Metadata, Attachments: n.Attachments, ToolStatus: n.ToolStatus,
		ParentID: n.ParentID, Depth: n.Depth, Status: n.Status, ReasoningContent: n.ReasoningContent,
	}
	return m, s.checkSize("message", m)
}

// messageUUID returns a random id without a key, and always the same one for a key, so that a repeat finds the first
// message.
func messageUUID(threadID, key string) string {
	if key != "" {
		return uuid.NewSHA1(uuid.NameSpaceOID, []byte(threadID+"\x00"+key)).String()
	}
	return uuid.Must(uuid.NewV7()).String()
}

// first returns the message that an earlier call with the same id or key created.
func (st *State) first(ctx context.Context, again *store.Message) (*store.Message, error) {
	m, err := st.Message(ctx, again.ID)
	if err == nil && m == nil { // it was deleted since
		return again, nil
	}
	return m, err
}
