package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// truncateThread answers POST truncate (MSG-11).
func (s *Server) truncateThread(c *call) error {
	var body runtimev1.Truncate
	if err := c.decode(&body, false); err != nil {
		return err
	}
	at := thread.Truncation{MessageID: body.MessageID, ExpectVersion: body.V}
	switch {
	case (body.MessageID == "") == (body.MessageIndex == nil):
		return invalid(c.name, metav1.CauseTypeFieldValueRequired, "messageIndex", "set it to the index of the last message to keep, or messageId to its id; -1 removes all")
	case body.MessageIndex != nil && *body.MessageIndex < -1:
		return invalid(c.name, metav1.CauseTypeFieldValueInvalid, "messageIndex", "it must be -1, which removes all messages, or more")
	case body.MessageIndex != nil:
		at.Index = *body.MessageIndex
	}
	index, removed, err := c.thread.Truncate(c.r.Context(), at)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.Truncated{MessageIndex: index, Removed: removed})
}

// listRelationships answers GET relationships (REL-01).
func (s *Server) listRelationships(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	if err := q.check(); err != nil {
		return err
	}
	rs, total, err := c.thread.Relationships(c.r.Context(), limit, offset)
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.RelationshipList{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRelationshipList), Relationships: relationshipsOf(rs), Total: total,
		HasMore: int64(offset+len(rs)) < total,
	})
}

func relationshipsOf(rs []store.Relationship) []runtimev1.Relationship {
	out := make([]runtimev1.Relationship, len(rs))
	for i := range rs {
		out[i] = relationshipOf(&rs[i])
	}
	return out
}

func relationshipOf(r *store.Relationship) runtimev1.Relationship {
	out := runtimev1.Relationship{ThreadID: r.ThreadID, Type: string(r.Type), Role: r.Role, CreatedAt: r.CreatedAt, Comment: r.Comment}
	if r.MessageIndex >= 0 {
		out.MessageIndex = &r.MessageIndex
	}
	return out
}

// addRelationship answers POST relationships: it links two threads of the namespace, and stores the link at both
// ends.
func (s *Server) addRelationship(c *call) error {
	var body runtimev1.Relationship
	if err := c.decode(&body, false); err != nil {
		return err
	}
	ctx := c.r.Context()
	_, peer, err := s.lookup.open(ctx, c.namespace, body.ThreadID) // rights are granted by namespace, so the caller has them for this thread too
	if err != nil {
		if statusOf(ctx, c.name, err).ErrStatus.Code == http.StatusNotFound {
			return invalid(c.name, metav1.CauseTypeFieldValueNotFound, "threadID", "the namespace has no such thread")
		}
		return err
	}
	r := store.Relationship{ThreadID: peer.ID, Type: store.RelationshipType(body.Type), Role: body.Role, MessageIndex: -1, Comment: body.Comment}
	if body.MessageIndex != nil {
		r.MessageIndex = *body.MessageIndex
	}
	kept, existed, err := c.thread.Relate(ctx, r)
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if existed {
		code = http.StatusOK
	}
	return c.writeJSON(code, relationshipOf(kept))
}
