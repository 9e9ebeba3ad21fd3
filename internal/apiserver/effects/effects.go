// Package effects serves the scheduled effects of a thread.
package effects

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Effects is the port for scheduled effects.
type Effects interface {
	ports.Effects
	// Page returns a page of List, and whether more effects follow.
	Page(ctx context.Context, thread *store.Thread, q ports.EffectPage) (page []ports.ScheduledEffect, more bool, err error)
	// Next returns the next due times of a ScheduledEffect, at most n, in microseconds since 1970. It returns none for one that is wrong, or that
	// does not exist any more.
	Next(ctx context.Context, namespace, name string, n int) ([]int64, error)
}

// Handler serves the scheduled effects of a thread.
type Handler struct {
	Effects Effects
	Threads *thread.Service
}

const (
	// maxPageBytes bounds the arguments of a page: those of one effect may have a mebibyte, and a page a thousand effects.
	maxPageBytes = 8 << 20
	// effectBytes is about how many bytes of memory an effect of a page takes without its arguments.
	effectBytes = 512
)

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
	adjust, err := membudget.Reserve(c.Context(), maxPageBytes)
	if err != nil {
		return err
	}
	page, more, err := h.Effects.Page(c.Context(), c.Row, ports.EffectPage{Name: name, Limit: limit, Offset: offset, MaxBytes: maxPageBytes})
	if err != nil {
		return err
	}
	list := runtimev1.EffectList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEffectList), Effects: make([]runtimev1.Effect, len(page)), HasMore: more}
	var size int64
	for i, e := range page {
		list.Effects[i] = effectOf(e)
		size += effectBytes + int64(len(e.Args))
	}
	adjust(size)
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
		return status.NotFound(c.Name, "thread %q has no pending effect %q: GET effects lists those that it has", c.Name, c.Rest())
	}
	return c.WriteSuccess()
}

func effectOf(e ports.ScheduledEffect) runtimev1.Effect { return runtimev1.Effect(e) }
