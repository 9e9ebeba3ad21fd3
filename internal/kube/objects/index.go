package objects

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Field indexes of the cache: they find the objects that name another object. Their values are names within the
// namespace.
const (
	// IndexSecret finds Models by the Secret of their credentials, Tools by the Secrets of their requests, ThreadGateways
	// Webhooks and WebhookReceivers by those of their keys, and Agents, Prompts and Threads by those of spec.env.
	IndexSecret = "skein.secret"
	// IndexConfigMap finds objects by the ConfigMaps that they use:
	//  - Models, Tools, Effects and ThreadEndpoints by the one that holds their script or code
	//  - Agents, Prompts and Threads by those of spec.env and spec.hooks
	//  - Prompts also by those of spec.parts and spec.skills
	//  - Agents also by those of their handlers' code
	IndexConfigMap = "skein.configMap"
	// IndexModel finds Prompts by their Model, Models by their fallbacks, and Agents by the Models that their
	// handlers may call and by those of their memory and their titles.
	IndexModel = "skein.model"
	// IndexTool finds Prompts by their Tools.
	IndexTool = "skein.tool"
	// IndexInclude finds Prompts by the Prompts that they include.
	IndexInclude = "skein.include"
	// IndexPrompt finds Agents by the Prompts of their sides, and Prompts by the Prompts that they call as tools.
	IndexPrompt = "skein.prompt"
	// IndexAgent finds Agents by the agents of their subagents, Prompts by the agents that they call as tools, and
	// Threads, Subagents, ThreadEndpoints, ThreadGateways, Webhooks, WebhookReceivers and ScheduledEffects by their Agent.
	IndexAgent = "skein.agent"
	// IndexEndpoint finds ThreadGateways by the ThreadEndpoints that they serve.
	IndexEndpoint = "skein.endpoint"
	// IndexShape finds ThreadEndpoints by the shape of their path; see EndpointShape.
	IndexShape = "skein.shape"
	// IndexPool finds Agents by the SandboxPool that they name, or by the default pool.
	IndexPool = "skein.pool"
	// IndexAdopted finds Subagents by the existing Thread that they make their child.
	IndexAdopted = "skein.adopted"
	// IndexThread finds Subagents and ScheduledEffects by the Thread that they belong to.
	IndexThread = "skein.thread"
	// IndexResumable finds Subagents that go on after their result, and have not ended, by the Thread that they belong to.
	IndexResumable = "skein.resumable"
	// IndexReceivingThread finds WebhookReceivers by the Thread that gets their messages.
	IndexReceivingThread = "skein.receivingThread"
	// IndexOrigin finds Threads by the Thread that they are forked from.
	IndexOrigin = "skein.origin"
	// IndexSandbox finds sandbox pods by pool and state; see SandboxIndex.
	IndexSandbox = "skein.sandbox"
	// IndexSandboxThread finds claimed sandbox pods by the id of their thread.
	IndexSandboxThread = "skein.sandboxThread"
	// IndexMaker finds Threads by the UID of the ScheduledEffect whose template made them.
	IndexMaker = "skein.maker"
	// IndexEffect finds ScheduledEffects by the name of the Effect object.
	IndexEffect = "skein.effect"
)

// Index is one field index of one kind.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// Indexes returns every field index that the controllers and ports need.
func Indexes() []Index {
	return []Index{
		{&skeinv1.Model{}, IndexSecret, func(o client.Object) []string {
			if c := o.(*skeinv1.Model).Spec.Credentials; c != nil {
				return []string{c.SecretKeyRef.Name}
			}
			return nil
		}},
		{&skeinv1.Agent{}, IndexSecret, func(o client.Object) []string { return envSecrets(o.(*skeinv1.Agent).Spec.Env) }},
		{&skeinv1.Agent{}, IndexConfigMap, func(o client.Object) []string {
			spec := &o.(*skeinv1.Agent).Spec
			names := append(envConfigMaps(spec.Env), hookConfigMaps(spec.Hooks)...)
			for _, h := range HandlersOf(spec) {
				names = append(names, codeConfigMap(h.Code)...)
			}
			return names
		}},
		{&skeinv1.Prompt{}, IndexSecret, func(o client.Object) []string { return envSecrets(o.(*skeinv1.Prompt).Spec.Env) }},
		{&skeinv1.Prompt{}, IndexConfigMap, func(o client.Object) []string {
			spec := &o.(*skeinv1.Prompt).Spec
			return slices.Concat(envConfigMaps(spec.Env), hookConfigMaps(spec.Hooks), partConfigMaps(spec.Parts), skillConfigMaps(spec.Skills))
		}},
		{&skeinv1.Prompt{}, IndexInclude, func(o client.Object) []string {
			var names []string
			for _, p := range o.(*skeinv1.Prompt).Spec.Parts {
				if p.Include != "" {
					names = append(names, p.Include)
				}
			}
			return names
		}},
		{&skeinv1.Thread{}, IndexSecret, func(o client.Object) []string { return envSecrets(o.(*skeinv1.Thread).Spec.Env) }},
		{&skeinv1.Thread{}, IndexConfigMap, func(o client.Object) []string { return envConfigMaps(o.(*skeinv1.Thread).Spec.Env) }},
		{&skeinv1.Model{}, IndexConfigMap, func(o client.Object) []string {
			if s := o.(*skeinv1.Model).Spec.Script; s != nil && s.ConfigMapKeyRef != nil {
				return []string{s.ConfigMapKeyRef.Name}
			}
			return nil
		}},
		{&skeinv1.Tool{}, IndexConfigMap, func(o client.Object) []string {
			if c := o.(*skeinv1.Tool).Spec.Code; c != nil {
				return codeConfigMap(*c)
			}
			return nil
		}},
		{&skeinv1.Tool{}, IndexSecret, func(o client.Object) []string { return toolSecrets(&o.(*skeinv1.Tool).Spec) }},
		{&skeinv1.Effect{}, IndexConfigMap, func(o client.Object) []string {
			return codeConfigMap(o.(*skeinv1.Effect).Spec.Code)
		}},
		{&skeinv1.ThreadEndpoint{}, IndexConfigMap, func(o client.Object) []string {
			return codeConfigMap(o.(*skeinv1.ThreadEndpoint).Spec.Code)
		}},
		{&skeinv1.ThreadEndpoint{}, IndexAgent, func(o client.Object) []string {
			if a := o.(*skeinv1.ThreadEndpoint).Spec.AgentRef; a != nil {
				return []string{a.Name}
			}
			return nil
		}},
		{&skeinv1.ThreadEndpoint{}, IndexShape, func(o client.Object) []string {
			return []string{EndpointShape(o.(*skeinv1.ThreadEndpoint))}
		}},
		{&skeinv1.ThreadGateway{}, IndexConfigMap, func(o client.Object) []string {
			if p := o.(*skeinv1.ThreadGateway).Spec.IDProvider; p != nil && p.Code != nil {
				return codeConfigMap(p.Code.Source)
			}
			return nil
		}},
		{&skeinv1.ThreadGateway{}, IndexAgent, func(o client.Object) []string {
			return []string{o.(*skeinv1.ThreadGateway).Spec.AgentRef.Name}
		}},
		{&skeinv1.ThreadGateway{}, IndexEndpoint, func(o client.Object) (names []string) {
			for _, ref := range o.(*skeinv1.ThreadGateway).Spec.EndpointRefs {
				names = append(names, ref.Name)
			}
			return names
		}},
		{&skeinv1.WebhookReceiver{}, IndexAgent, func(o client.Object) []string {
			if ref := o.(*skeinv1.WebhookReceiver).Spec.AgentRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}},
		{&skeinv1.WebhookReceiver{}, IndexReceivingThread, func(o client.Object) []string {
			if ref := o.(*skeinv1.WebhookReceiver).Spec.ThreadRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}},
		{&skeinv1.Webhook{}, IndexAgent, func(o client.Object) []string {
			var names []string
			for _, ref := range o.(*skeinv1.Webhook).Spec.AgentRefs {
				names = append(names, ref.Name)
			}
			return names
		}},
		{&skeinv1.Webhook{}, IndexSecret, func(o client.Object) []string { return secretsOf(o.(*skeinv1.Webhook).Spec.SigningKeys) }},
		{&skeinv1.WebhookReceiver{}, IndexSecret, func(o client.Object) []string { return secretsOf(o.(*skeinv1.WebhookReceiver).Spec.SigningKeys) }},
		{&skeinv1.ThreadGateway{}, IndexSecret, func(o client.Object) []string { return gatewaySecrets(&o.(*skeinv1.ThreadGateway).Spec) }},
		{&skeinv1.Prompt{}, IndexModel, func(o client.Object) []string {
			p := &o.(*skeinv1.Prompt).Spec
			names := []string{p.ModelRef.Name}
			if c := p.Compaction; c != nil && c.ModelRef != nil && c.ModelRef.Name != names[0] {
				names = append(names, c.ModelRef.Name)
			}
			return names
		}},
		{&skeinv1.Model{}, IndexModel, func(o client.Object) []string {
			var names []string
			for _, ref := range o.(*skeinv1.Model).Spec.Fallbacks {
				names = append(names, ref.Name)
			}
			return names
		}},
		{&skeinv1.Prompt{}, IndexTool, func(o client.Object) []string {
			var names []string
			for _, t := range o.(*skeinv1.Prompt).Spec.Tools {
				if t.Name != "" {
					names = append(names, t.Name)
				}
			}
			return names
		}},
		{&skeinv1.Prompt{}, IndexAgent, func(o client.Object) []string {
			return namesInTools(o, func(t *skeinv1.PromptTool) string { return t.Agent })
		}},
		{&skeinv1.Prompt{}, IndexPrompt, func(o client.Object) []string {
			return namesInTools(o, func(t *skeinv1.PromptTool) string { return t.Prompt })
		}},
		{&skeinv1.Agent{}, IndexPrompt, func(o client.Object) []string {
			return PromptsOf(&o.(*skeinv1.Agent).Spec)
		}},
		{&skeinv1.Agent{}, IndexModel, func(o client.Object) []string {
			names := modelsAfterRun(o.(*skeinv1.Agent))
			for _, h := range HandlersOf(&o.(*skeinv1.Agent).Spec) {
				for _, m := range h.Models {
					names = append(names, m.ModelRef.Name)
				}
			}
			return names
		}},
		{&skeinv1.Agent{}, IndexAgent, func(o client.Object) []string {
			var names []string
			for _, s := range o.(*skeinv1.Agent).Spec.Subagents {
				names = append(names, s.AgentRef.Name)
			}
			return names
		}},
		{&skeinv1.Agent{}, IndexPool, func(o client.Object) []string {
			return []string{PoolOf(&o.(*skeinv1.Agent).Spec)}
		}},
		{&skeinv1.Thread{}, IndexAgent, func(o client.Object) []string {
			// Both the declared agent and the current one, which differs after a handoff.
			t := o.(*skeinv1.Thread)
			names := []string{t.Spec.AgentRef.Name}
			if now := t.Status.Agent; now != "" && now != names[0] {
				names = append(names, now)
			}
			return names
		}},
		{&skeinv1.Thread{}, IndexOrigin, func(o client.Object) []string {
			if from := o.(*skeinv1.Thread).Spec.ForkFrom; from != nil {
				return []string{from.ThreadRef.Name}
			}
			return nil
		}},
		{&skeinv1.Thread{}, IndexMaker, func(o client.Object) []string {
			if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == "ScheduledEffect" {
				return []string{string(ref.UID)}
			}
			return nil
		}},
		{&skeinv1.Subagent{}, IndexThread, func(o client.Object) []string {
			return []string{o.(*skeinv1.Subagent).Spec.ParentRef.Name}
		}},
		{&skeinv1.Subagent{}, IndexResumable, func(o client.Object) []string {
			s := o.(*skeinv1.Subagent)
			if !s.Spec.Resumable || meta.IsStatusConditionTrue(s.Status.Conditions, skeinv1.ConditionTerminated) {
				return nil
			}
			return []string{s.Spec.ParentRef.Name}
		}},
		{&skeinv1.Subagent{}, IndexAdopted, func(o client.Object) []string {
			if ref := o.(*skeinv1.Subagent).Spec.ThreadRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}},
		{&skeinv1.ScheduledEffect{}, IndexThread, func(o client.Object) []string {
			if ref := o.(*skeinv1.ScheduledEffect).Spec.ThreadRef; ref != nil {
				return []string{ref.Name}
			}
			return nil
		}},
		{&corev1.Pod{}, IndexSandbox, func(o client.Object) []string {
			l := o.GetLabels()
			return []string{SandboxIndex(l[skeinv1.LabelPool], l[skeinv1.LabelSandboxState])}
		}},
		{&corev1.Pod{}, IndexSandboxThread, func(o client.Object) []string {
			if id := o.GetLabels()[skeinv1.LabelThreadID]; id != "" {
				return []string{id}
			}
			return nil
		}},
		{&skeinv1.ScheduledEffect{}, IndexEffect, func(o client.Object) []string {
			return []string{EffectName(o.(*skeinv1.ScheduledEffect).Spec.Effect)}
		}},
		{&skeinv1.ScheduledEffect{}, IndexAgent, func(o client.Object) []string {
			if t := o.(*skeinv1.ScheduledEffect).Spec.ThreadTemplate; t != nil {
				return []string{t.Spec.AgentRef.Name}
			}
			return nil
		}},
	}
}

// RegisterIndexes adds every index to a cache that has not started yet.
func RegisterIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range Indexes() {
		if err := indexer.IndexField(ctx, i.Object, i.Field, i.Extract); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

// SandboxIndex returns the value of IndexSandbox for the pods of a pool in a state.
func SandboxIndex(pool, state string) string { return pool + "/" + state }
