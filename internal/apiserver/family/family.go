// Package family serves how threads belong together: parents, children and relationships.
package family

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Engine is the part of the engine with which a child speaks to its parent.
type Engine interface {
	NotifyParent(ctx context.Context, threadID, key, content string) error
	SetStatus(ctx context.Context, threadID, status string) error
}

// Children is the part of the registry of children that the runtime API uses.
type Children interface {
	List(ctx context.Context, parent *store.Thread) ([]skeinv1.ChildStatus, error)
	// Entry returns the child with a reference, or store.ErrNotFound.
	Entry(ctx context.Context, parent *store.Thread, reference string) (*skeinv1.ChildStatus, error)
}

// Handler serves the children of a thread and its parent.
type Handler struct {
	Threads  *thread.Service
	Engine   Engine
	Children Children
}

const (
	// registryBytes is drawn before the registry of a thread is read, which says how many children there are.
	registryBytes = 8 << 20
	// childBytes is about how many bytes of memory a child takes in it. Its texts are shared with the cache.
	childBytes = 2 << 10
)

// ListChildren answers GET children: the registry of the thread (SUB-01).
func (h *Handler) ListChildren(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	adjust, err := membudget.Reserve(c.Context(), registryBytes)
	if err != nil {
		return err
	}
	all, err := h.Children.List(c.Context(), c.Row)
	if err != nil {
		return err
	}
	adjust(int64(len(all)) * childBytes)
	page, more := call.Cut(all, limit, offset)
	list := runtimev1.ChildList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindChildList), Children: make([]runtimev1.Child, len(page)), HasMore: more}
	for i := range page {
		list.Children[i] = childOf(page[i])
	}
	return c.WriteJSON(http.StatusOK, list)
}

// GetChild answers GET children/{reference}: one entry of the registry (SUB-05).
func (h *Handler) GetChild(c *call.Call) error {
	child, err := h.Children.Entry(c.Context(), c.Row, c.Rest())
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no child %q: GET children lists those that it has", c.Name, c.Rest())
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, childOf(*child))
}

func childOf(c skeinv1.ChildStatus) runtimev1.Child {
	return runtimev1.Child{
		Reference: c.Reference, Name: c.Name, Title: c.Title, Description: c.Description, Resumable: c.Resumable, Blocking: c.Blocking,
		ThreadName: c.ThreadName, ThreadID: c.ThreadID, SpawnGroupID: c.SpawnGroupID, CreatedAt: c.CreatedAt, Status: c.Status,
		ParentCommunication: string(c.ParentCommunication),
	}
}

// GetParent answers GET parent: the record of this thread's parent, or null when there is none (SUB-05).
func (h *Handler) GetParent(c *call.Call) error {
	if c.Row.ParentID == "" {
		return c.WriteJSON(http.StatusOK, nil)
	}
	ctx := c.Context()
	parent, err := h.Threads.Store().Thread(ctx, c.Row.ParentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && parent.Namespace != c.Namespace { // rights are granted by namespace
		return c.WriteJSON(http.StatusOK, nil)
	}
	if err != nil {
		return err
	}
	last, err := h.Threads.Store().Run(ctx, parent.ID, "")
	if errors.Is(err, store.ErrNotFound) {
		last = nil
	} else if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, convert.ThreadRecord(parent, last))
}

// NotifyParent answers POST notify: it sends the parent a silent message, which starts the parent (SUB-05).
func (h *Handler) NotifyParent(c *call.Call) error {
	var in runtimev1.Notification
	if err := c.Decode(&in, false); err != nil {
		return err
	}
	switch {
	case in.Content == "":
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "content", "set it to a text that is not empty")
	case len(in.Content) > runtimev1.MaxContentBytes:
		return status.Invalid(c.Name, metav1.CauseTypeTooLong, "content",
			fmt.Sprintf("it has %d bytes, more than %d: write a long text to a file", len(in.Content), runtimev1.MaxContentBytes))
	}
	if err := childOnly(c); err != nil {
		return err
	}
	key := c.IdempotencyKey(in.IdempotencyKey)
	if err := c.Claim("notify", key, in.Content); err != nil {
		return err
	}
	if err := h.Engine.NotifyParent(c.Context(), c.Row.ID, key, in.Content); err != nil {
		return err
	}
	return c.WriteSuccess()
}

// GetStatus answers GET status: the thread's status in its parent's registry.
func (h *Handler) GetStatus(c *call.Call) error {
	return c.WriteJSON(http.StatusOK, runtimev1.RegistryStatus{Status: c.Row.RegistryStatus})
}

// SetStatus answers PUT status (SUB-05).
func (h *Handler) SetStatus(c *call.Call) error {
	var in runtimev1.RegistryStatus
	if err := c.Decode(&in, false); err != nil {
		return err
	}
	if err := childOnly(c); err != nil {
		return err
	}
	if err := h.Engine.SetStatus(c.Context(), c.Row.ID, in.Status); err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, in)
}

// childOnly refuses a call that only a child may make.
func childOnly(c *call.Call) error {
	if c.Row.ParentID == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("thread %q has no parent: this is for subagents", c.Name))
	}
	return nil
}
