package effects

import (
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/store"
)

// Firings answers GET firings/{name}: what a ScheduledEffect fired, and what it did not fire (EFF-07).
func (h *Handler) Firings(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit := q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	before := q.Number("before", 0, 0, 1<<53)
	if err := q.Check(); err != nil {
		return err
	}
	id, err := h.Effects.ID(c.Context(), c.Namespace, c.Name)
	if err != nil {
		return err
	}
	firings, err := h.Threads.Store().Firings(c.Context(), store.FiringQuery{EffectID: id, Before: int64(before), Limit: limit + 1})
	if err != nil {
		return err
	}
	page, more := call.Cut(firings, limit, 0)
	list := runtimev1.FiringList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindFiringList), Firings: make([]runtimev1.Firing, len(page)), Skipped: []runtimev1.SkippedFirings{}, HasMore: more}
	for i := range page {
		list.Firings[i] = firingOf(&page[i])
	}
	if before == 0 {
		skips, err := h.Threads.Store().EffectSkips(c.Context(), id, limit)
		if err != nil {
			return err
		}
		for _, k := range skips {
			list.Skipped = append(list.Skipped, runtimev1.SkippedFirings{Due: k.Due, Until: k.Until, Count: k.Count, ThreadID: k.ThreadID, Reason: k.Reason, Detail: k.Detail})
		}
	}
	return c.WriteJSON(http.StatusOK, list)
}

func firingOf(f *store.Firing) runtimev1.Firing {
	return runtimev1.Firing{
		Due: f.Due, ThreadID: f.ThreadID, Origin: string(f.Origin), Status: string(f.Status), Attempts: f.Attempts, Error: f.Error, Waiting: f.Waiting,
		FiredAt: f.FiredAt, StartedAt: f.StartedAt, EndedAt: f.EndedAt, Cost: f.Cost, Log: f.Log,
	}
}
