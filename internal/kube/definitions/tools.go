package definitions

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/mcptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

// maxToolName is the longest name that the providers accept.
const maxToolName = 64

// Tools resolves Tools.
type Tools struct {
	reader   reader
	contents *objects.Contents
	code     *Code
	schemas  *schemaCache
	secrets  thread.EnvSecrets // nil: nothing is registered
	network  *outbound.Network // the network that Tools use; nil: addresses are not checked
}

// Resolve compiles a Tool, reads the Secrets that it names and checks its schema. It makes no network requests.
func (ts *Tools) Resolve(ctx context.Context, t *skeinv1.Tool) (*definition.Tool, error) {
	out := &definition.Tool{ObjectName: t.Name, Name: tool.Name(t.Name), Spec: t.Spec}
	if len(out.Name) > maxToolName {
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "the name has %d characters: models take names of at most %d, so give the Tool a shorter one", len(out.Name), maxToolName)
	}
	if err := ts.schemas.check("spec.parameters", t.Spec.Parameters); err != nil {
		return nil, err
	}
	switch {
	case t.Spec.Code != nil:
		c, err := ts.code.compile(ctx, codeOwner{"Tool", t.Namespace, t.Name, string(t.UID), t.Generation, "spec.code"}, *t.Spec.Code, inspect.Tool)
		if err != nil {
			return nil, err
		}
		out.Module, out.Digest = c.module, c.digest
	case t.Spec.HTTP != nil:
		return out, ts.resolveHTTP(ctx, t, out)
	case t.Spec.MCP != nil:
		return out, ts.resolveMCP(ctx, t, out)
	default:
		return nil, objects.NotReady(skeinv1.ReasonInvalidSpec, "spec does not say what the tool does: set code, http or mcp")
	}
	return out, nil
}

func (ts *Tools) resolveHTTP(ctx context.Context, t *skeinv1.Tool, out *definition.Tool) error {
	r := &toolSecretsReader{tools: ts, ctx: ctx, tool: t}
	secrets := httptool.Secrets{Headers: r.headers("spec.http.headers", t.Spec.HTTP.Headers), Auth: r.auth("spec.http.auth", t.Spec.HTTP.Auth)}
	if s := t.Spec.HTTP.Signing; s != nil {
		secrets.Signing = []byte(r.read("spec.http.signing.secretKeyRef", "signing", &s.SecretKeyRef))
	}
	if r.err != nil {
		return r.err
	}
	var err error
	if out.HTTP, err = httptool.Compile(t.Spec.HTTP, secrets); err != nil {
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "%v", err)
	}
	return nil
}

func (ts *Tools) resolveMCP(ctx context.Context, t *skeinv1.Tool, out *definition.Tool) error {
	spec := t.Spec.MCP
	r := &toolSecretsReader{tools: ts, ctx: ctx, tool: t, stamps: []string{string(t.UID), fmt.Sprint(t.Generation)}}
	headers, secret := r.headers("spec.mcp.headers", spec.Headers), r.auth("spec.mcp.auth", spec.Auth)
	if r.err != nil {
		return r.err
	}
	s := &mcptool.Server{
		Namespace: t.Namespace, Name: t.Name, UID: string(t.UID), Version: strings.Join(r.stamps, "/"), Generation: t.Generation, URL: spec.URL, Transport: spec.Transport,
		Headers: http.Header{}, Tools: spec.Tools, Prefix: serverPrefix(t.Name, spec),
	}
	if t.Spec.Timeout != nil {
		s.Timeout = t.Spec.Timeout.Duration
	}
	for _, h := range spec.Headers {
		value := headers[h.Name]
		if h.Value != nil {
			value = *h.Value
		}
		if !httptool.ValidHeader(value) {
			return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.mcp.headers: the value of the header %s has a line break or a control character in it", h.Name)
		}
		s.Headers.Set(h.Name, value)
	}
	name, value, err := httptool.Credential(spec.Auth, secret)
	if err != nil {
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.mcp.%v", err)
	}
	if !httptool.ValidHeader(value) {
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.mcp.auth: the value in the Secret has a line break or a control character in it")
	}
	if name != "" {
		s.Headers.Set(name, value)
	}
	if u, err := url.Parse(spec.URL); err != nil || u.Hostname() == "" {
		return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.mcp.url is not a URL: use one such as https://tools.example.com/mcp")
	}
	out.MCP = s
	return nil
}

// serverPrefix returns the prefix of the names of a server's tools.
func serverPrefix(name string, spec *skeinv1.MCPServer) string {
	if spec.Prefix != nil {
		return *spec.Prefix
	}
	return tool.Name(name) + "_"
}

// CheckServerNames refuses MCP servers of one prompt whose tools would have the names of each other's tools, or of
// other tools of the prompt. It finds what it can without asking the servers. servers maps names to the Tools that have
// spec.mcp.
func CheckServerNames(tools []skeinv1.PromptTool, servers map[string]*skeinv1.MCPServer) error {
	names, open := map[string]string{}, map[string]string{}
	for _, t := range tools {
		switch {
		case t.Agent != "":
			names[tool.Name(t.Agent)] = fmt.Sprintf("Agent %q", t.Agent)
		case t.Name != "" && servers[t.Name] == nil:
			names[tool.Name(t.Name)] = fmt.Sprintf("Tool %q", t.Name)
		}
	}
	for _, t := range tools {
		s := servers[t.Name]
		if s == nil {
			continue
		}
		prefix := serverPrefix(t.Name, s)
		if len(s.Tools) == 0 {
			if first, taken := open[prefix]; taken {
				return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.tools: the tools of the MCP servers %q and %q would both begin with %q: give one of them another spec.mcp.prefix", first, t.Name, prefix)
			}
			open[prefix] = t.Name
		}
		for _, remote := range s.Tools {
			called := mcptool.CallName(prefix, remote)
			if first, taken := names[called]; taken {
				return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.tools: the model would call both %s and the tool %q of the MCP server %q by the name %q: give the server another spec.mcp.prefix", first, remote, t.Name, called)
			}
			names[called] = fmt.Sprintf("the tool %q of the MCP server %q", remote, t.Name)
		}
	}
	return nil
}

// toolSecretsReader reads the Secrets for a Tool's requests. After the first error it reads no more.
type toolSecretsReader struct {
	tools  *Tools
	ctx    context.Context
	tool   *skeinv1.Tool
	stamps []string // change whenever a value changes
	err    error
}

// read returns a value without surrounding white space, because a file from which a Secret was created usually ends
// in a newline. part distinguishes the value when it is redacted from a text.
func (r *toolSecretsReader) read(field, part string, ref *corev1.SecretKeySelector) string {
	if r.err != nil {
		return ""
	}
	value, version, err := r.tools.contents.SecretKey(r.ctx, r.tool.Namespace, *ref, field)
	if err != nil {
		r.err = err
		return ""
	}
	r.stamps = append(r.stamps, field, version)
	text := strings.TrimSpace(string(value))
	if r.tools.secrets != nil {
		r.tools.secrets.Register(r.tool.Namespace, "tool/"+r.tool.Name+"/"+part, text)
	}
	return text
}

// headers returns the values that come from Secrets, by header name.
func (r *toolSecretsReader) headers(field string, list []skeinv1.ToolHeader) map[string]string {
	values := map[string]string{}
	for i, h := range list {
		if h.SecretKeyRef != nil {
			values[h.Name] = r.read(fmt.Sprintf("%s[%d].secretKeyRef", field, i), h.Name, h.SecretKeyRef)
		}
	}
	return values
}

func (r *toolSecretsReader) auth(field string, auth *skeinv1.ToolAuth) string {
	ref := objects.AuthSecret(auth)
	if ref == nil {
		return ""
	}
	secret := r.read(field+".secretKeyRef", "auth", ref)
	// A server may return the header as it was sent, with name and password encoded. Register that form too.
	if _, value, err := httptool.Credential(auth, secret); err == nil && auth.Basic != nil && r.tools.secrets != nil {
		r.tools.secrets.Register(r.tool.Namespace, "tool/"+r.tool.Name+"/auth", strings.TrimPrefix(value, "Basic "))
	}
	return secret
}

// CheckToolNames refuses two tools of a prompt that the model would call by the same name: Tools, agents, prompts,
// and the tool that activates skills.
func CheckToolNames(p *skeinv1.PromptSpec) error {
	seen := map[string]string{}
	if len(p.Skills) > 0 {
		seen[tool.SkillTool] = "the tool of spec.skills"
	}
	for _, t := range p.Tools {
		object, kind := t.Name, "Tool"
		switch {
		case t.Agent != "":
			object, kind = t.Agent, "Agent"
		case t.Prompt != "":
			object, kind = t.Prompt, "Prompt"
		case t.Name == "":
			continue
		}
		name, called := fmt.Sprintf("%s %q", kind, object), tool.Name(object)
		switch first, twice := seen[called]; {
		case twice && first == name:
			return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.tools names %s twice: remove one", name)
		case twice:
			return objects.NotReady(skeinv1.ReasonInvalidSpec, "spec.tools: the model would call both %s and %s by the name %q: rename one of them", first, name, called)
		}
		seen[called] = name
	}
	return nil
}
