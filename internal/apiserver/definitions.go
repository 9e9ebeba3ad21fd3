package apiserver

import (
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
)

// definitionKinds maps the kinds in the URL to their names in the engine.
var definitionKinds = map[string]string{
	runtimev1.DefinitionModels: "model", runtimev1.DefinitionPrompts: "prompt", runtimev1.DefinitionAgents: "agent",
}

// getDefinitions answers GET definitions/{kind} with names, and GET definitions/{kind}/{name} with the definition
// without secrets (AGT-07).
func (h *toolHandler) getDefinitions(c *call) error {
	kind, ok := definitionKinds[c.path[0]]
	if !ok {
		return status.NotFound(c.name, "unknown kind definitions/%s: use definitions/models, definitions/prompts or definitions/agents", c.path[0])
	}
	switch len(c.path) {
	case 1:
		return h.listDefinitions(c, kind)
	case 2:
		d, err := h.engine.Definition(c.r.Context(), c.namespace, kind, c.path[1])
		if err != nil {
			return err
		}
		return c.writeJSON(http.StatusOK, d)
	}
	return status.NoSuchPath(c.r)
}

func (h *toolHandler) listDefinitions(c *call, kind string) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	if err := q.check(); err != nil {
		return err
	}
	all, err := h.engine.DefinitionNames(c.r.Context(), c.namespace, kind)
	if err != nil {
		return err
	}
	page, more := cut(all, limit, offset)
	return c.writeJSON(http.StatusOK, runtimev1.DefinitionNames{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindDefinitionNames), Names: page, HasMore: more,
	})
}
