package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Set is the tools of one execution, by name.
type Set struct {
	order  []Tool
	byName map[string]entry
	notes  []string
	skills []string
}

type entry struct {
	tool   Tool
	schema *Schema
}

// NewSet makes a set. Two tools of one name, or a schema that cannot be used, are an error.
func NewSet(tools ...Tool) (*Set, error) {
	s := &Set{byName: make(map[string]entry, len(tools))}
	for _, t := range tools {
		d := t.Definition()
		if _, taken := s.byName[d.Name]; taken {
			return nil, fmt.Errorf("two tools have the name %q: rename one of them", d.Name)
		}
		schema, err := CompileSchema(d.Parameters)
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", d.Name, err)
		}
		s.byName[d.Name] = entry{tool: t, schema: schema}
		s.order = append(s.order, t)
	}
	return s, nil
}

// With gives the set with one more tool, which takes the place of one of its name. It is not shown to a model.
func (s *Set) With(t Tool) *Set {
	byName := maps.Clone(s.byName)
	d := t.Definition()
	schema, err := CompileSchema(d.Parameters)
	if err != nil {
		schema = &Schema{} // the tool reads its arguments itself
	}
	byName[d.Name] = entry{tool: t, schema: schema}
	return &Set{order: s.order, byName: byName, skills: s.skills}
}

// Definitions that a model gets to see, in the order in which the tools were given.
func (s *Set) Definitions() []Definition {
	out := make([]Definition, 0, len(s.order))
	for _, t := range s.order {
		if d := t.Definition(); !d.Hidden {
			out = append(out, d)
		}
	}
	return out
}

// Has tells whether there is a tool of this name.
func (s *Set) Has(name string) bool {
	_, ok := s.byName[name]
	return ok
}

// Parameters returns the JSON Schema of a tool's arguments; nil where there is no such tool.
func (s *Set) Parameters(name string) json.RawMessage {
	e, ok := s.byName[name]
	if !ok {
		return nil
	}
	return e.tool.Definition().Parameters
}

// Call checks the arguments that a model wrote and calls the tool.
func (s *Set) Call(ctx context.Context, call Call) Result {
	e, ok := s.byName[call.Name]
	if !ok {
		return Failure(s.unknown(call.Name))
	}
	var err error
	if call.Arguments, err = e.schema.Check(string(call.Arguments)); err != nil {
		return Failure(err.Error())
	}
	return e.tool.Call(ctx, call)
}

func (s *Set) unknown(name string) string {
	return fmt.Sprintf("there is no tool %q: %s", name, s.NamesFor(name))
}

// maxNames is how many names an error lists, and maxAsked how much of a wrong one is looked at.
const (
	maxNames = 50
	maxAsked = 200
)

// NamesFor says which tools there are, for an error about one that is not: those with names like it come first.
func (s *Set) NamesFor(wrong string) string {
	definitions := s.Definitions()
	names := make([]string, 0, len(definitions))
	for _, d := range definitions {
		names = append(names, d.Name)
	}
	var text string
	switch alike := closest(wrong[:min(len(wrong), maxAsked)], names); {
	case len(names) == 0:
		text = "this agent has no tools, answer without one"
	case len(alike) > 0 && len(names) > maxNames:
		text = "did you mean " + strings.Join(alike, " or ") + "?"
	case len(alike) > 0:
		text = "did you mean " + strings.Join(alike, " or ") + "? There are " + strings.Join(names, ", ")
	case len(names) > maxNames:
		text = "call one of " + strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNames)
	default:
		text = "call one of " + strings.Join(names, ", ")
	}
	for _, note := range s.notes {
		text += ". " + note
	}
	return text
}

// MadeFor notes which skills were active when the set was made, which tells what of it is locked.
func (s *Set) MadeFor(skills []string) { s.skills = skills }

// Skills gives those that were active when the set was made.
func (s *Set) Skills() []string { return s.skills }

// Note adds what an error about a tool that is not there should say, too: why others are missing.
func (s *Set) Note(text string) { s.notes = append(s.notes, text) }
