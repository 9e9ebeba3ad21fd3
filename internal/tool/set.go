package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Set holds the tools of one execution by name.
type Set struct {
	order  []Tool
	byName map[string]entry
	notes  []string
	// partial means that tools may be missing.
	partial bool
	skills  []string
	// alsoSuggested is another set whose tools the same callers may call; nil if there is none.
	alsoSuggested *Set
}

type entry struct {
	tool   Tool
	schema *Schema
}

// NewSet returns a set. It returns an error when two tools have the same name or a schema is invalid.
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

// With returns the set with one more tool, which replaces a tool of the same name. Models do not see the new tool.
func (s *Set) With(t Tool) *Set {
	byName := maps.Clone(s.byName)
	d := t.Definition()
	schema, err := CompileSchema(d.Parameters)
	if err != nil {
		schema = &Schema{} // the tool checks its arguments itself
	}
	byName[d.Name] = entry{tool: t, schema: schema}
	return &Set{order: s.order, byName: byName, skills: s.skills, partial: s.partial}
}

// Definitions returns the definitions that a model sees, in the order in which the tools were added.
func (s *Set) Definitions() []Definition {
	out := make([]Definition, 0, len(s.order))
	for _, t := range s.order {
		if d := t.Definition(); !d.Hidden {
			out = append(out, d)
		}
	}
	return out
}

// Has reports whether there is a tool of this name.
func (s *Set) Has(name string) bool {
	_, ok := s.byName[name]
	return ok
}

// Parameters returns the JSON Schema of a tool's arguments; nil when there is no such tool.
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

// maxNames is how many names an error lists. maxAsked is how much of a wrong name is compared.
const (
	maxNames = 50
	maxAsked = 200
)

// NamesFor returns which tools exist, for an error about one that does not. Those with similar names come first.
func (s *Set) NamesFor(wrong string) string {
	names := s.names()
	if s.alsoSuggested != nil {
		for _, name := range s.alsoSuggested.names() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
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

// names returns the names of the tools that a model sees.
func (s *Set) names() []string {
	definitions := s.Definitions()
	names := make([]string, 0, len(definitions))
	for _, d := range definitions {
		names = append(names, d.Name)
	}
	return names
}

// SetSkills records which skills were active when the set was made. They decide which tools are locked.
func (s *Set) SetSkills(skills []string) { s.skills = skills }

// Skills returns the skills that were active when the set was made.
func (s *Set) Skills() []string { return s.skills }

// Note adds a sentence to errors about unknown tools: why other tools are missing.
func (s *Set) Note(text string) { s.notes = append(s.notes, text) }

// MarkPartial records that tools may be missing, because a server that has some did not answer.
func (s *Set) MarkPartial() { s.partial = true }

// AlsoSuggest makes errors about unknown tools name those of another set too. Callers of this set may call them. What may be missing
// in other may be missing here.
func (s *Set) AlsoSuggest(other *Set) {
	s.alsoSuggested = other
	s.partial = s.partial || other.partial
	for _, note := range other.notes {
		if !slices.Contains(s.notes, note) {
			s.notes = append(s.notes, note)
		}
	}
}

// Partial reports whether tools may be missing, because a server that has some did not answer.
func (s *Set) Partial() bool { return s.partial }
