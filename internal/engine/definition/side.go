package definition

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/skill"
)

// Names of the two sides of an agent. In an ai_human agent, side b is the person.
const (
	SideA = "a"
	SideB = "b"
)

// Dual reports whether models or code play both sides (AGT-02).
func (a *Agent) Dual() bool { return a.B != nil }

// Side returns the side with a name. It returns side a for "", and when the agent has no side b.
func (a *Agent) Side(name string) *Side {
	if name == SideB && a.B != nil {
		return a.B
	}
	return a.A
}

// Sides returns the sides that the agent plays: a, or a and b.
func (a *Agent) Sides() []*Side {
	if a.B == nil {
		return []*Side{a.A}
	}
	return []*Side{a.A, a.B}
}

// Other returns the side that s talks with. It returns nil when that side is a person.
func (a *Agent) Other(s *Side) *Side {
	if s == a.A {
		return a.B
	}
	return a.A
}

// SpeakerName returns a side's label as a name that model providers accept: letters, digits, '_' and '-', at most 64 characters. It
// returns "" when no such character is left.
func SpeakerName(s *Side) string {
	name := strings.Map(func(c rune) rune {
		if c == '-' || c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
			return c
		}
		return '_'
	}, s.Spec.Label)
	return clipName(strings.Trim(name, "_"))
}

// clipName cuts a name to the length that providers accept.
func clipName(name string) string { return name[:min(len(name), 64)] }

// HasHooks reports whether any side has hooks.
func (a *Agent) HasHooks() bool { return len(a.A.Hooks) > 0 || a.B != nil && len(a.B.Hooks) > 0 }

// MessageSide returns the value of Message.Side for messages of s: its name if the agent has two sides, otherwise "".
func (a *Agent) MessageSide(s *Side) string {
	if a == nil || !a.Dual() || s == nil {
		return ""
	}
	return s.Name
}

// ShortName returns the name of a side as records store it: "" for side a, which is the only one that most agents have.
func ShortName(s *Side) string {
	if s == nil || s.Name != SideB {
		return ""
	}
	return s.Name
}

// Skill returns the skill with a name. It looks at the prompts of the sides first, then at prompts that are called as tools. It
// returns nil when there is none.
func (a *Agent) Skill(name string) *skill.Skill {
	sides := a.Sides()
	for _, name := range slices.Sorted(maps.Keys(a.Prompts)) {
		if p := a.Prompts[name]; p.Side != nil {
			sides = append(sides, p.Side)
		}
	}
	for _, s := range sides {
		if i := slices.IndexFunc(s.Prompt.Skills, func(s skill.Skill) bool { return s.Name == name }); i >= 0 {
			return &s.Prompt.Skills[i]
		}
	}
	return nil
}

// HookOf returns the hook that a call is for. It returns nil when the agent no longer has that hook.
func (a *Agent) HookOf(call *store.HookCall) *Hook {
	name := skeinv1.HookName(call.Hook)
	h := a.Side(call.Side).Hooks[name]
	if h == nil && call.NoSide {
		h = a.Side(SideB).Hooks[name]
	}
	return h
}

// HasHandlers reports whether any side of the agent is code.
func (a *Agent) HasHandlers() bool {
	return a.A.Handler != nil || a.B != nil && a.B.Handler != nil
}
