package messages

import (
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Update answers PATCH messages/{id}: it merges metadata and replaces the given fields (MSG-06).
func (h *Handler) Update(c *call.Call) error {
	var u runtimev1.MessageUpdates
	if err := c.Decode(&u, false); err != nil {
		return err
	}
	if u.Content != nil && len(*u.Content) > runtimev1.MaxContentBytes {
		return tooLong(c.Name, len(*u.Content))
	}
	m, err := h.threadWithHooks(c).UpdateMessage(c.Context(), c.Rest(), thread.MessageUpdate{
		Content: u.Content, Metadata: u.Metadata, Status: (*store.MessageStatus)(u.Status), ToolStatus: u.ToolStatus, Silent: u.Silent,
	})
	if errors.Is(err, store.ErrNotFound) {
		return status.NotFound(c.Name, "thread %q has no message %q: GET messages lists them", c.Name, c.Rest())
	}
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, convert.Message(m))
}

// Delete answers DELETE messages/{id}. A missing message is no error (MSG-06).
func (h *Handler) Delete(c *call.Call) error {
	deleted, err := c.Thread.DeleteMessage(c.Context(), c.Rest())
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.MessageDeletion{Deleted: deleted})
}

// tooLong returns the error for message content that is too long.
func tooLong(name string, bytes int) error {
	return status.Invalid(name, metav1.CauseTypeTooLong, "content",
		fmt.Sprintf("it has %d bytes, more than %d: write a long text to a file of the thread and attach it", bytes, runtimev1.MaxContentBytes))
}

// Truncate answers POST truncate (MSG-11).
func (h *Handler) Truncate(c *call.Call) error {
	var body runtimev1.Truncate
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	at := thread.Truncation{MessageID: body.MessageID, ExpectVersion: body.V}
	switch {
	case (body.MessageID == "") == (body.MessageIndex == nil):
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "messageIndex", "set it to the index of the last message to keep, or messageId to its id; -1 removes all")
	case body.MessageIndex != nil && *body.MessageIndex < -1:
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "messageIndex", "it must be -1, which removes all messages, or more")
	case body.MessageIndex != nil:
		at.Index = *body.MessageIndex
	}
	index, removed, err := c.Thread.Truncate(c.Context(), at)
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusOK, runtimev1.Truncated{MessageIndex: index, Removed: removed})
}
