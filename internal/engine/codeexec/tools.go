package codeexec

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/builtin"
	"github.com/skein-dev/skein/internal/tool/code"
	"github.com/skein-dev/skein/internal/tool/httptool"
	toolprompt "github.com/skein-dev/skein/internal/tool/prompt"
	"github.com/skein-dev/skein/internal/tool/session"
)

// ToolsChange reports whether the tools on offer depend on more than the agent.
func (x *Execution) ToolsChange() bool { return x.offersSubagents() || x.hasRemote() }

// offersSubagents reports whether the prompt has the tools for subagents, which depend on the children that there are.
func (x *Execution) offersSubagents() bool {
	return slices.ContainsFunc(x.Side().Prompt.Spec.Tools, func(t skeinv1.PromptTool) bool { return t.Builtin == skeinv1.BuiltinSubagents })
}

// BuildTools builds the tools of the side whose turn it is. It returns a *failure.Error when they cannot be offered.
func (x *Execution) BuildTools(ctx context.Context) (*tool.Set, error) {
	return x.toolsOf(ctx, x.Side())
}

func (x *Execution) toolsOf(ctx context.Context, side *definition.Side) (*tool.Set, error) {
	var list []tool.Tool
	var servers []remoteTools
	next := 0
	agents, err := x.agentTools(ctx, side.Agents)
	if err != nil {
		return nil, err
	}
	active, err := x.Env.ActiveSkills(ctx, side, x.Host.Thread.ID)
	if err != nil {
		return nil, err
	}
	offer := newOffering(active)
	for _, ref := range side.Prompt.Spec.Tools {
		if ref.Builtin != "" {
			family, err := builtin.Family(ctx, ref.Builtin, x.Host)
			if err != nil {
				return nil, err
			}
			list = append(list, offer.tools(ref, nil, family...)...)
			continue
		}
		if p := x.Agent.Prompts[ref.Prompt]; ref.Prompt != "" {
			if p != nil {
				list = append(list, offer.tools(ref, nil, promptTool(ref, p))...)
			}
			continue
		}
		if ref.Agent != "" {
			if len(agents) > 0 { // Side.Agents are in the prompt's order too
				list, agents = append(list, offer.tools(ref, nil, agents[0])...), agents[1:]
			}
			continue
		}
		if next < len(side.Tools) && side.Tools[next].MCP != nil {
			servers = append(servers, remoteTools{tool: &side.Tools[next], ref: ref, at: len(list)})
			next++
			continue
		}
		if next < len(side.Tools) { // Side.Tools are the named ones, in the prompt's order
			t, err := x.namedTool(ctx, &side.Tools[next])
			if err != nil {
				return nil, err
			}
			list = append(list, offer.tools(ref, &side.Tools[next].Spec, t)...)
			next++
		}
	}
	list = append(append(list, x.skillTool(side, offer)...), session.Tools(side.Spec, x.Host)...)
	list, notes, err := x.withRemote(ctx, list, servers, offer)
	if err != nil {
		return nil, err
	}
	set, err := tool.NewSet(list...)
	if err != nil {
		return nil, failure.New(skeinv1.ReasonInvalidTools, "the tools of prompt %s cannot be offered: %v", side.Prompt.Name, err)
	}
	set.SetSkills(active)
	for _, note := range notes {
		set.Note(note)
	}
	if slices.ContainsFunc(servers, func(s remoteTools) bool { return s.err != nil }) {
		set.MarkPartial()
	}
	x.mu.Lock()
	if x.within == side || x.within == nil && (x.now == nil || x.now == side) {
		x.tools = set
	}
	x.mu.Unlock()
	return set, nil
}

// approvedFirst returns the tools so that their calls need approval when the prompt or the Tool requires it (RUN-11).
// spec is nil for tools that are not Tool objects.
func approvedFirst(ref skeinv1.PromptTool, spec *skeinv1.ToolSpec, tools ...tool.Tool) []tool.Tool {
	required, timeout := ref.RequiresApproval, ref.ApprovalTimeout
	if spec != nil {
		required = required || spec.RequiresApproval
		if timeout == nil {
			timeout = spec.ApprovalTimeout
		}
	}
	if !required {
		return tools
	}
	var a tool.Approval
	if timeout != nil {
		a.Timeout = timeout.Duration
	}
	for i, t := range tools {
		tools[i] = tool.WithApproval(t, a)
	}
	return tools
}

// currentTools returns the tools that were built last, or builds them.
func (x *Execution) currentTools(ctx context.Context) (*tool.Set, error) {
	x.mu.Lock()
	set := x.tools
	x.mu.Unlock()
	if set != nil {
		return set, nil
	}
	return x.BuildTools(ctx)
}

// namedTool returns the tool of a Tool object.
func (x *Execution) namedTool(ctx context.Context, t *definition.Tool) (tool.Tool, error) {
	if t.HTTP != nil {
		return httptool.New(httptool.Spec{
			Name: t.Name, Description: t.Spec.Description, Parameters: Raw(t.Spec.Parameters), Timeout: TimeoutOf(&t.Spec), Request: t.HTTP,
		}, x.Host, x.Env.Network), nil
	}
	return x.codeTool(ctx, t)
}

func (x *Execution) codeTool(ctx context.Context, t *definition.Tool) (tool.Tool, error) {
	parameters, err := x.parameters(ctx, t)
	if err != nil {
		return nil, err
	}
	return code.New(code.Spec{
		Name: t.Name, Description: t.Spec.Description, Parameters: parameters, Module: moduleOf(t), Timeout: TimeoutOf(&t.Spec),
	}, x.Host), nil
}

// parameters returns the parameters of a tool: those of the object, else those that its code declares. The code is
// asked once for each digest.
func (x *Execution) parameters(ctx context.Context, t *definition.Tool) (json.RawMessage, error) {
	if p := Raw(t.Spec.Parameters); len(p) > 0 {
		return p, nil
	}
	if known, ok := x.Env.Schemas.Get(t.Digest); ok {
		return known.(json.RawMessage), nil
	}
	d, err := x.Code.describe(ctx, moduleOf(t))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// A call of the tool will report what is wrong. Until then the tool accepts any object.
		x.Env.Log.Error(err, "cannot ask a tool's code for its parameters", "namespace", x.Host.Thread.Namespace, "tool", t.ObjectName)
		return nil, nil
	}
	var schema json.RawMessage
	if len(d.Args) > 0 {
		if schema, err = json.Marshal(d.Args); err != nil {
			return nil, fmt.Errorf("parameters of tool %s: %w", t.Name, err)
		}
	}
	x.Env.Schemas.Add(t.Digest, schema)
	return schema, nil
}

func moduleOf(t *definition.Tool) string { return "tools/" + t.ObjectName }

// TimeoutOf returns the time limit of a tool; 0 if its object sets none.
func TimeoutOf(s *skeinv1.ToolSpec) time.Duration {
	if s.Timeout == nil {
		return 0
	}
	return s.Timeout.Duration
}

func poolOf(a *definition.Agent) string {
	if a != nil && a.Spec.SandboxPoolRef != nil {
		return a.Spec.SandboxPoolRef.Name
	}
	return skeinv1.DefaultPoolName
}

// Raw returns the JSON of an extension; nil for none.
func Raw(x *runtime.RawExtension) json.RawMessage {
	if x == nil {
		return nil
	}
	return x.Raw
}

// promptTool returns a prompt as a tool.
func promptTool(ref skeinv1.PromptTool, p *definition.CalledPrompt) tool.Tool {
	var description string
	var required json.RawMessage
	if p.Side != nil {
		description, required = p.Side.Prompt.Spec.ToolDescription, Raw(p.Side.Prompt.Spec.RequiredSchema)
	}
	return toolprompt.New(ref, tool.Name(ref.Prompt), description, required)
}
