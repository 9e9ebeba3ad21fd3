package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// Which skills are active is what the thread's row says (SPEC AGT-08), whoever has put it there. The tools of a step are
// made for what was active when it began and do not change within it: what of its calls has to be approved is settled
// before the first of them is made, and one of them may activate a skill.

// activeSkills gives the names of the skills that are active on the thread, in the order of their activation; nothing
// where the prompt of the side has none, so that others do not pay for it.
func (e *Engine) activeSkills(ctx context.Context, side *definition.Side, threadID string) ([]string, error) {
	if side == nil || len(side.Prompt.Skills) == 0 {
		return nil, nil
	}
	t, err := e.store.Thread(ctx, threadID)
	if err != nil {
		return nil, fmt.Errorf("look which skills are active: %w", err)
	}
	names := make([]string, 0, len(t.Fields.ActivatedSkills))
	for _, a := range t.Fields.ActivatedSkills {
		names = append(names, a.Name)
	}
	return names, nil
}

// skillsChanged tells whether the tools of the side were made for other skills than are active now.
func (r *run) skillsChanged(ctx context.Context) (bool, error) {
	now, err := r.engine.activeSkills(ctx, r.side(), r.thread.ID)
	return err == nil && !slices.Equal(now, r.tools.Skills()), err
}

// offering makes what a prompt lists into tools.
type offering struct{ active map[string]bool }

// newOffering is for the skills that are active.
func newOffering(active []string) offering {
	o := offering{active: make(map[string]bool, len(active))}
	for _, name := range active {
		o.active[name] = true
	}
	return o
}

// tools are those of one entry of a prompt: locked until its skill is active, and approved first where that is asked
// for. spec is nil for tools that are no Tool objects.
func (o offering) tools(ref skeinv1.PromptTool, spec *skeinv1.ToolSpec, tools ...tool.Tool) []tool.Tool {
	if ref.Skill == "" || o.active[ref.Skill] {
		return approvedFirst(ref, spec, tools...)
	}
	for i, t := range tools {
		tools[i] = tool.Locked(t, ref.Skill)
	}
	return tools
}

// skillTool is the tool for the skills of a side; none where it has none.
func (x *execution) skillTool(side *definition.Side, o offering) []tool.Tool {
	if len(side.Prompt.Skills) == 0 {
		return nil
	}
	return []tool.Tool{skill.New(side.Prompt.Skills, o.active, x.host)}
}

// CheckSkill holds an activation from outside against the skills of the thread's agent: its arguments fit the schema of
// the skill of its name, where there is one. The agent may have none of that name, or not be ready: then it is a record
// of the caller's own. wrong says what is wrong with the arguments; "" when nothing is.
func (e *Engine) CheckSkill(ctx context.Context, t *store.Thread, a store.SkillActivation) (wrong string, err error) {
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if errors.As(err, &notReady) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if s := agent.Skill(a.Name); s != nil {
		if err := s.Check(a.Arguments); err != nil {
			return err.Error(), nil
		}
	}
	return "", nil
}
