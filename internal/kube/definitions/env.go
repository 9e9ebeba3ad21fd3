package definitions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Env finds the variables that a thread inherits (ENV-01): those of its user and of the instance, from labelled
// Secrets and ConfigMaps, and those of its agent and its prompts.
type Env struct {
	definitions *Resolver
	labelled    client.Reader
}

var _ thread.EnvLayerer = (*Env)(nil)

// NewEnv returns the port. labelled is a cache of the Secrets and ConfigMaps that carry the label of a scope.
func NewEnv(d *Resolver, labelled client.Reader) *Env {
	return &Env{definitions: d, labelled: labelled}
}

// Layers implements thread.EnvLayerer.
func (e *Env) Layers(ctx context.Context, t *store.Thread) (*thread.EnvLayers, error) {
	out := &thread.EnvLayers{}
	if t.UserID != "" {
		labels := client.MatchingLabels{skeinv1.LabelEnvScope: skeinv1.EnvScopeUser, skeinv1.LabelUser: skeinv1.UserLabel(t.UserID)}
		if err := e.scope(ctx, t.Namespace, labels, thread.EnvFromUser, out); err != nil {
			return nil, err
		}
	}
	labels := client.MatchingLabels{skeinv1.LabelEnvScope: skeinv1.EnvScopeInstance}
	if err := e.scope(ctx, t.Namespace, labels, thread.EnvFromInstance, out); err != nil {
		return nil, err
	}
	owners, _, err := e.definitions.envOwners(ctx, t.Namespace, t.Agent)
	if err != nil {
		return nil, err
	}
	declared := map[string]thread.EnvDeclaration{}
	for _, layer := range owners {
		out.Dual = out.Dual || layer.side == "b"
		for i := range layer.list {
			v := &layer.list[i]
			d := declared[v.Name]
			if d.Name == "" {
				d = thread.EnvDeclaration{Name: v.Name, Type: envType(v)}
			}
			d.Required, d.Scoped = d.Required || v.Required, d.Scoped || v.Scoped
			d.Description = cmp.Or(d.Description, v.Description)
			declared[v.Name] = d
			value, _, err := e.definitions.envValue(ctx, t.Namespace, v, fmt.Sprintf("spec.env of the %s", layer.source))
			var unready *definition.NotReadyError
			if layer.called != "" && errors.As(err, &unready) {
				continue // the condition of its owner reports it; the other variables still apply
			}
			if err != nil {
				return nil, err
			}
			if value != nil {
				out.Values = append(out.Values, thread.EnvValue{
					Name: v.Name, Value: *value, Type: envType(v), Source: layer.source, Side: layer.side, Called: layer.called,
				})
			}
		}
	}
	out.Declared = slices.SortedFunc(maps.Values(declared), func(a, b thread.EnvDeclaration) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// scope adds the variables of labelled objects, sorted by name, those of Secrets before those of ConfigMaps.
func (e *Env) scope(ctx context.Context, namespace string, labels client.MatchingLabels, source thread.EnvSource, out *thread.EnvLayers) error {
	add := func(kind store.EnvType, name, value string) {
		if thread.CheckEnvName(name) == nil && utf8.ValidString(value) {
			out.Values = append(out.Values, thread.EnvValue{Name: name, Value: value, Type: kind, Source: source})
		}
	}
	var secrets corev1.SecretList
	if err := e.labelled.List(ctx, &secrets, client.InNamespace(namespace), labels, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the Secrets of the %s: %w", source, err)
	}
	slices.SortFunc(secrets.Items, func(a, b corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
	for i := range secrets.Items {
		for name, value := range secrets.Items[i].Data {
			add(store.EnvSecret, name, string(value))
		}
	}
	var maps corev1.ConfigMapList
	if err := e.labelled.List(ctx, &maps, client.InNamespace(namespace), labels, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the ConfigMaps of the %s: %w", source, err)
	}
	slices.SortFunc(maps.Items, func(a, b corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	for i := range maps.Items {
		for name, value := range maps.Items[i].Data {
			add(store.EnvText, name, value)
		}
	}
	return nil
}

func envType(v *skeinv1.EnvVar) store.EnvType {
	if v.Type == skeinv1.EnvText {
		return store.EnvText
	}
	return store.EnvSecret
}

// envOwner is a list of variables and the object that declares them: an agent, a prompt of one of its sides, or a
// prompt called as a tool.
type envOwner struct {
	source thread.EnvSource
	side   string // "" means both sides
	called string // the called prompt, when the variables apply only during its calls; else ""
	list   []skeinv1.EnvVar
}

// envOwners returns the variables of an agent, of the prompts of its sides, and of the prompts that those call. It
// skips objects that do not exist. agents lists the agents that this one reaches as subagents and as tools.
func (d *Resolver) envOwners(ctx context.Context, namespace, agent string) (owners []envOwner, agents []string, err error) {
	var a skeinv1.Agent
	err = d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: agent}, &a, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read Agent %q: %w", agent, err)
	}
	for i := range a.Spec.Subagents {
		agents = append(agents, a.Spec.Subagents[i].AgentRef.Name)
	}
	owners = []envOwner{{source: thread.EnvFromAgent, list: a.Spec.Env}}
	type use struct{ prompt, side, called string }
	var uses []use
	if a.Spec.SideA.Handler == nil {
		uses = append(uses, use{prompt: a.Spec.SideA.PromptRef.Name, side: "a"})
	}
	if b := a.Spec.SideB; b != nil {
		owners = append(owners, envOwner{source: thread.EnvFromPrompt, side: "b"}) // needed even when the side has no prompt, or none yet
		if b.Handler == nil {
			uses = append(uses, use{prompt: b.PromptRef.Name, side: "b"})
		}
	}
	called := map[string]bool{}
	for ; len(uses) > 0; uses = uses[1:] {
		u := uses[0]
		var p skeinv1.Prompt
		err = d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: u.prompt}, &p, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read Prompt %q: %w", u.prompt, err)
		}
		list, err := d.promptEnv(ctx, &p)
		if err != nil {
			return nil, nil, err
		}
		owners = append(owners, envOwner{source: thread.EnvFromPrompt, side: u.side, called: u.called, list: list})
		for _, t := range p.Spec.Tools {
			if t.Agent != "" {
				agents = append(agents, t.Agent)
			}
			if t.Prompt != "" && !called[t.Prompt] {
				called[t.Prompt] = true
				uses = append(uses, use{prompt: t.Prompt, called: t.Prompt})
			}
		}
	}
	return owners, agents, nil
}

// envValue returns the value of an entry, and a version that changes with the object that the entry refers to. The
// value is nil when the entry has none. A reference must resolve unless it is optional.
func (d *Resolver) envValue(ctx context.Context, namespace string, v *skeinv1.EnvVar, field string) (value *string, version string, err error) {
	if v.Value != nil || v.ValueFrom == nil {
		return v.Value, "", nil
	}
	field = fmt.Sprintf("%s, entry %s", field, v.Name)
	var data []byte
	if ref := v.ValueFrom.SecretKeyRef; ref != nil {
		data, version, err = d.contents.SecretKey(ctx, namespace, *ref, field)
	} else if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
		data, version, err = d.contents.ConfigMapKey(ctx, namespace, *ref, field)
	}
	if err != nil || data == nil {
		return nil, version, err
	}
	if !utf8.Valid(data) {
		return nil, version, objects.NotReady(skeinv1.ReasonInvalidSpec, "%s: the value is not UTF-8 text", field)
	}
	text := string(data)
	return &text, version, nil
}

// CheckEnv returns an error when an entry refers to something that does not exist.
func (d *Resolver) CheckEnv(ctx context.Context, namespace string, list []skeinv1.EnvVar) error {
	for i := range list {
		if _, _, err := d.envValue(ctx, namespace, &list[i], "spec.env"); err != nil {
			return err
		}
	}
	return nil
}

// ThreadEnv resolves the entries of a Thread's spec.env.
func (d *Resolver) ThreadEnv(ctx context.Context, t *skeinv1.Thread) ([]thread.SpecEnv, error) {
	var out []thread.SpecEnv
	for i := range t.Spec.Env {
		v := &t.Spec.Env[i]
		value, version, err := d.envValue(ctx, t.Namespace, v, "spec.env")
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		entry, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(entry)
		out = append(out, thread.SpecEnv{Name: v.Name, Value: *value, Type: envType(v), Entry: hex.EncodeToString(sum[:8]), Version: version})
	}
	return out, nil
}

// ScopedEnv returns the sorted names that are marked as scoped in an agent's graph (ENV-04): by the agent, by the
// agents that it reaches as subagents and as tools, and by the prompts of all of these.
func (d *Resolver) ScopedEnv(ctx context.Context, namespace, agent string) ([]string, error) {
	names := map[string]bool{}
	seen := map[string]bool{agent: true}
	for next := []string{agent}; len(next) > 0; next = next[1:] {
		owners, reached, err := d.envOwners(ctx, namespace, next[0])
		if err != nil {
			return nil, err
		}
		for _, o := range owners {
			for i := range o.list {
				if o.list[i].Scoped {
					names[o.list[i].Name] = true
				}
			}
		}
		for _, name := range reached {
			if !seen[name] {
				seen[name] = true
				next = append(next, name)
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
