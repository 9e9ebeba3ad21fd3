// Package messages serves the messages of a thread and its queue.
package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Engine is the part of the engine that messages need.
type Engine interface {
	// MessageHooks returns the hooks that writes of messages pass (HOK-01), or nil.
	MessageHooks(ctx context.Context, t *store.Thread) thread.MessageHooks
	// Queue queues a message with a policy (RUN-09).
	Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error)
	// Compact asks for a summary of older messages and returns the id of the request (MSG-12).
	Compact(ctx context.Context, threadID, key, side string) (request string, err error)
}

// Handler serves the messages of a thread and its queue.
type Handler struct {
	Engine Engine
	Access *access.Reviews
}

// allDepths is the value of maxDepth that selects messages of every depth.
const allDepths = -1

// maxPageBytes bounds the texts of a page: a message may have a mebibyte, and a page a thousand of them.
const maxPageBytes = 8 << 20

// List answers GET messages (MSG-02, MSG-05).
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	mq := store.MessageQuery{Limit: limit, Offset: offset, Order: q.OneOf("order", "asc", "desc"), IncludeSilent: q.Flag("includeSilent", false), MaxBytes: maxPageBytes}
	if depth := q.Number("maxDepth", 0, allDepths, math.MaxInt32); depth == allDepths {
		mq.AllDepths = true
	} else {
		mq.MaxDepth = depth
	}
	if err := q.Check(); err != nil {
		return err
	}
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, err := c.Thread.Messages(c.Context(), mq)
	if err != nil {
		return err
	}
	adjust(page.Bytes())
	return c.WriteJSON(http.StatusOK, messageList(page))
}

// Get answers GET messages/{id}.
func (h *Handler) Get(c *call.Call) error {
	m, err := c.Thread.Message(c.Context(), c.Rest())
	if err != nil {
		return err
	}
	if m == nil {
		return status.NotFound(c.Name, "thread %q has no message %q: GET messages lists them", c.Name, c.Rest())
	}
	return c.WriteJSON(http.StatusOK, convert.Message(m))
}

// Inject answers POST messages: it stores a message and never starts execution (MSG-04).
func (h *Handler) Inject(c *call.Call) error {
	n, policy, err := newMessage(c)
	if err != nil {
		return err
	}
	if policy != "" {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "policy", "an injected message does not affect runs: leave the policy out, or queue the message")
	}
	m, err := h.threadWithHooks(c).Inject(c.Context(), n)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusCreated, convert.Message(m))
}

// Queue answers POST queue: it queues a message durably and starts execution (MSG-05).
func (h *Handler) Queue(c *call.Call) error {
	n, policy, err := newMessage(c)
	if err != nil {
		return err
	}
	if err := h.mayEnd(c, policy); err != nil {
		return err
	}
	switch {
	case n.Role != "" && n.Role != store.RoleUser && n.Role != store.RoleSystem && n.Role != runtimev1.RoleInfo:
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueNotSupported, "role", "a queued message is from the user or the system; inject others with POST messages")
	case n.ParentID != "" || n.Depth != 0 || n.Status != "" || n.ReasoningContent != "":
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "status", "a queued message has no parent, depth, status or reasoning; inject those with POST messages")
	case len(n.ToolCalls) > 0 || n.ToolCallID != "" || n.ToolStatus != "":
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "tool_calls", "a queued message has no tool calls or results; inject those with POST messages")
	}
	m, err := h.Engine.Queue(c.Context(), h.threadWithHooks(c), c.Row, n, policy)
	if errors.Is(err, store.ErrRunning) {
		e := status.Conflict(c.Name, "a run is under way or about to start, and the policy reject refuses the message in that case: wait until the run has ended, or use the policy enqueue, interrupt or rollback")
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: runtimev1.CauseBusy, Message: "a run is under way"}}
		return e
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusCreated, convert.Message(m))
}

// mayEnd refuses an unknown policy. It also refuses a policy that ends a run when the caller may not stop runs.
func (h *Handler) mayEnd(c *call.Call, policy skeinv1.RunPolicy) error {
	switch policy {
	case "", skeinv1.RunPolicyEnqueue, skeinv1.RunPolicyReject:
		return nil
	case skeinv1.RunPolicyInterrupt, skeinv1.RunPolicyRollback:
		allowed, err := h.Access.May(c.Context(), "create", runtimev1.SubresourceStop, c.Namespace, c.Name)
		if err != nil || allowed {
			return err
		}
		return apierrors.NewForbidden(status.ThreadsResource, c.Name, fmt.Errorf("the policy %s ends a run, which needs the right to create threads/stop", policy))
	}
	return status.Invalid(c.Name, metav1.CauseTypeFieldValueNotSupported, "policy", "it must be enqueue, reject, interrupt or rollback; or leave it out")
}

// ListQueue answers GET queue: the waiting messages, in order.
func (h *Handler) ListQueue(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, err := c.Thread.QueuedMessages(c.Context(), store.MessageQuery{Limit: limit, Offset: offset, MaxBytes: maxPageBytes})
	if err != nil {
		return err
	}
	adjust(page.Bytes())
	return c.WriteJSON(http.StatusOK, messageList(page))
}

func messageList(page *store.MessagePage) runtimev1.MessageList {
	return runtimev1.MessageList{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindMessageList), Messages: convert.Messages(page.Messages), Total: page.Total, HasMore: page.HasMore,
	}
}

// threadWithHooks returns the call's thread. Messages written through it pass the hooks of its agent (HOK-01).
func (h *Handler) threadWithHooks(c *call.Call) *thread.State {
	if hooks := h.Engine.MessageHooks(c.Context(), c.Row); hooks != nil {
		return c.Thread.WithHooks(hooks)
	}
	return c.Thread
}

// newMessage decodes and converts the body of a write.
func newMessage(c *call.Call) (thread.NewMessage, skeinv1.RunPolicy, error) {
	var n runtimev1.NewMessage
	if err := c.Decode(&n, false); err != nil {
		return thread.NewMessage{}, "", err
	}
	if len(n.Content) > runtimev1.MaxContentBytes {
		return thread.NewMessage{}, "", tooLong(c.Name, len(n.Content))
	}
	m := convert.NewMessage(&n)
	if m.IdempotencyKey = c.IdempotencyKey(n.IdempotencyKey); m.IdempotencyKey != "" {
		m.Digest = digestOf(&m)
	}
	return m, skeinv1.RunPolicy(n.Policy), nil
}

// digestOf returns a digest of what makes a message another one: its role, content, attachments and tool calls.
func digestOf(m *thread.NewMessage) string {
	said := struct {
		Role        store.Role
		Content     *string
		Attachments []string
		ToolCalls   []store.ToolCall
		ToolCallID  string
	}{Role: m.Role, Content: m.Content, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID}
	if said.Role == "" {
		said.Role = store.RoleUser
	}
	for _, a := range m.Attachments {
		said.Attachments = append(said.Attachments, path.Join("/", a.Path))
	}
	data, _ := json.Marshal(said) // texts alone: cannot fail
	return call.Digest(data)
}
