package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/tool"
)

// CheckCalledAgent finds out whether an agent that a prompt lists as a tool is there and is to be called. Whether it
// is ready shows with the call: agents may name each other, and would wait for each other for ever.
func (d *Definitions) CheckCalledAgent(ctx context.Context, namespace, name, field string) (*skeinv1.Agent, error) {
	var a skeinv1.Agent
	if err := d.get(ctx, "Agent", namespace, name, field, &a); err != nil {
		return nil, err
	}
	if !a.Spec.ExposeAsTool {
		return nil, notReady(skeinv1.ReasonReferenceNotReady,
			"Agent %q is not to be called as a tool: set its spec.exposeAsTool and spec.toolDescription, or correct %s", name, field)
	}
	return &a, nil
}

// calledAgent resolves an agent as a tool.
func (d *Definitions) calledAgent(ctx context.Context, a *skeinv1.Agent, mode skeinv1.AgentToolMode) (*engine.CalledAgent, error) {
	out := &engine.CalledAgent{
		ObjectName: a.Name, Name: tool.Name(a.Name), Description: a.Spec.ToolDescription,
		Ask: mode == skeinv1.AgentToolAsk || a.Spec.Type != "" && a.Spec.Type != skeinv1.AgentAIHuman,
	}
	var p skeinv1.Prompt
	err := d.reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.SideA.PromptRef.Name}, &p, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Prompt %q: %w", a.Spec.SideA.PromptRef.Name, err)
	}
	if s := p.Spec.RequiredSchema; s != nil {
		out.Arguments = s.Raw
	}
	return out, nil
}

// CalledAgent implements engine.Definitions.
func (d *Definitions) CalledAgent(ctx context.Context, namespace, name string) (*engine.CalledAgent, error) {
	var list skeinv1.AgentList
	if err := d.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Agents: %w", err)
	}
	for i := range list.Items {
		if a := &list.Items[i]; a.Spec.ExposeAsTool && tool.Name(a.Name) == name {
			return d.calledAgent(ctx, a, "")
		}
	}
	return nil, nil
}

// HandoffPolicy implements engine.Definitions.
func (d *Definitions) HandoffPolicy(ctx context.Context, namespace, thread string) (skeinv1.HandoffPolicy, error) {
	var t skeinv1.Thread
	err := d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: thread}, &t, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Thread %q: %w", thread, err)
	}
	return t.Spec.HandoffPolicy, nil
}
