package definitions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// Models resolves Models.
type Models struct {
	reader   reader
	contents *objects.Contents
	factory  model.Factory
	secrets  thread.EnvSecrets // nil: nothing is registered
	network  *outbound.Network // the network that Models use; nil: addresses are not checked
}

// Resolve reads what a Model and its fallbacks refer to, and checks whether the Model can be used. A mistake of
// the user or a missing reference is a *definition.NotReadyError, whose text never contains the key.
func (ms *Models) Resolve(ctx context.Context, m *skeinv1.Model) (*definition.Model, error) {
	out, err := ms.resolveAlone(ctx, m)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{m.Name: true}
	for i, ref := range m.Spec.Fallbacks {
		field := fmt.Sprintf("spec.fallbacks[%d]", i)
		if ref.Name == m.Name {
			return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "%s is the Model itself: remove it", field)
		}
		if seen[ref.Name] {
			return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "%s names Model %q a second time: remove it", field, ref.Name)
		}
		seen[ref.Name] = true
		var other skeinv1.Model
		if err := ms.reader.get(ctx, "Model", m.Namespace, ref.Name, field, &other); err != nil {
			return nil, err
		}
		if err := CheckWrites(field, ref.Name, &other.Spec); err != nil {
			return nil, err
		}
		fallback, err := ms.resolveAlone(ctx, &other)
		if err != nil {
			return nil, objects.Within("Model", other.Name, err)
		}
		out.Fallbacks = append(out.Fallbacks, *fallback)
		out.Version += "|" + fallback.Version
	}
	if err := ms.check(m.Namespace, out); err != nil {
		return nil, err
	}
	return out, nil
}

// resolveAlone reads what a Model itself refers to, without its fallbacks.
func (ms *Models) resolveAlone(ctx context.Context, m *skeinv1.Model) (*definition.Model, error) {
	out := &definition.Model{Name: m.Name, Spec: m.Spec}
	stamps := []string{string(m.UID), fmt.Sprint(m.Generation)}
	if c := m.Spec.Credentials; c != nil {
		key, version, err := ms.contents.SecretKey(ctx, m.Namespace, c.SecretKeyRef, "spec.credentials.secretKeyRef")
		if err != nil {
			return nil, err
		}
		// A file from which a Secret was created usually ends in a newline.
		out.APIKey = strings.TrimSpace(string(key))
		if ms.secrets != nil {
			ms.secrets.Register(m.Namespace, "model/"+m.Name, out.APIKey)
		}
		stamps = append(stamps, "secret", version)
	}
	if s := m.Spec.Script; s != nil {
		out.Steps = s.Steps
		if ref := s.ConfigMapKeyRef; ref != nil {
			text, version, err := ms.contents.ConfigMapKey(ctx, m.Namespace, *ref, "spec.script.configMapKeyRef")
			if err != nil {
				return nil, err
			}
			if out.Steps, err = parseSteps(text); err != nil {
				return nil, objects.NotReady(skeinv1.ReasonInvalidScript, "key %q of ConfigMap %q: %v", ref.Key, ref.Name, err)
			}
			stamps = append(stamps, "script", version)
		}
	}
	out.Version = strings.Join(stamps, "/")
	return out, nil
}

// check asks the model's factory for a client. Clients are cached by version, so checking a good Model again
// costs nothing.
func (ms *Models) check(namespace string, m *definition.Model) error {
	_, err := ms.factory.Client(m.Config(namespace))
	var bad *model.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &bad):
		return err
	case m.Spec.Provider == skeinv1.ProviderScripted:
		return objects.NotReady(skeinv1.ReasonInvalidScript, "%s", bad.Message)
	default:
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "%s", bad.Message)
	}
}

// maxScriptSteps is the maximum of spec.script.steps. It applies to scripts in ConfigMaps too.
const maxScriptSteps = 500

func parseSteps(text []byte) ([]skeinv1.ScriptStep, error) {
	var steps []skeinv1.ScriptStep
	if err := yaml.UnmarshalStrict(text, &steps); err != nil {
		return nil, fmt.Errorf("it is not a YAML list of steps: %w", err)
	}
	switch {
	case len(steps) == 0:
		return nil, errors.New("it holds no steps: write a YAML list with at least one")
	case len(steps) > maxScriptSteps:
		return nil, fmt.Errorf("it holds %d steps, more than %d", len(steps), maxScriptSteps)
	}
	return steps, nil
}
