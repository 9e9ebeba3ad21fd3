package tool

import (
	"context"
	"fmt"
)

// Locked returns a tool that is unavailable until a skill is active (AGT-08). Models do not see it. A call of it,
// whatever its arguments, does nothing and says which skill to activate. Such a call needs no approval.
func Locked(t Tool, skill string) Tool { return &locked{name: t.Definition().Name, skill: skill} }

type locked struct{ name, skill string }

// Definition implements Tool.
func (l *locked) Definition() Definition { return Definition{Name: l.name, Hidden: true} }

// Call implements Tool.
func (l *locked) Call(context.Context, Call) Result {
	return Failure(fmt.Sprintf("%s is there once the skill %q is active: activate it by the tool %s, and call %s in a step after that", l.name, l.skill, SkillTool, l.name))
}

// SkillTool is the name of the tool with which a model activates skills.
const SkillTool = "skill"
