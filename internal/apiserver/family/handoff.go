package family

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/related"
)

// handoffTimeout bounds a handoff that goes on after its request has ended.
const handoffTimeout = 5 * time.Minute

// HandoffEngine is the part of the engine that hands context off.
type HandoffEngine interface {
	HandOff(ctx context.Context, threadID string, h related.Handoff) (*related.Made, error)
}

// Handoffs starts threads with the context of others.
type Handoffs struct {
	Engine HandoffEngine
	Access *access.Reviews
}

// Create answers POST handoff (REL-03). Beside its own right, the caller needs those to create a Thread and to read what
// the new thread gets.
func (h *Handoffs) Create(c *call.Call) error {
	var body runtimev1.ContextHandoff
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	if err := h.authorize(c, len(body.Files) > 0); err != nil {
		return err
	}
	ctx, key := c.Context(), c.IdempotencyKey(body.IdempotencyKey)
	if err := c.Claim("handoff", key, []any{body.Goal, body.Agent, sortUnique(body.Files), body.Comment, body.Title}); err != nil {
		return err
	}
	if key == "" {
		key = uuid.NewString()
	} else {
		// The API server ends requests after a minute, and a model may take longer. The caller who repeats the request gets
		// what this one has made meanwhile.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), handoffTimeout)
		defer cancel()
	}
	made, err := h.Engine.HandOff(ctx, c.Row.ID, related.Handoff{
		Cause: "api " + key, Goal: body.Goal, Agent: body.Agent, Files: body.Files, Comment: body.Comment, Title: body.Title,
	})
	var noModel *related.ModelError
	if errors.As(err, &noModel) || errors.Is(err, engine.ErrNoThreadObjects) {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if made.Existed {
		code = http.StatusOK
	}
	return c.WriteJSON(code, runtimev1.HandedOff{Name: made.Name, ThreadID: made.Thread.ID, AgentID: made.Thread.OriginAgent})
}

// sortUnique returns texts in their order, each once.
func sortUnique(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return slices.Compact(texts)
}

func (h *Handoffs) authorize(c *call.Call, files bool) error {
	ctx := c.Context()
	switch may, err := h.Access.MayCreateThreads(ctx, c.Namespace); {
	case err != nil:
		return err
	case !may:
		return forbidden(c, "a handoff creates a Thread: you need the right to create threads.skein.dev in this namespace")
	}
	reads := []runtimev1.Subresource{runtimev1.SubresourceMessages}
	if files {
		reads = append(reads, runtimev1.SubresourceFiles)
	}
	for _, sub := range reads {
		switch may, err := h.Access.May(ctx, "get", sub, c.Namespace, c.Name); {
		case err != nil:
			return err
		case !may:
			return forbidden(c, fmt.Sprintf("the new thread gets what this one has: you need the right to get threads.runtime.skein.dev/%s", sub))
		}
	}
	return nil
}

func forbidden(c *call.Call, message string) error {
	return apierrors.NewForbidden(status.ThreadsResource, c.Name, errors.New(message))
}
