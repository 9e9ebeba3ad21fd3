package code

import (
	"context"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// messageInput is the argument of injectMessage and queueMessage.
type messageInput struct {
	ID          string             `json:"id"`
	Role        store.Role         `json:"role"`
	Content     *string            `json:"content"`
	Name        string             `json:"name"`
	Silent      bool               `json:"silent"`
	Metadata    map[string]any     `json:"metadata"`
	Attachments []store.Attachment `json:"attachments"`
	ToolCalls   []store.ToolCall   `json:"tool_calls"`
	ToolCallID  string             `json:"tool_call_id"`
	ToolStatus  string             `json:"tool_status"`
}

func (c *stateCall) message() (thread.NewMessage, error) {
	var in messageInput
	if text, ok := c.arg(0).(string); ok {
		in.Content = &text
	} else if c.arg(0) == nil {
		return thread.NewMessage{}, c.wrong(0, "the message, an object with content")
	} else if err := c.into(0, "the message", &in); err != nil {
		return thread.NewMessage{}, err
	}
	return thread.NewMessage{
		ID: in.ID, Role: in.Role, Content: in.Content, Name: in.Name, Silent: in.Silent, Metadata: in.Metadata,
		Attachments: in.Attachments, ToolCalls: in.ToolCalls, ToolCallID: in.ToolCallID, ToolStatus: in.ToolStatus,
		IdempotencyKey: c.key(), FromSystem: true,
	}, nil
}

// maxPageBytes bounds the texts of a page, as in the runtime API.
const maxPageBytes = 8 << 20

func getMessages(ctx context.Context, c *stateCall) (any, error) {
	var o struct {
		Limit         int    `json:"limit"`
		Offset        int    `json:"offset"`
		Order         string `json:"order"`
		IncludeSilent bool   `json:"includeSilent"`
		MaxDepth      int    `json:"maxDepth"`
	}
	if err := c.into(0, "the options", &o); err != nil {
		return nil, err
	}
	adjust, err := membudget.Reserve(ctx, maxPageBytes)
	if err != nil {
		return nil, err
	}
	page, err := c.host.State.Messages(ctx, store.MessageQuery{
		Limit: o.Limit, Offset: o.Offset, Order: o.Order, IncludeSilent: o.IncludeSilent, MaxDepth: o.MaxDepth, MaxBytes: maxPageBytes,
	})
	if err != nil {
		return nil, err
	}
	adjust(page.Bytes())
	return page, nil
}

func getMessage(ctx context.Context, c *stateCall) (any, error) {
	id, err := c.text(0, "message's id")
	if err != nil {
		return nil, err
	}
	m, err := c.host.State.Message(ctx, id)
	if err != nil || m == nil {
		return nil, err
	}
	return m, nil
}

func injectMessage(ctx context.Context, c *stateCall) (any, error) {
	m, err := c.message()
	if err != nil {
		return nil, err
	}
	return c.host.State.Inject(ctx, m)
}

func queueMessage(ctx context.Context, c *stateCall) (any, error) {
	_, err := sendMessage(ctx, c)
	return nil, err
}

func sendMessage(ctx context.Context, c *stateCall) (any, error) {
	m, err := c.message()
	if err != nil {
		return nil, err
	}
	return c.host.State.Queue(ctx, m)
}

func updateMessage(ctx context.Context, c *stateCall) (any, error) {
	id, err := c.text(0, "message's id")
	if err != nil {
		return nil, err
	}
	var u struct {
		Content    *string              `json:"content"`
		Metadata   map[string]any       `json:"metadata"`
		Status     *store.MessageStatus `json:"status"`
		ToolStatus *string              `json:"tool_status"`
		Silent     *bool                `json:"silent"`
	}
	if err := c.into(1, "the updates", &u); err != nil {
		return nil, err
	}
	defer c.edited()
	return c.host.State.UpdateMessage(ctx, id, thread.MessageUpdate{
		Content: u.Content, Metadata: u.Metadata, Status: u.Status, ToolStatus: u.ToolStatus, Silent: u.Silent,
	})
}

func deleteMessage(ctx context.Context, c *stateCall) (any, error) {
	id, err := c.text(0, "message's id")
	if err != nil {
		return nil, err
	}
	defer c.edited()
	return c.host.State.DeleteMessage(ctx, id)
}
