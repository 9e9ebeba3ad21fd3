package definition

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// checker finds what keeps a definition from being used. For a referenced object it uses that object's own Ready
// condition. Changes of that condition are watched, so none is missed.
type checker struct {
	reader      client.Reader
	defs        *definitions.Resolver
	listenerOff bool
}

func (c *checker) model(ctx context.Context, m *skeinv1.Model) error {
	if _, err := c.defs.Models.Resolve(ctx, m); err != nil {
		return err
	}
	return c.defs.Models.CheckAddress(ctx, m)
}

func (c *checker) tool(ctx context.Context, t *skeinv1.Tool) error {
	resolved, err := c.defs.Tools.Resolve(ctx, t)
	if err != nil {
		return err
	}
	if t.Spec.Code == nil {
		return c.defs.Tools.CheckAddress(ctx, t, resolved)
	}
	return c.defs.Pools.CheckAny(ctx, t.Namespace)
}

// packable sets whether a Tool's code can be used elsewhere (TOL-04). For code that is not ready that is unknown.
func (c *checker) packable(ctx context.Context, t *skeinv1.Tool, w conditions.Writer) {
	if t.Spec.Code == nil { // a remote tool works wherever it is declared
		w.Set(skeinv1.ConditionPackable, metav1.ConditionTrue, skeinv1.ReasonPortable, "")
		return
	}
	resolved, err := c.defs.Tools.Resolve(ctx, t)
	switch {
	case err != nil:
		w.Set(skeinv1.ConditionPackable, metav1.ConditionUnknown, skeinv1.ReasonReferenceNotReady, "its code is not ready: see the condition Ready")
	case resolved.Module.ReadsRuntimeContext:
		w.Set(skeinv1.ConditionPackable, metav1.ConditionFalse, skeinv1.ReasonReadsRuntimeContext,
			"its code reads state._notPackableRuntimeContext, which only this platform has: it cannot be packed, shared or published")
	default:
		w.Set(skeinv1.ConditionPackable, metav1.ConditionTrue, skeinv1.ReasonPortable, "")
	}
}

func (c *checker) effect(ctx context.Context, e *skeinv1.Effect) error {
	if _, err := c.defs.ResolveEffect(ctx, e); err != nil {
		return err
	}
	return c.defs.Pools.CheckAny(ctx, e.Namespace)
}

func (c *checker) endpoint(ctx context.Context, e *skeinv1.ThreadEndpoint) error {
	if ref := e.Spec.AgentRef; ref != nil {
		if err := c.exists(ctx, "Agent", e.Namespace, ref.Name, "spec.agentRef", &skeinv1.Agent{}); err != nil {
			return err
		}
	}
	if _, err := c.defs.Endpoints.Resolve(ctx, e); err != nil {
		return err
	}
	if err := c.defs.Endpoints.CheckPath(ctx, e); err != nil {
		return err
	}
	return c.defs.Pools.CheckAny(ctx, e.Namespace)
}

func (c *checker) gateway(ctx context.Context, g *skeinv1.ThreadGateway) error {
	if err := c.readyAgent(ctx, g.Namespace, g.Spec.AgentRef.Name); err != nil {
		return err
	}
	if _, err := c.defs.Gateways.Resolve(ctx, g); err != nil {
		return err
	}
	if err := c.defs.Gateways.CheckAddress(ctx, g); err != nil {
		return err
	}
	for i, ref := range g.Spec.EndpointRefs {
		if err := c.readyEndpoint(ctx, g, ref.Name, fmt.Sprintf("spec.endpointRefs[%d].name", i)); err != nil {
			return err
		}
	}
	return c.checkServed()
}

// readyEndpoint checks a ThreadEndpoint that a gateway serves.
func (c *checker) readyEndpoint(ctx context.Context, g *skeinv1.ThreadGateway, name, field string) error {
	var e skeinv1.ThreadEndpoint
	if err := c.checkReady(ctx, "ThreadEndpoint", g.Namespace, name, field, &e, func() []metav1.Condition { return e.Status.Conditions }); err != nil {
		return err
	}
	if of := e.Spec.AgentRef; of != nil && of.Name != g.Spec.AgentRef.Name {
		return notReady(skeinv1.ReasonInvalidSpec, "%s: ThreadEndpoint %q serves only threads of Agent %q, and the threads of this gateway have Agent %q: remove it here, or change its spec.agentRef",
			field, name, of.Name, g.Spec.AgentRef.Name)
	}
	return nil
}

// checkServed checks that the manager serves what people and servers outside reach.
func (c *checker) checkServed() error {
	if !c.listenerOff {
		return nil
	}
	return objects.NotReady(skeinv1.ReasonListenerOff, "the manager's listener for gateways is off: start it with --gateway-bind-address (docs/gateway.md)")
}

func (c *checker) webhook(ctx context.Context, w *skeinv1.Webhook) error {
	for i, ref := range w.Spec.AgentRefs { // an Agent that is not Ready can still have runs that end
		if err := c.exists(ctx, "Agent", w.Namespace, ref.Name, fmt.Sprintf("spec.agentRefs[%d].name", i), &skeinv1.Agent{}); err != nil {
			return err
		}
	}
	if err := c.defs.Webhooks.CheckAddress(ctx, w); err != nil {
		return err
	}
	_, err := c.defs.Webhooks.Resolve(ctx, w)
	return err
}

func (c *checker) receiver(ctx context.Context, w *skeinv1.WebhookReceiver) error {
	if ref := w.Spec.AgentRef; ref != nil {
		if err := c.readyAgent(ctx, w.Namespace, ref.Name); err != nil {
			return err
		}
	}
	if ref := w.Spec.ThreadRef; ref != nil {
		if err := c.openThread(ctx, w.Namespace, ref.Name); err != nil {
			return err
		}
	}
	if _, err := c.defs.Webhooks.ResolveReceiver(ctx, w); err != nil {
		return err
	}
	return c.checkServed()
}

// readyAgent checks the Agent of spec.agentRef.
func (c *checker) readyAgent(ctx context.Context, namespace, name string) error {
	var a skeinv1.Agent
	return c.checkReady(ctx, "Agent", namespace, name, "spec.agentRef", &a, func() []metav1.Condition { return a.Status.Conditions })
}

// openThread checks that the Thread of spec.threadRef takes messages and can answer them.
func (c *checker) openThread(ctx context.Context, namespace, name string) error {
	var t skeinv1.Thread
	err := c.checkReady(ctx, "Thread", namespace, name, "spec.threadRef", &t, func() []metav1.Condition { return t.Status.Conditions })
	if meta.IsStatusConditionTrue(t.Status.Conditions, skeinv1.ConditionTerminated) {
		return notReady(skeinv1.ReasonInvalidSpec, "Thread %q has ended and takes no more messages: name another Thread in spec.threadRef, or write spec.agentRef in its place", name)
	}
	return err
}

func (c *checker) prompt(ctx context.Context, p *skeinv1.Prompt) error {
	if err := c.defs.Variables.Check(ctx, p.Namespace, p.Spec.Env); err != nil {
		return err
	}
	if _, err := c.defs.Prompts.Resolve(ctx, p); err != nil {
		return err
	}
	if err := definitions.CheckToolNames(&p.Spec); err != nil {
		return err
	}
	if err := c.defs.Code.CheckPromptHooks(ctx, p); err != nil {
		return err
	}
	var m skeinv1.Model
	if err := c.checkReady(ctx, "Model", p.Namespace, p.Spec.ModelRef.Name, "spec.modelRef", &m, func() []metav1.Condition { return m.Status.Conditions }); err != nil {
		return err
	}
	if err := definitions.CheckWrites("spec.modelRef", m.Name, &m.Spec); err != nil {
		return err
	}
	servers := map[string]*skeinv1.MCPServer{}
	for i, ref := range p.Spec.Tools {
		if ref.Prompt != "" {
			if err := c.defs.CheckCalledPrompt(ctx, p.Namespace, ref.Prompt, fmt.Sprintf("spec.tools[%d].prompt", i)); err != nil {
				return err
			}
		}
		if ref.Agent != "" {
			if _, err := c.defs.CheckCalledAgent(ctx, p.Namespace, ref.Agent, fmt.Sprintf("spec.tools[%d].agent", i)); err != nil {
				return err
			}
		}
		if ref.Name == "" {
			continue
		}
		var t skeinv1.Tool
		if err := c.checkReady(ctx, "Tool", p.Namespace, ref.Name, fmt.Sprintf("spec.tools[%d].name", i), &t, func() []metav1.Condition { return t.Status.Conditions }); err != nil {
			return err
		}
		if t.Spec.MCP != nil {
			servers[t.Name] = t.Spec.MCP
		}
	}
	return definitions.CheckServerNames(p.Spec.Tools, servers)
}

func (c *checker) agent(ctx context.Context, a *skeinv1.Agent) error {
	if err := c.defs.Variables.Check(ctx, a.Namespace, a.Spec.Env); err != nil {
		return err
	}
	if err := c.defs.Code.CheckAgentHooks(ctx, a); err != nil {
		return err
	}
	if err := c.side(ctx, a, "spec.sideA", &a.Spec.SideA); err != nil {
		return err
	}
	if b := a.Spec.SideB; b != nil {
		if err := c.side(ctx, a, "spec.sideB", b); err != nil {
			return err
		}
	}
	if err := c.checkModelsAfterRun(ctx, a); err != nil {
		return err
	}
	for i, s := range a.Spec.Subagents {
		// Only check that it exists: agents may name each other, and a child waits for its own agent.
		if err := c.exists(ctx, "Agent", a.Namespace, s.AgentRef.Name, fmt.Sprintf("spec.subagents[%d].agentRef", i), &skeinv1.Agent{}); err != nil {
			return err
		}
	}
	if err := c.defs.Pools.Check(ctx, a); err != nil {
		return err
	}
	if ref := a.Spec.SandboxPoolRef; ref != nil { // also when no code needs it, and when pools are not required
		return c.exists(ctx, "SandboxPool", a.Namespace, ref.Name, "spec.sandboxPoolRef", &skeinv1.SandboxPool{})
	}
	return nil
}

// side checks a side of an agent. field is the agent's field that holds the side.
func (c *checker) side(ctx context.Context, a *skeinv1.Agent, field string, s *skeinv1.AgentSide) error {
	h := s.Handler
	if h == nil {
		var p skeinv1.Prompt
		if err := c.checkReady(ctx, "Prompt", a.Namespace, s.PromptRef.Name, field+".promptRef", &p, func() []metav1.Condition { return p.Status.Conditions }); err != nil {
			return err
		}
		return definitions.CheckMemory(a, &p)
	}
	if err := c.defs.Code.CheckHandler(ctx, a, field, h); err != nil {
		return err
	}
	for i, ref := range h.Models {
		var m skeinv1.Model
		at := fmt.Sprintf("%s.handler.models[%d].modelRef", field, i)
		if err := c.checkReady(ctx, "Model", a.Namespace, ref.ModelRef.Name, at, &m, func() []metav1.Condition { return m.Status.Conditions }); err != nil {
			return err
		}
		if err := definitions.CheckWrites(at, m.Name, &m.Spec); err != nil {
			return err
		}
	}
	return nil
}

// checkModelsAfterRun checks the models that are used after the agent's runs.
func (c *checker) checkModelsAfterRun(ctx context.Context, a *skeinv1.Agent) error {
	if ref := objects.MemoryModelRef(a); ref != nil {
		var m skeinv1.Model
		if err := c.checkReady(ctx, "Model", a.Namespace, ref.Name, "spec.memory.embeddingModelRef", &m, func() []metav1.Condition { return m.Status.Conditions }); err != nil {
			return err
		}
		if err := definitions.CheckEmbeds(m.Name, &m.Spec); err != nil {
			return err
		}
	}
	return nil
}

// titles sets whether the Model of an agent's titles can be used. The agent works without it.
func (c *checker) titles(ctx context.Context, a *skeinv1.Agent, w conditions.Writer) {
	ref := a.Spec.TitleModelRef
	if ref == nil || a.Spec.TitlePolicy == skeinv1.TitleNever {
		meta.RemoveStatusCondition(w.List, skeinv1.ConditionTitlesReady)
		return
	}
	var m skeinv1.Model
	err := c.checkReady(ctx, "Model", a.Namespace, ref.Name, "spec.titleModelRef", &m, func() []metav1.Condition { return m.Status.Conditions })
	if err == nil {
		err = definitions.CheckWrites("spec.titleModelRef", m.Name, &m.Spec)
	}
	setSecondary(ctx, w, skeinv1.ConditionTitlesReady, "threads of this agent get no titles", err)
}

// setSecondary sets a condition about a part without which an object works all the same. err is why that part cannot be used, and without
// says what happens then.
func setSecondary(ctx context.Context, w conditions.Writer, condition, without string, err error) {
	var unusable *definition.NotReadyError
	switch {
	case err == nil:
		w.Set(condition, metav1.ConditionTrue, skeinv1.ReasonReady, "")
	case errors.As(err, &unusable):
		w.Set(condition, metav1.ConditionFalse, unusable.Reason, without+": "+unusable.Message)
	default:
		ctrl.LoggerFrom(ctx).Error(err, "cannot check the condition "+condition+"; trying again")
		w.Set(condition, metav1.ConditionUnknown, skeinv1.ReasonInternalError, conditions.Failure(err))
	}
}

// checkReady returns an error unless an object exists and is Ready.
func (c *checker) checkReady(ctx context.Context, kind, namespace, name, field string, into client.Object, list func() []metav1.Condition) error {
	if err := c.exists(ctx, kind, namespace, name, field, into); err != nil {
		return err
	}
	switch cond := conditions.Ready(list()); cond.Status {
	case metav1.ConditionTrue:
		return nil
	case metav1.ConditionFalse:
		return notReady(skeinv1.ReasonReferenceNotReady, "%s %q is not ready: %s", kind, name, cond.Message)
	default:
		return notReady(skeinv1.ReasonReferenceNotReady, "%s %q has not been checked yet", kind, name)
	}
}

func (c *checker) exists(ctx context.Context, kind, namespace, name, field string, into client.Object) error {
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return notReady(skeinv1.ReasonReferenceNotFound, "%s %q does not exist in namespace %q: create it, or correct %s", kind, name, namespace, field)
	}
	if err != nil {
		return fmt.Errorf("read %s %q: %w", kind, name, err)
	}
	return nil
}

func notReady(reason, format string, args ...any) error {
	return &definition.NotReadyError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
