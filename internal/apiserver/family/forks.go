package family

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Objects creates Thread objects.
type Objects interface {
	// CreateFork creates a Thread that is forked from another. When t has no name, it gets one that derives from the origin
	// and the cause. A repeat with the same cause returns the object that exists.
	CreateFork(ctx context.Context, origin *store.Thread, t *skeinv1.Thread, cause string) (*skeinv1.Thread, error)
	// RemoveRefused deletes the object of a Thread that is not stored, when the request for the Thread is refused. It fails
	// when the object has changed since it was read.
	RemoveRefused(ctx context.Context, t *skeinv1.Thread) error
}

// Forks serves forks of threads.
type Forks struct {
	Threads *thread.Service
	Find    *lookup.Finder
	Access  *access.Reviews
	Objects Objects
}

// Fork answers POST fork: it creates the Thread object of a fork and answers once the fork is stored (REL-02).
func (h *Forks) Fork(c *call.Call) error {
	var n runtimev1.NewFork
	if err := c.Decode(&n, true); err != nil {
		return err
	}
	if err := checkFork(c, &n); err != nil {
		return err
	}
	if err := h.checkAllowed(c, n.Name); err != nil {
		return err
	}
	at, err := h.Threads.ForkPoint(c.Context(), c.Row.ID, thread.ForkOf{
		MessageID: n.MessageID, Index: deref(n.MessageIndex), Newest: n.MessageID == "" && n.MessageIndex == nil,
	})
	if errors.Is(err, store.ErrObjectDeleted) {
		return deleted(c)
	}
	if err != nil {
		return err
	}
	body := n
	body.IdempotencyKey = "" // it may stand in the header
	if err := claim(c, "fork", n.IdempotencyKey, body); err != nil {
		return err
	}
	_, row, err := h.make(c, n, at)
	if err != nil {
		return err
	}
	return h.write(c, row)
}

func checkFork(c *call.Call, n *runtimev1.NewFork) error {
	switch {
	case n.MessageID != "" && n.MessageIndex != nil:
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "messageId", "set messageIndex or messageId, not both, or neither for the newest message")
	case n.Name == c.Row.Name:
		e := apierrors.NewAlreadyExists(status.ThreadsResource, n.Name)
		e.ErrStatus.Message += ": choose another name"
		return e
	case len(n.Message) > runtimev1.MaxContentBytes:
		return status.Invalid(c.Name, metav1.CauseTypeTooLong, "message",
			fmt.Sprintf("it has %d bytes, more than %d: write a long text to a file", len(n.Message), runtimev1.MaxContentBytes))
	}
	return nil
}

// claim refuses a key that another fork or rerun of the thread has used: the two share the Threads that they make.
func claim(c *call.Call, what, inBody string, body any) error {
	return c.Claim("fork", c.IdempotencyKey(inBody), []any{what, c.Path, body})
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// deleted returns the error for a thread whose object is being deleted, or gone.
func deleted(c *call.Call) error {
	return status.Conflict(c.Name, "the Thread object is being deleted, so the thread cannot be forked")
}

// checkAllowed refuses callers who could not create the fork's Thread object themselves, or not read what the fork has of its
// origin. A user who may fork a thread sees nothing new.
func (h *Forks) checkAllowed(c *call.Call, name string) error {
	return h.Access.Require(c.Context(), c.Name,
		access.Right{Verb: "create", Group: skeinv1.GroupVersion.Group, Resource: "threads", Namespace: c.Namespace, Name: name},
		access.Right{Verb: "get", Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource, Subresource: runtimev1.SubresourceMessages, Namespace: c.Namespace, Name: c.Name},
		access.Right{Verb: "get", Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource, Subresource: runtimev1.SubresourceFiles, Namespace: c.Namespace, Name: c.Name},
	)
}

// make creates the Thread object of a fork at a message, and waits until the fork is stored. It does both also when the caller leaves:
// otherwise a fork would stay that the caller was never told of.
func (h *Forks) make(c *call.Call, n runtimev1.NewFork, at thread.Point) (*thread.State, *store.Thread, error) {
	ctx := c.Context()
	origin, err := h.Find.Object(ctx, c.Namespace, c.Row.Name)
	if err != nil {
		return nil, nil, err
	}
	if origin == nil || !origin.DeletionTimestamp.IsZero() || !c.Row.BelongsTo(string(origin.UID)) {
		return nil, nil, deleted(c)
	}
	cause := "api:" + uuid.NewString()
	if key := c.IdempotencyKey(n.IdempotencyKey); key != "" {
		cause = "api-key:" + key
	}
	agent := n.AgentID
	if agent == "" {
		agent = c.Row.Agent
	}
	ctx, cancel := h.Find.DetachedContext(ctx)
	defer cancel()
	made, err := h.Objects.CreateFork(ctx, c.Row, &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: n.Name, Annotations: map[string]string{
			skeinv1.AnnotationForkPoint: fmt.Sprintf("%s/%d", c.Row.ID, at.Seq),
		}},
		Spec: skeinv1.ThreadSpec{
			AgentRef: skeinv1.LocalRef{Name: agent}, Title: n.Title, Message: n.Message,
			ForkFrom: &skeinv1.ForkFrom{ThreadRef: skeinv1.LocalRef{Name: c.Row.Name}, MessageIndex: &at.Index},
		},
	}, cause)
	if err != nil {
		return nil, nil, err
	}
	st, row, err := h.Find.OpenMade(ctx, made, h.Objects.RemoveRefused, skeinv1.ReasonForkPointLost, skeinv1.ReasonQuotaExceeded)
	var refused *lookup.RefusedError
	switch {
	case errors.As(err, &refused) && refused.Left && refused.Reason == skeinv1.ReasonForkPointLost: // it stays lost, and room may come
		return nil, nil, status.Conflict(c.Name, fmt.Sprintf("Thread %q was created and cannot become a fork: %s", made.Name, refused.Message))
	case errors.As(err, &refused) && !refused.Left && refused.Reason == skeinv1.ReasonQuotaExceeded:
		return nil, nil, status.NoRoomForThread(c.Name, refused.Message)
	case errors.As(err, &refused) && !refused.Left:
		return nil, nil, status.Conflict(c.Name, refused.Message)
	case errors.Is(err, lookup.ErrDeleted), errors.Is(err, store.ErrNotFound):
		return nil, nil, status.Conflict(c.Name, fmt.Sprintf("Thread %q was deleted before the fork was stored", made.Name))
	case apierrors.IsServiceUnavailable(err):
		// Without Retry-After: clients would send the request again by themselves, and without a key make another fork.
		return nil, nil, apierrors.NewTimeoutError(fmt.Sprintf("Thread %q was created and the fork is not stored yet: it will be (%v)", made.Name, err), 0)
	}
	return st, row, err
}

// write answers with the record of a fork.
func (h *Forks) write(c *call.Call, row *store.Thread) error {
	record := convert.ThreadRecord(row, nil)
	rs, _, err := h.Threads.Store().NewestRelationships(c.Context(), row.ID, skeinv1.MaxStatusRelationships)
	if err != nil {
		return err
	}
	record.Relationships = convert.Relationships(rs)
	return c.WriteJSON(http.StatusCreated, record)
}
