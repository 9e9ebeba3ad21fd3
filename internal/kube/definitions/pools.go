package definitions

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// Pools checks whether there is a SandboxPool where code needs one.
type Pools struct {
	reader   reader
	required bool
}

// RequirePools makes code that no SandboxPool could run count as not ready. Call it before the port is used, unless
// sandboxes are local processes.
func (d *Resolver) RequirePools() { d.Pools.required = true }

// Check returns an error when an agent has code but its SandboxPool does not exist.
func (ps *Pools) Check(ctx context.Context, a *skeinv1.Agent) error {
	if !ps.required {
		return nil
	}
	name := objects.PoolOf(&a.Spec)
	err := ps.reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: name}, &skeinv1.SandboxPool{}, client.UnsafeDisableDeepCopy)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read SandboxPool %q: %w", name, err)
	}
	code, err := ps.codeOf(ctx, a)
	if err != nil || code == "" {
		return err
	}
	other := ""
	if a.Spec.SandboxPoolRef != nil {
		other = ", or correct spec.sandboxPoolRef"
	}
	return objects.NotReady(skeinv1.ReasonReferenceNotFound, "%s needs SandboxPool %q, which does not exist in namespace %q: create it%s: %s",
		code, name, a.Namespace, other, makePool(a.Namespace, name))
}

// CheckAny returns an error when a namespace has no SandboxPool at all. The agent that uses a piece of code
// decides which pool runs it, but without any pool nothing can run.
func (ps *Pools) CheckAny(ctx context.Context, namespace string) error {
	if !ps.required {
		return nil
	}
	var list skeinv1.SandboxPoolList
	if err := ps.reader.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the SandboxPools: %w", err)
	}
	if len(list.Items) > 0 {
		return nil
	}
	return objects.NotReady(skeinv1.ReasonReferenceNotFound, "its code needs a SandboxPool, and namespace %q has none: create one: %s",
		namespace, makePool(namespace, skeinv1.DefaultPoolName))
}

// checkNamed returns an error when a SandboxPool that a field names does not exist.
func (ps *Pools) checkNamed(ctx context.Context, namespace, name, field string) error {
	if !ps.required {
		return nil
	}
	err := ps.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &skeinv1.SandboxPool{}, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return objects.NotReady(skeinv1.ReasonReferenceNotFound, "its code needs SandboxPool %q, which does not exist in namespace %q: create it, or correct %s: %s",
			name, namespace, field, makePool(namespace, name))
	}
	if err != nil {
		return fmt.Errorf("read SandboxPool %q: %w", name, err)
	}
	return nil
}

// makePool returns a shell command that creates a pool.
func makePool(namespace, name string) string {
	return fmt.Sprintf(`echo '{"apiVersion":"skein.dev/v1alpha1","kind":"SandboxPool","metadata":{"name":"%s","namespace":"%s"},"spec":{"warm":1}}' | kubectl apply -f -`, name, namespace)
}

// codeOf names something of an agent that runs in a sandbox. It returns "" when nothing does.
func (ps *Pools) codeOf(ctx context.Context, a *skeinv1.Agent) (string, error) {
	if len(a.Spec.Hooks) > 0 {
		return fmt.Sprintf("the hook %s of Agent %q", a.Spec.Hooks[0].Hook, a.Name), nil
	}
	if len(objects.HandlersOf(&a.Spec)) > 0 {
		return fmt.Sprintf("the handler of Agent %q", a.Name), nil
	}
	seen := map[string]bool{}
	for next := objects.PromptsOf(&a.Spec); len(next) > 0; next = next[1:] {
		if seen[next[0]] {
			continue
		}
		seen[next[0]] = true
		var p skeinv1.Prompt
		err := ps.reader.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: next[0]}, &p, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue // the object that names it reports this
		}
		if err != nil {
			return "", fmt.Errorf("read Prompt %q: %w", next[0], err)
		}
		code, called, err := ps.codeOfPrompt(ctx, &p)
		if code != "" || err != nil {
			return code, err
		}
		next = append(next, called...)
	}
	return "", nil
}

// codeOfPrompt names something of a prompt that runs in a sandbox. Otherwise it returns the prompts that this one
// calls.
func (ps *Pools) codeOfPrompt(ctx context.Context, p *skeinv1.Prompt) (code string, called []string, err error) {
	if len(p.Spec.Hooks) > 0 {
		return fmt.Sprintf("the hook %s of Prompt %q", p.Spec.Hooks[0].Hook, p.Name), nil, nil
	}
	for _, ref := range p.Spec.Tools {
		switch {
		case ref.Builtin == skeinv1.BuiltinCode:
			return fmt.Sprintf("run_code, which Prompt %q offers,", p.Name), nil, nil
		case ref.Prompt != "":
			called = append(called, ref.Prompt)
		case ref.Name != "":
			var t skeinv1.Tool
			err := ps.reader.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: ref.Name}, &t, client.UnsafeDisableDeepCopy)
			if client.IgnoreNotFound(err) != nil {
				return "", nil, fmt.Errorf("read Tool %q: %w", ref.Name, err)
			}
			if err == nil && t.Spec.Code != nil {
				return fmt.Sprintf("the code of Tool %q", t.Name), nil, nil
			}
		}
	}
	return "", called, nil
}
