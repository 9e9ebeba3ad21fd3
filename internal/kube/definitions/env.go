package definitions

import (
	"cmp"
	"context"
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
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Env finds the variables that a thread inherits (ENV-01): those of its user and of the instance, from labelled
// Secrets and ConfigMaps, and those of its agent and its prompts.
type Env struct {
	variables *Variables
	labelled  client.Reader
}

var _ thread.EnvLayerer = (*Env)(nil)

// NewEnv returns the port. labelled is a cache of the Secrets and ConfigMaps that carry the label of a scope.
func NewEnv(vs *Variables, labelled client.Reader) *Env {
	return &Env{variables: vs, labelled: labelled}
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
	owners, _, err := e.variables.owners(ctx, t.Namespace, t.Agent)
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
			value, _, err := e.variables.value(ctx, t.Namespace, v, fmt.Sprintf("spec.env of the %s", layer.source))
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
	err := e.labelled.List(ctx, &secrets, client.InNamespace(namespace), labels, client.UnsafeDisableDeepCopy)
	// Nothing names a labelled Secret. Where the manager may not read Secrets, none of them counts.
	if err != nil && !apierrors.IsForbidden(err) {
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
