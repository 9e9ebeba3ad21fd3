package apiserver

import (
	"net/http"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/engine"
)

// effectHandler serves the scheduled effects of a thread.
type effectHandler struct {
	effects engine.Effects
}

// listEffects answers GET effects: the pending effects, all or those of one name (EFF-01).
func (h *effectHandler) listEffects(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	name := q.text("name")
	if err := q.check(); err != nil {
		return err
	}
	all, err := h.effects.List(c.r.Context(), c.row, name)
	if err != nil {
		return err
	}
	page, more := cut(all, limit, offset)
	list := runtimev1.EffectList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEffectList), Effects: []runtimev1.Effect{}, HasMore: more}
	for _, e := range page {
		list.Effects = append(list.Effects, effectOf(e))
	}
	return c.writeJSON(http.StatusOK, list)
}

// maxDelay is the longest delay of an effect: a hundred years, in milliseconds.
const maxDelay = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)

// scheduleEffect answers POST effects.
func (h *effectHandler) scheduleEffect(c *call) error {
	var n runtimev1.NewEffect
	if err := c.decode(&n, false); err != nil {
		return err
	}
	switch {
	case n.Name == "":
		return status.Invalid(c.name, metav1.CauseTypeFieldValueRequired, "name", "set it to the name of an Effect, or to package/effect")
	case n.Delay < 0 || n.Delay > maxDelay:
		return status.Invalid(c.name, metav1.CauseTypeFieldValueInvalid, "delay", "it must be from 0, which means now, to a hundred years, in milliseconds")
	}
	// The cause determines the name of the object, so that a repeat with the same key schedules nothing new.
	cause := "api:" + uuid.NewString()
	if key := c.idempotencyKey(n.IdempotencyKey); key != "" {
		cause = "api-key:" + key
	}
	id, err := h.effects.Schedule(c.r.Context(), c.row, engine.EffectRequest{
		Cause: cause, Name: n.Name, Args: n.Args, Delay: time.Duration(n.Delay) * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return c.writeJSON(http.StatusCreated, runtimev1.EffectID{ID: id})
}

// removeEffect answers DELETE effects/{id}.
func (h *effectHandler) removeEffect(c *call) error {
	removed, err := h.effects.Remove(c.r.Context(), c.row, c.rest())
	if err != nil {
		return err
	}
	if !removed {
		return status.NotFound(c.name, "thread %q has no pending effect %q", c.name, c.rest())
	}
	return c.writeSuccess()
}

func effectOf(e engine.ScheduledEffect) runtimev1.Effect { return runtimev1.Effect(e) }
