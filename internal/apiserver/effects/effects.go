// Package effects serves the scheduled effects of a thread.
package effects

import (
	"net/http"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Handler serves the scheduled effects of a thread.
type Handler struct {
	Effects ports.Effects
	Threads *thread.Service
}

// List answers GET effects: the pending effects, all or those of one name (EFF-01).
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	name := q.Text("name")
	if err := q.Check(); err != nil {
		return err
	}
	all, err := h.Effects.List(c.Context(), c.Row, name)
	if err != nil {
		return err
	}
	page, more := call.Cut(all, limit, offset)
	list := runtimev1.EffectList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEffectList), Effects: []runtimev1.Effect{}, HasMore: more}
	for _, e := range page {
		list.Effects = append(list.Effects, effectOf(e))
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Schedule answers POST effects.
func (h *Handler) Schedule(c *call.Call) error {
	var n runtimev1.NewEffect
	if err := c.Decode(&n, false); err != nil {
		return err
	}
	switch {
	case n.Name == "":
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "name", "set it to the name of an Effect, or to package/effect")
	case n.Delay < 0 || n.Delay > tool.MaxEffectDelay.Milliseconds():
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "delay", "it must be "+tool.EffectDelay)
	}
	// The cause determines the name of the object, so that a repeat with the same key schedules nothing new.
	cause := "api:" + uuid.NewString()
	if key := c.IdempotencyKey(n.IdempotencyKey); key != "" {
		if err := c.Claim("effect", key, []any{n.Name, n.Args, n.Delay}); err != nil {
			return err
		}
		cause = "api-key:" + key
	}
	id, err := h.Effects.Schedule(c.Context(), c.Row, ports.EffectRequest{
		Cause: cause, Name: n.Name, Args: n.Args, Delay: time.Duration(n.Delay) * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return c.WriteJSON(http.StatusCreated, runtimev1.EffectID{ID: id})
}

// Remove answers DELETE effects/{id}.
func (h *Handler) Remove(c *call.Call) error {
	removed, err := h.Effects.Remove(c.Context(), c.Row, c.Rest())
	if err != nil {
		return err
	}
	if !removed {
		return status.NotFound(c.Name, "thread %q has no pending effect %q", c.Name, c.Rest())
	}
	return c.WriteSuccess()
}

func effectOf(e ports.ScheduledEffect) runtimev1.Effect { return runtimev1.Effect(e) }
