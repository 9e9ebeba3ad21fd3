package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Page says which calls a list has.
type Page struct {
	Limit, Offset int // a Limit of 0 is none
	// MaxBytes ends the page early, behind at least one call, before its calls take more bytes of memory; 0 for no such bound.
	MaxBytes int64
}

// Bytes returns about how many bytes of memory the call takes.
func (c *Call) Bytes() int64 {
	n := 512 + len(c.Name) + len(c.Arguments)
	if d := c.Decision; d != nil {
		n += len(d.Reason) + len(d.Arguments)
	}
	return int64(n)
}

// List returns a page of the calls of a thread's run that wait for approval, or were decided on and are about to be made, in the order in
// which they were requested. more reports that others follow. It holds the arguments and the decisions of the calls on the page alone.
func (s *Service) List(ctx context.Context, threadID string, p Page) (page []Call, more bool, err error) {
	messages := s.callMessages(threadID)
	all, err := s.waitingCalls(ctx, messages)
	if err != nil {
		return nil, false, err
	}
	all = all[min(p.Offset, len(all)):]
	left := p.MaxBytes
	for i := range all {
		a := &all[i].Call
		if p.Limit > 0 && len(page) == p.Limit {
			return page, true, nil
		}
		if err := messages.describe(ctx, all[i].messageID, a); err != nil {
			return nil, false, err
		}
		if a.Decision, err = s.decisionOn(ctx, threadID, a.ToolCallID); err != nil {
			return nil, false, err
		}
		if left -= a.Bytes(); p.MaxBytes > 0 && left < 0 && len(page) > 0 {
			return page, true, nil
		}
		page = append(page, *a)
	}
	return page, false, nil
}

// waitingCall is a call that waits, without its arguments and its decision.
type waitingCall struct {
	Call
	messageID string // of the message that makes it
	order     int    // of the call within that message
}

// waitingCalls returns all calls of a thread that wait, in the order in which they were requested.
func (s *Service) waitingCalls(ctx context.Context, messages *callMessages) (all []waitingCall, err error) {
	r, state, err := s.runUnderWay(ctx, messages.threadID)
	if r == nil || err != nil {
		return nil, err
	}
	for id, w := range state.Waits {
		if w.Kind == tool.WaitApproval {
			all = append(all, waitingCall{Call: Call{RunID: r.ID, ToolCallID: id, RequestedAt: w.Since, ExpiresAt: w.Until}, messageID: w.MessageID})
		}
	}
	slices.SortFunc(all, func(a, b waitingCall) int { // so that each message is read once
		return cmp.Or(cmp.Compare(a.RequestedAt, b.RequestedAt), cmp.Compare(a.messageID, b.messageID))
	})
	for i := range all {
		if all[i].order, _, err = messages.find(ctx, all[i].messageID, all[i].ToolCallID); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b waitingCall) int {
		return cmp.Or(cmp.Compare(a.RequestedAt, b.RequestedAt), cmp.Compare(a.order, b.order))
	})
	return all, nil
}

// decisionOn returns the decision on a call that still waits in the inbox, or nil.
func (s *Service) decisionOn(ctx context.Context, threadID, callID string) (*store.Approval, error) {
	item, err := s.store.InboxItem(ctx, threadID, keyOf(callID))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var d store.ApprovalDecision
	if item.Kind != store.InboxApproval || json.Unmarshal(item.Payload, &d) != nil {
		return nil, nil
	}
	return &d.Approval, nil
}

// callMessages reads the messages of a thread that make calls. It keeps the last one, which most often makes the next call too.
type callMessages struct {
	store    store.Store
	threadID string
	id       string
	last     *store.Message // nil when it was deleted, or none was read
}

// callMessages returns a reader of the messages of a thread.
func (s *Service) callMessages(threadID string) *callMessages {
	return &callMessages{store: s.store, threadID: threadID}
}

// find returns a call of a message, and its place among the calls of the message. It returns nil if the message was deleted.
func (c *callMessages) find(ctx context.Context, messageID, callID string) (order int, call *store.ToolCall, err error) {
	if c.id != messageID {
		m, err := c.store.Message(ctx, c.threadID, messageID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, nil, err
		}
		c.id, c.last = messageID, m
	}
	if c.last == nil {
		return 0, nil, nil
	}
	for i := range c.last.ToolCalls {
		if c.last.ToolCalls[i].ID == callID {
			return i, &c.last.ToolCalls[i], nil
		}
	}
	return 0, nil, nil
}

// describe adds the name and the arguments of a call from the message that makes it.
func (c *callMessages) describe(ctx context.Context, messageID string, a *Call) error {
	_, call, err := c.find(ctx, messageID, a.ToolCallID)
	if call != nil {
		a.Name, a.Arguments = call.Name, call.Arguments
	}
	return err
}
