package tool

import (
	"context"
	"fmt"
)

// Locked has a tool wait for a skill (AGT-08): a model is not shown it, and a call of it, whatever its arguments
// are, says which skill to activate, and does nothing. Nobody is asked to approve such a call.
func Locked(t Tool, skill string) Tool { return &locked{name: t.Definition().Name, skill: skill} }

type locked struct{ name, skill string }

// Definition implements Tool.
func (l *locked) Definition() Definition { return Definition{Name: l.name, Hidden: true} }

// Call implements Tool.
func (l *locked) Call(context.Context, Call) Result {
	return Failure(fmt.Sprintf("%s is there once the skill %q is active: activate it by the tool %s, and call %s in a step after that", l.name, l.skill, SkillTool, l.name))
}

// SkillTool is the name of the tool by which a model activates skills.
const SkillTool = "skill"
