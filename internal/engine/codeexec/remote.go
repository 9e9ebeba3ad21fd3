package codeexec

import (
	"context"
	"fmt"
	"slices"
	"sync"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
)

// remoteTools are the tools of one MCP server, with their position among the prompt's tools.
type remoteTools struct {
	tool *definition.Tool
	ref  skeinv1.PromptTool
	at   int // the index of the other tool that they precede

	list []mcptool.Remote
	err  error
}

// hasRemote reports whether the side has tools of MCP servers. These can change at any time.
func (x *Execution) hasRemote() bool {
	return slices.ContainsFunc(x.Side().Tools, func(t definition.Tool) bool { return t.MCP != nil })
}

// withRemote returns a list with the tools of MCP servers added. It asks all servers at once and waits a short time only.
// If a server does not answer, its tools may be missing or old, and notes say so. A tool of a server never replaces
// another tool of the same name: it is left out, and notes say so.
func (x *Execution) withRemote(ctx context.Context, list []tool.Tool, servers []remoteTools, offer offering) (all []tool.Tool, notes []string, err error) {
	if len(servers) == 0 {
		return list, nil, nil
	}
	var group sync.WaitGroup
	for i := range servers {
		s := &servers[i]
		group.Go(func() { s.list, s.err = x.Env.MCP.Tools(ctx, s.tool.MCP) })
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
				notes = append(notes, fmt.Sprintf("A tool of the MCP server %s is left out, because another tool has the name %s: give the Tool another spec.mcp.prefix", s.tool.ObjectName, r.Name))
				x.Env.Log.Info("a tool of an MCP server is left out, because another tool has its name", "namespace", x.Host.Thread.Namespace, "tool", s.tool.ObjectName, "name", r.Name)
				continue
			}
			taken[r.Name] = true
			all = append(all, offer.tools(s.ref, &s.tool.Spec, x.Env.MCP.Tool(s.tool.MCP, r, x.Host))...)
		}
	}
	return append(all, list[done:]...), notes, nil
}

// progress appends the progress of a call to the log, for watchers. If it cannot be written the call continues.
func (x *Execution) progress(ctx context.Context, p tool.Progress) {
	if err := x.Host.State.Apply(ctx, runlog.Event(x.Host.RunID, store.EventToolProgress, "", p)); err != nil && ctx.Err() == nil {
		x.Env.Log.V(1).Info("cannot write the progress of a tool; the call continues", "thread", x.Host.Thread.ID, "error", err.Error())
	}
}
