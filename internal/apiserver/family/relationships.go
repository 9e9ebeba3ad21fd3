package family

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Relationships serves the links between threads.
type Relationships struct {
	Find   *lookup.Finder
	Access *access.Reviews
}

// List answers GET relationships (REL-01).
func (h *Relationships) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	rs, total, err := c.Thread.Relationships(c.Context(), limit, offset)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.RelationshipList{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRelationshipList), Relationships: convert.Relationships(rs), Total: total,
		HasMore: int64(offset+len(rs)) < total,
	})
}

// Add answers POST relationships: it links two threads of the namespace, and stores the link at both ends. So the caller needs the right
// for both of them.
func (h *Relationships) Add(c *call.Call) error {
	var body runtimev1.Relationship
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	ctx := c.Context()
	_, peer, err := h.Find.Open(ctx, c.Namespace, body.ThreadID)
	if err != nil {
		if status.Of(ctx, c.Name, err).ErrStatus.Code == http.StatusNotFound {
			return status.Invalid(c.Name, metav1.CauseTypeFieldValueNotFound, "threadID", "the namespace has no thread with this id; GET threads/{name} returns the id of a thread")
		}
		return err
	}
	err = h.Access.Require(ctx, peer.Name, access.Right{
		Verb: "create", Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource, Subresource: runtimev1.SubresourceRelationships,
		Namespace: c.Namespace, Name: peer.Name,
	})
	if err != nil {
		return err
	}
	r := store.Relationship{ThreadID: peer.ID, Type: store.RelationshipType(body.Type), Role: body.Role, MessageIndex: -1, Comment: body.Comment}
	if body.MessageIndex != nil {
		r.MessageIndex = *body.MessageIndex
	}
	kept, existed, err := c.Thread.Relate(ctx, r)
	if errors.Is(err, thread.ErrNoPeer) {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueNotFound, "threadID", "the thread is being deleted, or gone: name another one")
	}
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if existed {
		code = http.StatusOK
	}
	return c.WriteJSON(code, convert.Relationship(kept))
}
