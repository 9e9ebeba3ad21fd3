package tools

import (
	"net/http"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
)

// definitionKinds maps the kinds in the URL to their names in the engine.
var definitionKinds = map[string]string{
	runtimev1.DefinitionModels: "model", runtimev1.DefinitionPrompts: "prompt", runtimev1.DefinitionAgents: "agent",
}

// Definitions answers GET definitions/{kind} with names, and GET definitions/{kind}/{name} with the definition
// without secrets (AGT-07).
func (h *Handler) Definitions(c *call.Call) error {
	kind, ok := definitionKinds[c.Path[0]]
	if !ok {
		return status.NotFound(c.Name, "unknown kind definitions/%s: use definitions/models, definitions/prompts or definitions/agents", c.Path[0])
	}
	switch len(c.Path) {
	case 1:
		return h.listDefinitions(c, kind)
	case 2:
		d, err := h.Engine.Definition(c.Context(), c.Namespace, kind, c.Path[1])
		if err != nil {
			return err
		}
		return c.WriteJSON(http.StatusOK, d)
	}
	return status.NoSuchPath(c.Request)
}

func (h *Handler) listDefinitions(c *call.Call, kind string) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	limit, offset := q.Page()
	if err := q.Check(); err != nil {
		return err
	}
	all, err := h.Engine.DefinitionNames(c.Context(), c.Namespace, kind)
	if err != nil {
		return err
	}
	page, more := call.Cut(all, limit, offset)
	return c.WriteJSON(http.StatusOK, runtimev1.DefinitionNames{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindDefinitionNames), Names: page, HasMore: more,
	})
}
