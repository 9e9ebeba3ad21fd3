// Package env serves the environment variables of a thread.
package env

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Handler serves the environment variables of a thread.
type Handler struct {
	Threads *thread.Service
}

// List answers GET env: every variable that the thread sees, with values for texts only.
func (h *Handler) List(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	side := q.OneOf("side", "a", "b")
	if err := q.Check(); err != nil {
		return err
	}
	all, err := c.Thread.ListEnv(c.Context(), side)
	if errors.Is(err, thread.ErrOneSide) {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "side", err.Error())
	}
	if err != nil {
		return err
	}
	page, more := call.Cut(all, limit, offset)
	list := runtimev1.EnvVarList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEnvVarList), Variables: make([]runtimev1.EnvVar, len(page)), HasMore: more}
	for i := range page {
		list.Variables[i] = envVarOf(&page[i])
	}
	return c.WriteJSON(http.StatusOK, list)
}

// Get answers GET env/{name}, and GET env/pending with the variables that the thread waits for.
func (h *Handler) Get(c *call.Call) error {
	if c.Rest() == runtimev1.EnvRequestPath {
		return h.getRequest(c)
	}
	v, err := c.Thread.EnvValue(c.Context(), c.Rest())
	if errors.Is(err, thread.ErrEnvUnknown) {
		return status.NotFound(c.Name, "thread %q sees no variable %q: GET env lists those that it sees, and PUT env/{name} sets one", c.Name, c.Rest())
	}
	if err != nil {
		return err
	}
	out := envVarOf(v)
	out.Side = "" // the value is that of the thread, not of a side
	out.TypeMeta = runtimev1.TypeMetaOf(runtimev1.KindEnvVar)
	return c.WriteJSON(http.StatusOK, out)
}

// getRequest answers with the variables that the thread waits for (ENV-06).
func (h *Handler) getRequest(c *call.Call) error {
	ctx := c.Context()
	out := runtimev1.EnvRequest{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEnvRequest), Variables: []runtimev1.EnvWanted{}}
	run, err := h.Threads.Store().Run(ctx, c.Row.ID, "")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.WriteJSON(http.StatusOK, out)
	case err != nil:
		return err
	case run.Status != store.RunWaiting || run.Reason != skeinv1.ReasonEnvMissing:
		return c.WriteJSON(http.StatusOK, out)
	}
	missing, err := c.Thread.PendingEnv(ctx)
	if err != nil {
		return err
	}
	out.RunID, out.Since = run.ID, run.StartedAt
	for _, d := range missing {
		out.Variables = append(out.Variables, runtimev1.EnvWanted{Name: d.Name, Type: string(d.Type), Scoped: d.Scoped, Description: d.Description})
	}
	return c.WriteJSON(http.StatusOK, out)
}

// Put answers PUT env/{name} (ENV-02, ENV-04). The answer holds no secret, not even the one that was sent.
func (h *Handler) Put(c *call.Call) error {
	var body runtimev1.NewEnvValue
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	if body.Value == nil {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, "value", "set it to a text; to remove the variable use DELETE")
	}
	ctx := c.Context()
	if err := c.Thread.SetEnv(ctx, c.Rest(), *body.Value, store.EnvType(body.Type)); err != nil {
		return err
	}
	return h.Get(c)
}

// Delete answers DELETE env/{name}: it removes the thread's own value, so that an inherited value of that name
// applies again.
func (h *Handler) Delete(c *call.Call) error {
	removed, err := c.Thread.UnsetEnv(c.Context(), c.Rest())
	if err != nil {
		return err
	}
	if !removed {
		return status.NotFound(c.Name, "thread %q has no variable %q of its own: GET env says where each one comes from", c.Name, c.Rest())
	}
	return c.WriteSuccess()
}

func envVarOf(v *thread.EnvValue) runtimev1.EnvVar {
	out := runtimev1.EnvVar{Name: v.Name, Type: string(v.Type), Source: string(v.Source), Side: v.Side, Origin: string(v.Origin), UpdatedAt: v.UpdatedAt}
	if v.Type == store.EnvText {
		out.Value = &v.Value
	}
	return out
}
