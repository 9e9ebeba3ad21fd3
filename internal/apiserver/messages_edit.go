package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// updateMessage answers PATCH messages/{id}: it merges metadata and replaces the given fields (MSG-06).
func (s *Server) updateMessage(c *call) error {
	var u runtimev1.MessageUpdates
	if err := c.decode(&u, false); err != nil {
		return err
	}
	if u.Content != nil && len(*u.Content) > runtimev1.MaxContentBytes {
		return tooLong(c.name, len(*u.Content))
	}
	m, err := s.hooked(c).UpdateMessage(c.r.Context(), c.rest(), thread.MessageUpdate{
		Content: u.Content, Metadata: u.Metadata, Status: (*store.MessageStatus)(u.Status), ToolStatus: u.ToolStatus, Silent: u.Silent,
	})
	if errors.Is(err, store.ErrNotFound) {
		return notFound(c.name, "thread %q has no message %q", c.name, c.rest())
	}
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, messageOf(m))
}

// deleteMessage answers DELETE messages/{id}. A missing message is no error (MSG-06).
func (s *Server) deleteMessage(c *call) error {
	deleted, err := c.thread.DeleteMessage(c.r.Context(), c.rest())
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, runtimev1.MessageDeletion{Deleted: deleted})
}

// tooLong returns the error for message content that is too long.
func tooLong(name string, bytes int) error {
	return invalid(name, metav1.CauseTypeTooLong, "content",
		fmt.Sprintf("it has %d bytes, more than %d: write a long text to a file of the thread and attach it", bytes, runtimev1.MaxContentBytes))
}
