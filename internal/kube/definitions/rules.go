package definitions

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
)

// Rules implements ports.Definitions.
func (d *Resolver) Rules(ctx context.Context, namespace, thread, agent string) (definition.Rules, error) {
	var rules definition.Rules
	var t skeinv1.Thread
	var a skeinv1.Agent
	for _, o := range []struct {
		name string
		obj  client.Object
	}{{thread, &t}, {agent, &a}} {
		err := d.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.name}, o.obj, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return rules, fmt.Errorf("read %T %q: %w", o.obj, o.name, err)
		}
	}
	if rules.Policy = t.Spec.RunPolicy; rules.Policy == "" {
		rules.Policy = a.Spec.RunPolicy
	}
	for _, l := range []*skeinv1.RunLimits{t.Spec.Limits, a.Spec.Limits} {
		if l != nil {
			rules.Limits = append(rules.Limits, *l)
		}
	}
	return rules, nil
}
