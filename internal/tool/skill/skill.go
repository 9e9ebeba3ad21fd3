// Package skill implements the tool with which a model activates the skills of its prompt (AGT-08). It records the
// activation on the thread before it returns the instructions, so that what the skill unlocks stays unlocked whatever
// happens next.
package skill

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Skill is a skill of a prompt.
type Skill struct {
	Name         string
	Description  string
	Instructions string
	Parameters   json.RawMessage // JSON Schema of the arguments; any object when empty
}

// Check validates arguments against the skill's schema. Absent arguments count as an empty object. The error says what
// is wrong.
func (s *Skill) Check(arguments json.RawMessage) error {
	schema, err := tool.CompileSchema(s.Parameters)
	if err != nil {
		return nil // the definition is wrong, which its condition reports
	}
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if err := schema.Validate(string(arguments)); err != nil {
		return fmt.Errorf("the arguments do not fit the skill %s: %w", s.Name, err)
	}
	return nil
}

// New returns the tool for the skills of a prompt. active names those that are active on the thread.
func New(skills []Skill, active map[string]bool, h *tool.Host) tool.Tool {
	return &skillTool{skills: skills, active: active, host: h}
}

type skillTool struct {
	skills []Skill
	active map[string]bool
	host   *tool.Host
}

// Definition implements tool.Tool.
func (t *skillTool) Definition() tool.Definition {
	var text strings.Builder
	text.WriteString("Activates a skill and gives its instructions. Do so before you work on what the skill is for: " +
		"more tools may be there from the next step on. Activating it once is enough; again gives the instructions once more. The skills:")
	names := make([]string, 0, len(t.skills))
	for i := range t.skills {
		s := &t.skills[i]
		names = append(names, s.Name)
		text.WriteString("\n- " + s.Name)
		if t.active[s.Name] {
			text.WriteString(" (active)")
		}
		text.WriteString(": " + s.Description)
		if len(s.Parameters) > 0 {
			text.WriteString(" Its arguments fit this JSON Schema: " + string(s.Parameters))
		}
	}
	schema, _ := json.Marshal(map[string]any{ // marshalling strings cannot fail
		"type": "object", "required": []string{"name"}, "additionalProperties": false,
		"properties": map[string]any{
			"name":      map[string]any{"type": "string", "enum": names},
			"arguments": map[string]any{"type": "object", "description": "The arguments of the skill, where it has any"},
		},
	})
	return tool.Definition{Name: tool.SkillTool, Description: text.String(), Parameters: schema}
}

// Call implements tool.Tool. A call that a crash interrupted finds its own record and returns the same result.
func (t *skillTool) Call(ctx context.Context, call tool.Call) tool.Result {
	var args struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(call.Arguments, &args); err != nil { // cannot happen: the schema has refused it already
		return tool.Failure("the arguments cannot be read: " + err.Error())
	}
	i := slices.IndexFunc(t.skills, func(s Skill) bool { return s.Name == args.Name })
	if i < 0 {
		return tool.Failure("there is no skill " + args.Name)
	}
	s := &t.skills[i]
	record, err := t.record(ctx, s, args.Arguments)
	if err != nil {
		return tool.Failure(err.Error())
	}
	text := s.Instructions
	if !same(record.Arguments, args.Arguments) {
		text += "\n\n[The skill was active already: its arguments are " + textOf(record.Arguments) + ".]"
	}
	return tool.Success(text)
}

// record returns the thread's activation of the skill, and creates it when there is none. An existing activation keeps
// its arguments, whatever the arguments are now.
func (t *skillTool) record(ctx context.Context, s *Skill, arguments json.RawMessage) (*store.SkillActivation, error) {
	info, err := t.host.State.Info(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(info.Fields.ActivatedSkills, func(a store.SkillActivation) bool { return a.Name == s.Name }); i >= 0 {
		return &info.Fields.ActivatedSkills[i], nil
	}
	if err := s.Check(arguments); err != nil {
		return nil, fmt.Errorf("%w. Activate it again with these corrected", err)
	}
	record, _, err := t.host.State.ActivateSkill(ctx, s.Name, arguments)
	return &record, err
}

// same reports whether two arguments are equal. Absent arguments, which ask for the instructions only, equal any.
func same(recorded, given json.RawMessage) bool {
	if len(given) == 0 {
		return true
	}
	var a, b any
	if json.Unmarshal([]byte(textOf(recorded)), &a) != nil || json.Unmarshal(given, &b) != nil {
		return false
	}
	return reflect.DeepEqual(a, b)
}

// textOf returns arguments as JSON text: absent ones are an empty object.
func textOf(arguments json.RawMessage) string {
	if len(arguments) == 0 {
		return "{}"
	}
	return string(arguments)
}
