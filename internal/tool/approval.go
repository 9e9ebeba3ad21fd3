package tool

import "encoding/json"

// WithApproval returns a tool of which each call must be approved first.
func WithApproval(t Tool, a Approval) Tool { return &approved{Tool: t, approval: a} }

// approved is a tool whose calls a person has to approve.
type approved struct {
	Tool
	approval Approval
}

// Definition implements Tool.
func (a *approved) Definition() Definition {
	d := a.Tool.Definition()
	d.Approval = &a.approval
	return d
}

// NeedsApproval returns how a call must be approved before it is made. It returns nil when the call needs no approval,
// or when it would fail anyway because its arguments are wrong.
func (s *Set) NeedsApproval(name string, arguments json.RawMessage) *Approval {
	e, ok := s.byName[name]
	if !ok {
		return nil
	}
	a := e.tool.Definition().Approval
	if a == nil {
		return nil
	}
	if _, err := e.schema.Check(string(arguments)); err != nil {
		return nil
	}
	return a
}

// Approved reports whether calls of a tool must be approved.
func (s *Set) Approved(name string) bool {
	e, ok := s.byName[name]
	return ok && e.tool.Definition().Approval != nil
}
