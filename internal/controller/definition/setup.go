package definition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// +kubebuilder:rbac:groups=skein.dev,resources=agents;effects,verbs=get;list;watch
// +kubebuilder:rbac:groups=skein.dev,resources=prompts;models;tools;threadendpoints;threadgateways;webhooks;webhookreceivers,verbs=list;watch
// +kubebuilder:rbac:groups=skein.dev,resources=agents/status;prompts/status;models/status;tools/status;effects/status;threadendpoints/status;threadgateways/status;webhooks/status;webhookreceivers/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups="",roleName=skein-secret-reader,resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options are the options of the definition controllers.
type Options struct {
	// Client reads from the cache and writes statuses.
	Client      client.Client
	Definitions *definitions.Resolver
	Recorder    events.EventRecorder
	Clock       clock.PassiveClock
	// ListenerOff says that the manager serves no ThreadGateways and WebhookReceivers.
	ListenerOff bool
	// Workers is the number of workers for each kind.
	Workers int
}

// kind is what distinguishes the controller of one kind of definition.
type kind[T any, P object[T]] struct {
	name    string
	status  func(P) *skeinv1.DefinitionStatus
	check   func(context.Context, P) error
	more    func(context.Context, P, conditions.Writer)
	list    func() client.ObjectList
	watches []watch
	// again returns after how long an object is checked again although no watched object has changed; nil means
	// never.
	again func(P) time.Duration
}

// watch describes one kind of object that a definition depends on.
type watch struct {
	object    client.Object
	index     string // finds the definitions by the name of the object
	predicate predicate.Predicate
	// value returns the value by which the index finds the definitions. nil means the object's name.
	value func(client.Object) string
	// reach also enqueues the definitions that name the found ones, and so on.
	reach bool
	// all enqueues every definition of the namespace.
	all bool
}

// Setup adds a controller for each kind of definition.
func Setup(mgr ctrl.Manager, o Options) error {
	c := &checker{reader: o.Client, defs: o.Definitions, listenerOff: o.ListenerOff}
	return errors.Join(
		setup(mgr, o, kind[skeinv1.Model, *skeinv1.Model]{
			name:   "model",
			status: func(m *skeinv1.Model) *skeinv1.DefinitionStatus { return &m.Status },
			check:  c.model,
			list:   func() client.ObjectList { return &skeinv1.ModelList{} },
			watches: []watch{
				content("Secret", objects.IndexSecret), content("ConfigMap", objects.IndexConfigMap),
				{object: &skeinv1.Model{}, index: objects.IndexModel, predicate: predicate.Or(watches.ReadyTurned(), predicate.GenerationChangedPredicate{})},
				{object: objects.MetadataOf("Namespace"), all: true, predicate: predicate.AnnotationChangedPredicate{}},
			},
			again: func(m *skeinv1.Model) time.Duration { return lookAgain(m.Spec.Endpoint != "") },
		}),
		setup(mgr, o, kind[skeinv1.Tool, *skeinv1.Tool]{
			name:   "tool",
			status: func(t *skeinv1.Tool) *skeinv1.DefinitionStatus { return &t.Status },
			check:  c.tool,
			more:   c.packable,
			list:   func() client.ObjectList { return &skeinv1.ToolList{} },
			watches: []watch{content("Secret", objects.IndexSecret), content("ConfigMap", objects.IndexConfigMap), anyPool(),
				{object: objects.MetadataOf("Namespace"), all: true, predicate: predicate.AnnotationChangedPredicate{}}},
			again: func(t *skeinv1.Tool) time.Duration { return lookAgain(t.Spec.Code == nil) },
		}),
		setup(mgr, o, kind[skeinv1.Effect, *skeinv1.Effect]{
			name:    "effect",
			status:  func(e *skeinv1.Effect) *skeinv1.DefinitionStatus { return &e.Status },
			check:   c.effect,
			list:    func() client.ObjectList { return &skeinv1.EffectList{} },
			watches: []watch{content("ConfigMap", objects.IndexConfigMap), anyPool()},
		}),
		setup(mgr, o, kind[skeinv1.ThreadEndpoint, *skeinv1.ThreadEndpoint]{
			name:   "threadendpoint",
			status: func(e *skeinv1.ThreadEndpoint) *skeinv1.DefinitionStatus { return &e.Status },
			check:  c.endpoint,
			list:   func() client.ObjectList { return &skeinv1.ThreadEndpointList{} },
			watches: []watch{
				content("ConfigMap", objects.IndexConfigMap), anyPool(),
				{object: &skeinv1.Agent{}, index: objects.IndexAgent, predicate: watches.Existence()},
				// Of two endpoints with the same path the older one answers, so a change of one may affect the
				// others.
				{object: &skeinv1.ThreadEndpoint{}, index: objects.IndexShape, predicate: predicate.GenerationChangedPredicate{}, value: func(o client.Object) string {
					return objects.EndpointShape(o.(*skeinv1.ThreadEndpoint))
				}},
			},
		}),
		setup(mgr, o, kind[skeinv1.ThreadGateway, *skeinv1.ThreadGateway]{
			name:   "threadgateway",
			status: func(g *skeinv1.ThreadGateway) *skeinv1.DefinitionStatus { return &g.Status },
			check:  c.gateway,
			list:   func() client.ObjectList { return &skeinv1.ThreadGatewayList{} },
			watches: []watch{
				content("Secret", objects.IndexSecret), content("ConfigMap", objects.IndexConfigMap), anyPool(),
				{object: objects.MetadataOf("Namespace"), all: true, predicate: predicate.AnnotationChangedPredicate{}},
				{object: &skeinv1.Agent{}, index: objects.IndexAgent, predicate: watches.ReadyTurned()},
				{object: &skeinv1.ThreadEndpoint{}, index: objects.IndexEndpoint, predicate: predicate.Or(watches.ReadyTurned(), predicate.GenerationChangedPredicate{})},
			},
			again: func(g *skeinv1.ThreadGateway) time.Duration {
				return lookAgain(g.Spec.IDProvider != nil && g.Spec.IDProvider.HTTP != nil)
			},
		}),
		setup(mgr, o, kind[skeinv1.Webhook, *skeinv1.Webhook]{
			name:   "webhook",
			status: func(w *skeinv1.Webhook) *skeinv1.DefinitionStatus { return &w.Status },
			check:  c.webhook,
			list:   func() client.ObjectList { return &skeinv1.WebhookList{} },
			watches: []watch{
				content("Secret", objects.IndexSecret),
				{object: objects.MetadataOf("Namespace"), all: true, predicate: predicate.AnnotationChangedPredicate{}},
				{object: &skeinv1.Agent{}, index: objects.IndexAgent, predicate: watches.Existence()},
			},
			again: func(*skeinv1.Webhook) time.Duration { return lookAgain(true) },
		}),
		setup(mgr, o, kind[skeinv1.WebhookReceiver, *skeinv1.WebhookReceiver]{
			name:   "webhookreceiver",
			status: func(w *skeinv1.WebhookReceiver) *skeinv1.DefinitionStatus { return &w.Status },
			check:  c.receiver,
			list:   func() client.ObjectList { return &skeinv1.WebhookReceiverList{} },
			watches: []watch{
				content("Secret", objects.IndexSecret),
				{object: &skeinv1.Agent{}, index: objects.IndexAgent, predicate: watches.ReadyTurned()},
				{object: &skeinv1.Thread{}, index: objects.IndexReceivingThread, predicate: predicate.Or(watches.ReadyTurned(), watches.TerminatedTurned())},
			},
		}),
		setup(mgr, o, kind[skeinv1.Prompt, *skeinv1.Prompt]{
			name:   "prompt",
			status: func(p *skeinv1.Prompt) *skeinv1.DefinitionStatus { return &p.Status },
			check:  c.prompt,
			more:   c.compaction,
			list:   func() client.ObjectList { return &skeinv1.PromptList{} },
			watches: []watch{
				// Whether older turns can be summed up depends on the window in its spec.
				{object: &skeinv1.Model{}, index: objects.IndexModel, predicate: predicate.Or(watches.ReadyTurned(), predicate.Predicate(predicate.GenerationChangedPredicate{}))},
				// Watched for whether they exist and are exposed as tools.
				{object: &skeinv1.Agent{}, index: objects.IndexAgent, predicate: predicate.GenerationChangedPredicate{}},
				{object: &skeinv1.Prompt{}, index: objects.IndexPrompt, predicate: predicate.GenerationChangedPredicate{}},
				// The names of an MCP server's tools are in the Tool's spec.
				{object: &skeinv1.Tool{}, index: objects.IndexTool, predicate: predicate.Or(watches.ReadyTurned(), predicate.Predicate(predicate.GenerationChangedPredicate{}))},
				// Its generation stands for its own text, its condition for the texts that it includes.
				{object: &skeinv1.Prompt{}, index: objects.IndexInclude, reach: true,
					predicate: predicate.Or(predicate.GenerationChangedPredicate{}, watches.ReadyTurned())},
				content("Secret", objects.IndexSecret), content("ConfigMap", objects.IndexConfigMap),
			},
		}),
		setup(mgr, o, kind[skeinv1.Agent, *skeinv1.Agent]{
			name:   "agent",
			status: func(a *skeinv1.Agent) *skeinv1.DefinitionStatus { return &a.Status },
			check:  c.agent,
			more:   c.titles,
			list:   func() client.ObjectList { return &skeinv1.AgentList{} },
			watches: []watch{
				{object: &skeinv1.Prompt{}, index: objects.IndexPrompt, predicate: watches.ReadyTurned()},
				{object: &skeinv1.Agent{}, index: objects.IndexAgent, predicate: watches.Existence()},
				{object: &skeinv1.Model{}, index: objects.IndexModel, predicate: predicate.Or(watches.ReadyTurned(), predicate.GenerationChangedPredicate{})},
				{object: &skeinv1.SandboxPool{}, index: objects.IndexPool, predicate: watches.Existence()},
				// Whether the agent has code depends on its prompts, on the prompts that those call, and on their
				// tools.
				{object: &skeinv1.Prompt{}, all: true, predicate: predicate.GenerationChangedPredicate{}},
				{object: &skeinv1.Tool{}, all: true, predicate: predicate.GenerationChangedPredicate{}},
				content("Secret", objects.IndexSecret), content("ConfigMap", objects.IndexConfigMap),
			},
		}),
	)
}

// content watches Secrets or ConfigMaps through their metadata. Any change of one changes its resource version.
func content(kind, index string) watch {
	return watch{object: objects.MetadataOf(kind), index: index, predicate: predicate.ResourceVersionChangedPredicate{}}
}

// anyPool watches whether SandboxPools exist.
func anyPool() watch {
	return watch{object: &skeinv1.SandboxPool{}, all: true, predicate: watches.Existence()}
}

// lookAgain returns after how long a definition with an address is checked again, because the addresses of a host change
// without notice.
func lookAgain(address bool) time.Duration {
	if !address {
		return 0
	}
	return 5 * time.Minute
}

// setup adds the controller of one kind.
func setup[T any, P object[T]](mgr ctrl.Manager, o Options, k kind[T, P]) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named(k.name).
		For(P(new(T)), builder.WithPredicates(watches.SpecChanged(mgr.GetClient()))).
		WithOptions(watches.Options(o.Workers))
	for _, w := range k.watches {
		value := w.value
		if value == nil {
			value = client.Object.GetName
		}
		by := watches.ByIndexOf(mgr.GetCache(), k.list, w.index, value)
		switch {
		case w.reach:
			by = watches.Reaching(mgr.GetCache(), k.list, w.index)
		case w.all:
			by = watches.Namespace(mgr.GetCache(), k.list)
		}
		b = b.Watches(w.object, by, builder.WithPredicates(w.predicate))
	}
	r := &reconciler[T, P]{client: o.Client, recorder: o.Recorder, clock: o.Clock, status: k.status, check: k.check, more: k.more, again: k.again}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up the %s controller: %w", k.name, err)
	}
	return nil
}
