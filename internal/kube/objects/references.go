package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/endpoint"
)

// HandlersOf returns the handlers of an agent's sides.
func HandlersOf(spec *skeinv1.AgentSpec) (out []*skeinv1.SideHandler) {
	if h := spec.SideA.Handler; h != nil {
		out = append(out, h)
	}
	if spec.SideB != nil && spec.SideB.Handler != nil {
		out = append(out, spec.SideB.Handler)
	}
	return out
}

// MemoryModelRef returns the reference to the Model of an agent's memory, or nil when the agent has no memory.
func MemoryModelRef(a *skeinv1.Agent) *skeinv1.LocalRef {
	if a.Spec.Memory == nil {
		return nil
	}
	return &a.Spec.Memory.EmbeddingModelRef
}

// modelsAfterRun returns the names of the Models that an Agent uses after its runs, for memory and titles. Each name is there once.
func modelsAfterRun(a *skeinv1.Agent) (names []string) {
	for _, ref := range []*skeinv1.LocalRef{MemoryModelRef(a), a.Spec.TitleModelRef} {
		if ref != nil && !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// skillConfigMaps returns the names of the ConfigMaps that hold the texts of skills.
func skillConfigMaps(list []skeinv1.PromptSkill) (names []string) {
	for i := range list {
		if ref := list[i].Instructions.ConfigMapKeyRef; ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}

// AuthSecret returns the reference to the Secret of a Tool's credentials, or nil when it has none.
func AuthSecret(auth *skeinv1.ToolAuth) *corev1.SecretKeySelector {
	switch {
	case auth == nil:
		return nil
	case auth.Basic != nil:
		return &auth.Basic.SecretKeyRef
	case auth.Bearer != nil:
		return &auth.Bearer.SecretKeyRef
	case auth.Header != nil:
		return &auth.Header.SecretKeyRef
	}
	return nil
}

// toolSecrets returns the names of the Secrets that a Tool's requests need.
func toolSecrets(spec *skeinv1.ToolSpec) (names []string) {
	add := func(headers []skeinv1.ToolHeader, auth *skeinv1.ToolAuth) {
		for i := range headers {
			if ref := headers[i].SecretKeyRef; ref != nil {
				names = append(names, ref.Name)
			}
		}
		if ref := AuthSecret(auth); ref != nil {
			names = append(names, ref.Name)
		}
	}
	if m := spec.MCP; m != nil {
		add(m.Headers, m.Auth)
	}
	if h := spec.HTTP; h != nil {
		add(h.Headers, h.Auth)
		if h.Signing != nil {
			names = append(names, h.Signing.SecretKeyRef.Name)
		}
	}
	return names
}

// EndpointShape returns the value of IndexShape. Paths that differ only in the names of parameters have the same
// shape.
func EndpointShape(e *skeinv1.ThreadEndpoint) string {
	p, err := endpoint.Parse(e.Spec.Path)
	if err != nil {
		return e.Spec.Path
	}
	return p.Shape()
}

// PromptsOf returns the names of the prompts of an agent's sides.
func PromptsOf(a *skeinv1.AgentSpec) []string {
	var names []string
	for _, s := range []*skeinv1.AgentSide{&a.SideA, a.SideB} {
		if s != nil && s.Handler == nil && !slices.Contains(names, s.PromptRef.Name) {
			names = append(names, s.PromptRef.Name)
		}
	}
	return names
}

// PoolOf returns the name of the SandboxPool in which the code of an agent's threads runs.
func PoolOf(spec *skeinv1.AgentSpec) string {
	if spec.SandboxPoolRef != nil {
		return spec.SandboxPoolRef.Name
	}
	return skeinv1.DefaultPoolName
}

// namesInTools returns the non-empty names that name finds in a Prompt's tools.
func namesInTools(o client.Object, name func(*skeinv1.PromptTool) string) (names []string) {
	tools := o.(*skeinv1.Prompt).Spec.Tools
	for i := range tools {
		if n := name(&tools[i]); n != "" {
			names = append(names, n)
		}
	}
	return names
}

func envSecrets(list []skeinv1.EnvVar) (names []string) {
	for i := range list {
		if f := list[i].ValueFrom; f != nil && f.SecretKeyRef != nil {
			names = append(names, f.SecretKeyRef.Name)
		}
	}
	return names
}

func envConfigMaps(list []skeinv1.EnvVar) (names []string) {
	for i := range list {
		if f := list[i].ValueFrom; f != nil && f.ConfigMapKeyRef != nil {
			names = append(names, f.ConfigMapKeyRef.Name)
		}
	}
	return names
}

func hookConfigMaps(list []skeinv1.Hook) (names []string) {
	for i := range list {
		names = append(names, codeConfigMap(list[i].Code)...)
	}
	return names
}

func partConfigMaps(list []skeinv1.PromptPart) (names []string) {
	for i := range list {
		if ref := list[i].ConfigMapKeyRef; ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names
}

func codeConfigMap(c skeinv1.CodeSource) []string {
	if c.ConfigMapKeyRef == nil {
		return nil
	}
	return []string{c.ConfigMapKeyRef.Name}
}

// secretsOf returns the names of the Secrets of keys.
func secretsOf(keys []corev1.SecretKeySelector) (names []string) {
	for i := range keys {
		names = append(names, keys[i].Name)
	}
	return names
}

// gatewaySecrets returns the names of the Secrets that a ThreadGateway needs.
func gatewaySecrets(spec *skeinv1.ThreadGatewaySpec) (names []string) {
	names = append(secretsOf(spec.SigningKeys), secretsOf(spec.APIKeys)...)
	if p := spec.IDProvider; p != nil && p.HTTP != nil && p.HTTP.Token != nil {
		names = append(names, p.HTTP.Token.Name)
	}
	if u := spec.User; u != nil {
		names = append(names, u.HashKey.Name)
	}
	return names
}
