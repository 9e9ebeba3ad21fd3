package apiserver

import (
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// envHandler serves the environment variables of a thread.
type envHandler struct {
	threads *thread.Service
}

// listEnv answers GET env: every variable that the thread sees, with values for texts only.
func (h *envHandler) listEnv(c *call) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	side := q.oneOf("side", "a", "b")
	if err := q.check(); err != nil {
		return err
	}
	all, err := c.thread.ListEnv(c.r.Context(), side)
	if errors.Is(err, thread.ErrOneSide) {
		return status.Invalid(c.name, metav1.CauseTypeFieldValueInvalid, "side", err.Error())
	}
	if err != nil {
		return err
	}
	page, more := cut(all, limit, offset)
	list := runtimev1.EnvVarList{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEnvVarList), Variables: make([]runtimev1.EnvVar, len(page)), HasMore: more}
	for i := range page {
		list.Variables[i] = envVarOf(&page[i])
	}
	return c.writeJSON(http.StatusOK, list)
}

// getEnv answers GET env/{name}, and GET env/pending with the variables that the thread waits for.
func (h *envHandler) getEnv(c *call) error {
	if c.rest() == runtimev1.EnvRequestPath {
		return h.getEnvRequest(c)
	}
	v, err := c.thread.EnvValue(c.r.Context(), c.rest())
	if errors.Is(err, thread.ErrEnvUnknown) {
		return status.NotFound(c.name, "thread %q sees no variable %q", c.name, c.rest())
	}
	if err != nil {
		return err
	}
	out := envVarOf(v)
	out.Side = "" // the value is that of the thread, not of a side
	out.TypeMeta = runtimev1.TypeMetaOf(runtimev1.KindEnvVar)
	return c.writeJSON(http.StatusOK, out)
}

// getEnvRequest answers with the variables that the thread waits for (ENV-06).
func (h *envHandler) getEnvRequest(c *call) error {
	ctx := c.r.Context()
	out := runtimev1.EnvRequest{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindEnvRequest), Variables: []runtimev1.EnvWanted{}}
	run, err := h.threads.Store().Run(ctx, c.row.ID, "")
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.writeJSON(http.StatusOK, out)
	case err != nil:
		return err
	case run.Status != store.RunWaiting || run.Reason != store.ReasonEnvMissing:
		return c.writeJSON(http.StatusOK, out)
	}
	missing, err := c.thread.PendingEnv(ctx)
	if err != nil {
		return err
	}
	out.RunID, out.Since = run.ID, run.StartedAt
	for _, d := range missing {
		out.Variables = append(out.Variables, runtimev1.EnvWanted{Name: d.Name, Type: string(d.Type), Scoped: d.Scoped, Description: d.Description})
	}
	return c.writeJSON(http.StatusOK, out)
}

// putEnv answers PUT env/{name} (ENV-02, ENV-04). The answer holds no secret, not even the one that was sent.
func (h *envHandler) putEnv(c *call) error {
	var body runtimev1.NewEnvValue
	if err := c.decode(&body, false); err != nil {
		return err
	}
	if body.Value == nil {
		return status.Invalid(c.name, metav1.CauseTypeFieldValueRequired, "value", "set it to a text; to remove the variable use DELETE")
	}
	ctx := c.r.Context()
	if err := c.thread.SetEnv(ctx, c.rest(), *body.Value, store.EnvType(body.Type)); err != nil {
		return err
	}
	return h.getEnv(c)
}

// deleteEnv answers DELETE env/{name}: it removes the thread's own value, so that an inherited value of that name
// applies again.
func (h *envHandler) deleteEnv(c *call) error {
	removed, err := c.thread.UnsetEnv(c.r.Context(), c.rest())
	if err != nil {
		return err
	}
	if !removed {
		return status.NotFound(c.name, "thread %q has no variable %q of its own", c.name, c.rest())
	}
	return c.writeSuccess()
}

func envVarOf(v *thread.EnvValue) runtimev1.EnvVar {
	out := runtimev1.EnvVar{Name: v.Name, Type: string(v.Type), Source: string(v.Source), Side: v.Side, Origin: string(v.Origin), UpdatedAt: v.UpdatedAt}
	if v.Type == store.EnvText {
		out.Value = &v.Value
	}
	return out
}
