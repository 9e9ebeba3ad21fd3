package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
)

// remoteTools are the tools of an MCP server, and where in the prompt's they belong.
type remoteTools struct {
	tool *definition.Tool
	ref  skeinv1.PromptTool
	at   int // before which of the others

	list []mcptool.Remote
	err  error
}

// hasRemote tells whether some tools are those of MCP servers, which change when their servers say so.
func (x *execution) hasRemote() bool {
	return slices.ContainsFunc(x.side().Tools, func(t definition.Tool) bool { return t.MCP != nil })
}

// withRemote adds the tools of MCP servers to a list. All servers are asked at once, and none for long: what one that is
// gone offered is left out, and notes say so. No name of a server's takes the place of another tool.
func (x *execution) withRemote(ctx context.Context, list []tool.Tool, servers []remoteTools, offer offering) (all []tool.Tool, notes []string, err error) {
	if len(servers) == 0 {
		return list, nil, nil
	}
	var group sync.WaitGroup
	for i := range servers {
		s := &servers[i]
		group.Go(func() { s.list, s.err = x.engine.opts.MCP.Tools(ctx, s.tool.MCP) })
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	taken := map[string]bool{}
	for _, t := range list {
		taken[t.Definition().Name] = true
	}
	done := 0
	for _, s := range servers {
		all = append(all, list[done:s.at]...)
		done = s.at
		if s.err != nil {
			notes = append(notes, fmt.Sprintf("The tools of the MCP server %s may be missing or old: %v", s.tool.ObjectName, s.err))
		}
		for _, r := range s.list {
			if taken[r.Name] {
				notes = append(notes, fmt.Sprintf("A tool of the MCP server %s is left out, for another has the name %s: give the Tool another spec.mcp.prefix", s.tool.ObjectName, r.Name))
				x.engine.log.Info("a tool of an MCP server is left out, for another has its name", "namespace", x.host.Thread.Namespace, "tool", s.tool.ObjectName, "name", r.Name)
				continue
			}
			taken[r.Name] = true
			all = append(all, offer.tools(s.ref, &s.tool.Spec, x.engine.opts.MCP.Tool(s.tool.MCP, r, x.host))...)
		}
	}
	return append(all, list[done:]...), notes, nil
}

// progress puts into the log how far a call is. It is for watchers: when it cannot be written, nothing is lost.
func (x *execution) progress(ctx context.Context, p tool.Progress) {
	if err := x.host.State.Apply(ctx, eventOp(x.host.RunID, store.EventToolProgress, "", p)); err != nil && ctx.Err() == nil {
		x.engine.log.V(1).Info("the progress of a tool cannot be written", "thread", x.host.Thread.ID, "error", err.Error())
	}
}
