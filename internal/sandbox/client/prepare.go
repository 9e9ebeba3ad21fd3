package client

import (
	"fmt"
	"path"
	"regexp"
	"sort"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// prepared is a CodeRequest in its encoded form, with the functions that a HostCall may name.
type prepared struct {
	open  []byte
	funcs []sandbox.HostFunc // by index of the binding; nil for values
}

// linkError returns the error of an invalid request, before anything runs.
func linkError(name, format string, args ...any) *sandbox.Error {
	return &sandbox.Error{Name: name, Message: fmt.Sprintf(format, args...)}
}

// fileName matches the file names that stacks can show.
var fileName = regexp.MustCompile(`^[^\x00-\x1f\x7f:()]{1,255}$`)

func prepare(req sandbox.CodeRequest) (*prepared, *sandbox.Error) {
	main, failed := mainModule(req)
	if failed != nil {
		return nil, failed
	}
	o := &protocol.Open{
		Limits:  protocol.Limits{Kind: protocol.KindRun, Memory: req.MemoryLimitBytes, Wall: req.WallTime},
		Main:    main.Name,
		Fn:      req.Fn,
		Modules: []protocol.Module{main},
	}
	if failed := addModules(o, req); failed != nil {
		return nil, failed
	}
	p := &prepared{}
	if failed := p.bindAll(o, req); failed != nil {
		return nil, failed
	}
	args := req.Args
	if args == nil {
		args = []any{}
	}
	var err error
	if o.Args, err = value.Encode(args); err != nil {
		return nil, linkError("TypeError", "the arguments: %v", err)
	}
	if p.open, err = o.Encode(); err != nil {
		return nil, linkError("RangeError", "%v", err)
	}
	return p, nil
}

func mainModule(req sandbox.CodeRequest) (protocol.Module, *sandbox.Error) {
	name := req.Filename
	if name == "" {
		name = compile.DefaultFilename(req.Language)
	}
	clean := strings.TrimLeft(path.Clean("/"+name), "/")
	if !fileName.MatchString(clean) {
		return protocol.Module{}, linkError("TypeError", "the file name %.100q cannot be used: give one like main.ts", name)
	}
	if len(req.Source) > compile.MaxSource {
		return protocol.Module{}, linkError("RangeError", "the source has %d bytes: at most %d are compiled", len(req.Source), compile.MaxSource)
	}
	form, failed := formOf(clean, req.Language)
	return protocol.Module{Name: clean, Form: form, Source: req.Source}, failed
}

func formOf(name string, lang sandbox.Language) (protocol.Form, *sandbox.Error) {
	if path.Ext(name) == ".json" {
		return protocol.FormJSON, nil
	}
	switch lang {
	case "", sandbox.TypeScript:
		return protocol.FormTypeScript, nil
	case sandbox.JavaScript:
		return protocol.FormJavaScript, nil
	}
	return 0, linkError("TypeError", "the language %.50q is not known: use %q or %q", lang, sandbox.TypeScript, sandbox.JavaScript)
}

// addModules adds the relative modules to the main one.
func addModules(o *protocol.Open, req sandbox.CodeRequest) *sandbox.Error {
	seen := map[string]bool{o.Main: true}
	for _, specifier := range keys(req.Modules) {
		if !strings.HasPrefix(specifier, "./") && !strings.HasPrefix(specifier, "../") {
			return withSpecifier(specifier, linkError("TypeError", "the module %.100q is not relative: its name must start with ./", specifier))
		}
		name := path.Join(path.Dir(o.Main), specifier)
		if strings.HasPrefix(name, "../") || !fileName.MatchString(name) {
			return withSpecifier(specifier, linkError("TypeError", "the module %.100q is outside of the folder of the code", specifier))
		}
		if seen[name] {
			return withSpecifier(specifier, linkError("TypeError", "the module %.100q is given twice", specifier))
		}
		seen[name] = true
		source := req.Modules[specifier]
		if len(source) > compile.MaxSource {
			return withSpecifier(specifier, linkError("RangeError", "the module %.100q has %d bytes: at most %d are compiled", specifier, len(source), compile.MaxSource))
		}
		form, failed := formOf(name, req.Language)
		if failed != nil {
			return failed
		}
		o.Modules = append(o.Modules, protocol.Module{Name: name, Form: form, Source: source})
	}
	return nil
}

func withSpecifier(specifier string, e *sandbox.Error) *sandbox.Error {
	e.Specifier = specifier
	return e
}

// bindAll adds the globals and the imports.
func (p *prepared) bindAll(o *protocol.Open, req sandbox.CodeRequest) *sandbox.Error {
	for _, name := range keys(req.Globals) {
		if failed := p.bind(o, "", name, req.Globals[name]); failed != nil {
			return failed
		}
	}
	for _, specifier := range keys(req.Imports) {
		if specifier == "" || strings.HasPrefix(specifier, ".") || strings.HasPrefix(specifier, "/") || strings.HasPrefix(specifier, "skein:") || strings.ContainsRune(specifier, 0) {
			return withSpecifier(specifier, linkError("TypeError", "the import %.100q is not bare: relative modules go into modules", specifier))
		}
		exports := req.Imports[specifier]
		for _, name := range keys(exports) {
			if failed := p.bind(o, specifier, name, exports[name]); failed != nil {
				return failed
			}
		}
	}
	return nil
}

func (p *prepared) bind(o *protocol.Open, specifier, name string, b sandbox.Binding) *sandbox.Error {
	if strings.ContainsRune(name, 0) || name == "" || len(name) > protocol.MaxName {
		return withSpecifier(specifier, linkError("TypeError", "%.100q cannot be the name of a global or an export", name))
	}
	binding := protocol.Binding{Specifier: specifier, Name: name, Func: b.Func != nil}
	if b.Func == nil {
		encoded, err := value.Encode(b.Value)
		if err != nil {
			return withSpecifier(specifier, linkError("TypeError", "the value of %.100q: %v", name, err))
		}
		binding.Value = encoded
	}
	o.Bindings = append(o.Bindings, binding)
	p.funcs = append(p.funcs, b.Func)
	return nil
}

// keys returns the keys of a map in order, so that the same request always has the same encoding.
func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
