package inspect

import (
	"github.com/tdewolff/parse/v2/js"

	"github.com/skein-dev/skein/internal/sandbox"
)

// The modules whose functions declare what an export is.
const (
	builder = "@standardagents/builder"
	runtime = "@agentuity/runtime"
)

// defines maps the define functions, by module and name, to the kinds that they make.
var defines = map[imported]string{
	{builder, "defineTool"}:           "tool",
	{builder, "defineEffect"}:         "effect",
	{builder, "defineHook"}:           "hook",
	{builder, "defineThreadEndpoint"}: "endpoint",
	{builder, "defineAgent"}:          "agent",
	{builder, "definePrompt"}:         "prompt",
	{builder, "defineModel"}:          "model",
	{runtime, "createAgent"}:          "handler",
}

// callable lists, for each kind, the properties of which a definition needs at least one.
var callable = map[string][]string{
	"tool":     {"execute", "handler"},
	"effect":   {"execute", "handler", "run"},
	"hook":     {"execute", "handler"},
	"endpoint": {"execute", "handler", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
	"handler":  {"handler"},
	// Without a define function, the needed names depend on what the object is used as, so any of these will do.
	sandbox.ExportObject: {"execute", "handler", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
}

// defaultExport describes the default export.
func (m *module) defaultExport(list []js.IStmt) sandbox.Export {
	out := sandbox.Export{Kind: sandbox.ExportNone}
	for _, s := range list {
		e, ok := s.(*js.ExportStmt)
		if !ok {
			continue
		}
		if e.Default {
			return m.exportOf(e.Decl, 0)
		}
		for _, a := range e.List {
			switch {
			case text(a.Binding) != "default":
			case e.Module != nil: // from another module, which is not examined
				return sandbox.Export{}
			default:
				return m.exportNamed(sourceName(a), 0)
			}
		}
	}
	return out
}

// maxHops bounds how many variables are followed.
const maxHops = 20

func (m *module) exportNamed(name string, hops int) sandbox.Export {
	if m.functions[name] {
		return sandbox.Export{Kind: sandbox.ExportFunction}
	}
	if x := m.values[name]; x != nil && hops < maxHops {
		return m.exportOf(x, hops+1)
	}
	return sandbox.Export{}
}

func (m *module) exportOf(x js.IExpr, hops int) sandbox.Export {
	switch x := x.(type) {
	case *js.GroupExpr:
		return m.exportOf(x.X, hops)
	case *js.ArrowFunc, *js.FuncDecl:
		return sandbox.Export{Kind: sandbox.ExportFunction}
	case *js.ObjectExpr:
		return sandbox.Export{Kind: sandbox.ExportObject, Incomplete: lacks(x, callable[sandbox.ExportObject])}
	case *js.LiteralExpr, *js.TemplateExpr:
		if t, ok := x.(*js.TemplateExpr); ok && t.Tag != nil {
			return sandbox.Export{}
		}
		return sandbox.Export{Kind: sandbox.ExportValue}
	case *js.Var:
		if string(x.Name()) == "undefined" {
			return sandbox.Export{Kind: sandbox.ExportValue}
		}
		return m.exportNamed(string(x.Name()), hops)
	case *js.CallExpr:
		kind := defines[m.callee(x.X)]
		if kind == "" {
			return sandbox.Export{}
		}
		return sandbox.Export{Kind: kind, Incomplete: m.incomplete(kind, x)}
	}
	return sandbox.Export{}
}

// callee returns the imported function that an expression names.
func (m *module) callee(x js.IExpr) imported {
	switch x := x.(type) {
	case *js.GroupExpr:
		return m.callee(x.X)
	case *js.Var:
		return m.imports[string(x.Name())]
	case *js.DotExpr:
		v, ok := x.X.(*js.Var)
		name, plain := x.Y.(*js.LiteralExpr)
		if !plain {
			if n, ok := x.Y.(js.LiteralExpr); ok {
				name, plain = &n, true
			}
		}
		if !ok || !plain {
			break
		}
		if from := m.imports[string(v.Name())]; from.name == "*" {
			return imported{from.specifier, string(name.Data)}
		}
	}
	return imported{}
}

// incomplete reports whether the argument of a define function certainly has no function to call.
func (m *module) incomplete(kind string, call *js.CallExpr) bool {
	list := call.Args.List
	at := 0
	if kind == "handler" {
		at = 1
	}
	if len(list) <= at {
		return len(list) == 0 || !list[len(list)-1].Rest
	}
	o, ok := list[at].Value.(*js.ObjectExpr)
	return ok && !list[at].Rest && callable[kind] != nil && lacks(o, callable[kind])
}

// lacks reports whether an object certainly has none of the properties.
func lacks(o *js.ObjectExpr, names []string) bool {
	for _, p := range o.List {
		if p.Spread || p.Name == nil || p.Name.IsComputed() {
			if m, ok := p.Value.(*js.MethodDecl); !ok || m.Name.IsComputed() {
				return false
			}
		}
		for _, name := range names {
			if propertyName(&p) == name {
				return false
			}
		}
	}
	return true
}

func propertyName(p *js.Property) string {
	if m, ok := p.Value.(*js.MethodDecl); ok {
		return text(m.Name.Literal.Data)
	}
	if p.Name != nil {
		return text(p.Name.Literal.Data)
	}
	return ""
}
