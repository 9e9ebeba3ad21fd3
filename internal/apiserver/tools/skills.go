package tools

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
)

// ActivateSkill answers POST skills: it records an activation once per name, and a repeat returns the first record
// (AGT-08).
func (h *Handler) ActivateSkill(c *call.Call) error {
	var body runtimev1.SkillActivation
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	active := slices.ContainsFunc(c.Row.Fields.ActivatedSkills, func(a store.SkillActivation) bool { return a.Name == body.Name })
	if !active { // a repeat keeps the first arguments
		wrong, err := h.Engine.CheckSkill(c.Context(), c.Row, store.SkillActivation(body))
		if err != nil {
			return err
		}
		if wrong != "" {
			return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "arguments", wrong)
		}
	}
	skill, recorded, err := c.Thread.ActivateSkill(c.Context(), body.Name, body.Arguments)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if recorded {
		code = http.StatusCreated
	}
	return c.WriteJSON(code, runtimev1.SkillActivation(skill))
}
