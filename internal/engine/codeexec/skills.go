package codeexec

import (
	"context"
	"fmt"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// The thread's row has the active skills (AGT-08). The tools of a step are made for the skills that were active when it
// began. They do not change within the step, although one of its calls may activate a skill: which calls need approval
// is decided before the first call is made.

// ActiveSkills returns the names of the skills that are active on the thread, in the order of their activation. If the
// prompt of the side has no skills it returns nil without a read of the store.
func (e *Environment) ActiveSkills(ctx context.Context, side *definition.Side, threadID string) ([]string, error) {
	if side == nil || len(side.Prompt.Skills) == 0 {
		return nil, nil
	}
	t, err := e.Store.Thread(ctx, threadID)
	if err != nil {
		return nil, fmt.Errorf("read the active skills: %w", err)
	}
	names := make([]string, 0, len(t.Fields.ActivatedSkills))
	for _, a := range t.Fields.ActivatedSkills {
		names = append(names, a.Name)
	}
	return names, nil
}

// offering makes the tools that a prompt lists.
type offering struct{ active map[string]bool }

// newOffering returns an offering for the active skills.
func newOffering(active []string) offering {
	o := offering{active: make(map[string]bool, len(active))}
	for _, name := range active {
		o.active[name] = true
	}
	return o
}

// tools returns the tools of one entry of a prompt. They are locked while the skill of the entry is not active, and need
// approval if the entry or the Tool asks for it. spec is nil for tools that are not Tool objects.
func (o offering) tools(ref skeinv1.PromptTool, spec *skeinv1.ToolSpec, tools ...tool.Tool) []tool.Tool {
	if ref.Skill == "" || o.active[ref.Skill] {
		return approvedFirst(ref, spec, tools...)
	}
	for i, t := range tools {
		tools[i] = tool.Locked(t, ref.Skill)
	}
	return tools
}

// skillTool returns the tool that activates the skills of a side, or nil if the side has no skills.
func (x *Execution) skillTool(side *definition.Side, o offering) []tool.Tool {
	if len(side.Prompt.Skills) == 0 {
		return nil
	}
	return []tool.Tool{skill.New(side.Prompt.Skills, o.active, x.Host)}
}
