package definitions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// envType returns the type of an entry. What comes from a Secret is a secret, whatever the entry says: users who may read
// threads need not be allowed to read Secrets.
func envType(v *skeinv1.EnvVar) store.EnvType {
	if v.Type == skeinv1.EnvText && (v.ValueFrom == nil || v.ValueFrom.SecretKeyRef == nil) {
		return store.EnvText
	}
	return store.EnvSecret
}

// Variables resolves the variables that agents, prompts and threads declare.
type Variables struct {
	reader   reader
	contents *objects.Contents
	prompts  *Prompts
}

// envOwner is a list of variables and the object that declares them: an agent, a prompt of one of its sides, or a
// prompt called as a tool.
type envOwner struct {
	source thread.EnvSource
	side   string // "" means both sides
	called string // the called prompt, when the variables apply only during its calls; else ""
	list   []skeinv1.EnvVar
}

// owners returns the variables of an agent, of the prompts of its sides, and of the prompts that those call. It
// skips objects that do not exist. agents lists the agents that this one reaches as subagents and as tools.
func (vs *Variables) owners(ctx context.Context, namespace, agent string) (owners []envOwner, agents []string, err error) {
	var a skeinv1.Agent
	err = vs.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: agent}, &a, client.UnsafeDisableDeepCopy)
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
		err = vs.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: u.prompt}, &p, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read Prompt %q: %w", u.prompt, err)
		}
		list, err := vs.prompts.variables(ctx, &p)
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

// value returns the value of an entry, and a version that changes with the object that the entry refers to. The
// value is nil when the entry has none. A reference must resolve unless it is optional.
func (vs *Variables) value(ctx context.Context, namespace string, v *skeinv1.EnvVar, field string) (value *string, version string, err error) {
	if v.Value != nil || v.ValueFrom == nil {
		return v.Value, "", nil
	}
	field = fmt.Sprintf("%s, entry %s", field, v.Name)
	var data []byte
	if ref := v.ValueFrom.SecretKeyRef; ref != nil {
		data, version, err = vs.contents.SecretKey(ctx, namespace, *ref, field)
	} else if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
		data, version, err = vs.contents.ConfigMapKey(ctx, namespace, *ref, field)
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

// Check returns an error when an entry refers to something that does not exist.
func (vs *Variables) Check(ctx context.Context, namespace string, list []skeinv1.EnvVar) error {
	for i := range list {
		if _, _, err := vs.value(ctx, namespace, &list[i], "spec.env"); err != nil {
			return err
		}
	}
	return nil
}

// ThreadEnv resolves the entries of a Thread's spec.env.
func (vs *Variables) ThreadEnv(ctx context.Context, t *skeinv1.Thread) ([]thread.SpecEnv, error) {
	return vs.resolve(ctx, t.Namespace, t.Spec.Env)
}

// resolve returns the entries that have a value.
func (vs *Variables) resolve(ctx context.Context, namespace string, list []skeinv1.EnvVar) ([]thread.SpecEnv, error) {
	var out []thread.SpecEnv
	for i := range list {
		v := &list[i]
		value, version, err := vs.value(ctx, namespace, v, "spec.env")
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		// With its real type in its digest, an entry that an earlier version copied as a text is copied again.
		typed := *v
		if envType(v) == store.EnvSecret && v.Type == skeinv1.EnvText {
			typed.Type = skeinv1.EnvSecret
		}
		entry, err := json.Marshal(typed)
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
func (vs *Variables) ScopedEnv(ctx context.Context, namespace, agent string) ([]string, error) {
	names := map[string]bool{}
	seen := map[string]bool{agent: true}
	for next := []string{agent}; len(next) > 0; next = next[1:] {
		owners, reached, err := vs.owners(ctx, namespace, next[0])
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
