package codeexec

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/tool"
)

// SideOfTool returns the side of the agent that has a tool of that name, or a *definition.UnknownError when no side has it.
func (x *Execution) SideOfTool(ctx context.Context, name string) (*definition.Side, error) {
	set, side, err := x.toolsOffering(ctx, name)
	var f *failure.Error
	if errors.As(err, &f) {
		return nil, &definition.NotReadyError{Reason: f.Reason, Message: f.Message}
	}
	if err != nil {
		return nil, err
	}
	if !set.Has(name) {
		if t, err := x.UnlistedTool(ctx, name); t != nil || err != nil {
			return side, err
		}
		return nil, &definition.UnknownError{Message: fmt.Sprintf("the agent %s has no tool %q: %s", x.Agent.Name, name, set.NamesFor(name)), Unsure: set.Partial()}
	}
	return side, nil
}

// toolsOffering returns the tools of the side that has a tool of that name. In a run that is the side whose turn it is.
// Outside of a run it is the first side with the tool, side a before side b. When no side has it, the tools are those
// of the side that was asked first, beside the other side's.
func (x *Execution) toolsOffering(ctx context.Context, name string) (*tool.Set, *definition.Side, error) {
	if c := x.callerIn(ctx); c != nil {
		set, err := x.toolsFor(ctx, c.Broker)
		return set, c.Side, err
	}
	side := x.Side()
	set, err := x.currentTools(ctx)
	if err != nil || set.Has(name) || x.Turn != nil || !x.Agent.Dual() {
		return set, side, err
	}
	other := x.Agent.Other(side)
	x.Use(other)
	theirs, err := x.currentTools(ctx)
	if err != nil || theirs.Has(name) {
		return theirs, other, err
	}
	x.Use(side)
	set.AlsoSuggest(theirs)
	return set, side, nil
}
