package effectcode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
	"github.com/skein-dev/skein/internal/tool/httptool"
)

// runWithoutThread runs an effect of the cluster: in a sandbox of its own pool, with the variables that its object names.
func (c *Runner) runWithoutThread(ctx context.Context, call effects.Call) error {
	f, effect := call.Firing, call.Effect
	state := &code.Threadless{Env: map[string]string{}, Secret: map[string]bool{}, Definitions: c.opts.Executions.Definitions(f.Namespace)}
	values, err := c.opts.Definitions.EffectEnv(ctx, f.Namespace, call.Target.Env)
	if err != nil {
		return err // a *definition.NotReadyError waits
	}
	for _, v := range values {
		state.Env[v.Name], state.Secret[v.Name] = v.Value, v.Type == store.EnvSecret
	}
	pool := call.Target.Pool
	if pool == "" {
		pool = skeinv1.DefaultPoolName
	}
	// The sandbox belongs to the ScheduledEffect, under whose id it is claimed.
	owner := &store.Thread{ID: f.EffectID, Namespace: f.Namespace, Name: f.Name, Threadless: true}
	ctx = tellWaits(ctx, call)
	host := codeexec.NewHost(ctx, c.opts.Env, owner, pool, state)
	host.Lines = codelog.New(codelog.Options{
		Clock: c.opts.Clock, Redact: func(text string) string { return c.opts.Redact(f.Namespace, text) },
		Write:  func(context.Context, ...store.Op) error { return nil },
		Failed: func(error) {},
	})
	host.Lines.Collect()
	defer func() {
		host.Close()
		for _, line := range host.Lines.Collected() {
			call.Log.Add(time.UnixMicro(line.Time).UTC().Format(time.RFC3339Nano) + " " + line.Level + " " + line.Message)
		}
	}()
	module, timeout := "effects/"+effect.ObjectName, time.Duration(0)
	if effect.Spec.Timeout != nil {
		timeout = effect.Spec.Timeout.Duration
	}
	if call.Target.Timeout > 0 {
		timeout = call.Target.Timeout
	}
	host.Add(module, effect.Module, timeout)
	c.fault("effect.handler.before")
	_, err = host.Invoke(ctx, call.Key, module, call.Args, timeout)
	c.fault("effect.handler.after")
	if errors.Is(err, codeexec.ErrNoSandbox) {
		return &effects.WaitError{Err: err}
	}
	if err != nil {
		return handlerOutcome(host, &call.Target, err)
	}
	return nil
}

// CallTool calls a Tool over HTTP or MCP without a thread. It calls no Tool that requires an approval, since no run can wait for one.
func (c *Runner) CallTool(ctx context.Context, call effects.Call) error {
	f, ref := call.Firing, call.Target.Tool
	t, err := c.opts.Definitions.Tool(ctx, f.Namespace, ref.Name)
	if err != nil {
		return err // a *definition.NotReadyError waits
	}
	if t.Spec.RequiresApproval {
		return &effects.FinalError{Text: fmt.Sprintf("Tool %q requires an approval, which callTool cannot wait for: use queueTool on a thread whose agent has the tool", t.ObjectName)}
	}
	host := &tool.Host{
		Thread: &store.Thread{ID: f.EffectID, Namespace: f.Namespace, Name: f.Name, Threadless: true}, Threads: c.opts.Threads,
		Redact: func(text string) string { return c.opts.Redact(f.Namespace, text) },
	}
	made, err := c.tool(ctx, t, ref.Method, host)
	if err != nil {
		return err
	}
	set, err := tool.NewSet(made)
	if err != nil {
		return &effects.FinalError{Text: err.Error()}
	}
	args := f.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	res := set.Call(ctx, tool.Call{ID: call.Key, Name: made.Definition().Name, Arguments: args})
	call.Log.Add(clip.Text(host.Redacted(res.Content), maxToolAnswer))
	if res.Status != tool.StatusSuccess {
		return toolOutcome(&call.Target, res.Service, clip.Text(host.Redacted(res.Content), maxToolAnswer))
	}
	return nil
}

// toolOutcome returns the outcome of a call that failed. The status of an HTTP answer decides whether it is tried again.
func toolOutcome(t *effects.Target, f *tool.ServiceFailure, text string) error {
	switch {
	case f == nil:
		return &effects.HandlerError{Text: text}
	case t.RetriesStatus(f.Status):
		return &effects.ServiceError{Text: text, After: f.RetryAfter}
	}
	return &effects.FinalError{Text: text}
}

// maxToolAnswer bounds what a firing keeps of the answer of a tool, in bytes.
const maxToolAnswer = 4 << 10

// tool returns the tool of a Tool object, or the tool of its MCP server that method names.
func (c *Runner) tool(ctx context.Context, t *definition.Tool, method string, host *tool.Host) (tool.Tool, error) {
	switch {
	case t.HTTP != nil && method != "":
		return nil, &effects.FinalError{Text: fmt.Sprintf("callTool.method is for tools of MCP servers, and Tool %q is an HTTP request: remove callTool.method; the Tool says with spec.http.method how it is made", t.ObjectName)}
	case t.HTTP != nil:
		return httptool.New(httptool.Spec{
			Name: t.Name, Description: t.Spec.Description, Parameters: codeexec.Raw(t.Spec.Parameters), Timeout: codeexec.TimeoutOf(&t.Spec), Request: t.HTTP,
		}, host, c.opts.Env.Network), nil
	case t.MCP == nil:
		return nil, &effects.FinalError{Text: fmt.Sprintf("Tool %q is code, which needs a thread: use effect for code without one, or queueTool for a tool of a thread's agent", t.ObjectName)}
	}
	list, err := c.opts.Env.MCP.Tools(ctx, t.MCP)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, r := range list {
		if r.Remote == method {
			return c.opts.Env.MCP.Tool(t.MCP, r, host), nil
		}
		names = append(names, r.Remote)
	}
	return nil, &effects.FinalError{Text: fmt.Sprintf("the MCP server of Tool %q has no tool %q: set callTool.method to one of: %s", t.ObjectName, method, strings.Join(names, ", "))}
}
