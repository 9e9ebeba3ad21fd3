package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// getChild answers GET children/{reference}: one entry of the registry (SUB-05).
func (s *Server) getChild(c *call) error {
	all, err := s.opts.Children.List(c.r.Context(), c.row)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].Reference == c.rest() {
			return c.writeJSON(http.StatusOK, childOf(all[i]))
		}
	}
	return notFound(c.name, "thread %q has no child %q", c.name, c.rest())
}

// getParent answers GET parent: the record of this thread's parent, or null when there is none (SUB-05).
func (s *Server) getParent(c *call) error {
	if c.row.ParentID == "" {
		return c.writeJSON(http.StatusOK, nil)
	}
	ctx := c.r.Context()
	parent, err := s.opts.Threads.Store().Thread(ctx, c.row.ParentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && parent.Namespace != c.namespace { // rights are granted by namespace
		return c.writeJSON(http.StatusOK, nil)
	}
	if err != nil {
		return err
	}
	last, err := s.opts.Threads.Store().Run(ctx, parent.ID, "")
	if errors.Is(err, store.ErrNotFound) {
		last = nil
	} else if err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, threadRecord(parent, last))
}

// notifyParent answers POST notify: it sends the parent a silent message, which starts the parent (SUB-05).
func (s *Server) notifyParent(c *call) error {
	var in runtimev1.Notification
	if err := c.decode(&in, false); err != nil {
		return err
	}
	switch {
	case in.Content == "":
		return invalid(c.name, metav1.CauseTypeFieldValueRequired, "content", "set it to a text that is not empty")
	case len(in.Content) > runtimev1.MaxContentBytes:
		return invalid(c.name, metav1.CauseTypeTooLong, "content",
			fmt.Sprintf("it has %d bytes, more than %d: write a long text to a file", len(in.Content), runtimev1.MaxContentBytes))
	}
	if err := c.childOnly(); err != nil {
		return err
	}
	if err := s.opts.Engine.NotifyParent(c.r.Context(), c.row.ID, c.idempotencyKey(in.IdempotencyKey), in.Content); err != nil {
		return err
	}
	return c.writeSuccess()
}

// getStatus answers GET status: the thread's status in its parent's registry.
func (s *Server) getStatus(c *call) error {
	return c.writeJSON(http.StatusOK, runtimev1.RegistryStatus{Status: c.row.RegistryStatus})
}

// setStatus answers PUT status (SUB-05).
func (s *Server) setStatus(c *call) error {
	var in runtimev1.RegistryStatus
	if err := c.decode(&in, false); err != nil {
		return err
	}
	if err := c.childOnly(); err != nil {
		return err
	}
	if err := s.opts.Engine.SetStatus(c.r.Context(), c.row.ID, in.Status); err != nil {
		return err
	}
	return c.writeJSON(http.StatusOK, in)
}

// childOnly refuses a call that only a child may make.
func (c *call) childOnly() error {
	if c.row.ParentID == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("thread %q has no parent: this is for subagents", c.name))
	}
	return nil
}
