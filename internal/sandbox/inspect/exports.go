package inspect

import (
	"sync"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
)

var (
	exportsMu    sync.Mutex
	exportsKnown = map[string]map[string]bool{}
)

// exportsOf returns the names that a module of the sandboxes exports, or nil when they cannot be determined. known
// reports whether sandboxes have the module.
func exportsOf(specifier string) (names map[string]bool, known bool) {
	for _, m := range lib.Modules {
		if m.Name != specifier {
			continue
		}
		if m.Name == "zod/v4" { // exports everything that zod exports
			return exportsOf("zod")
		}
		exportsMu.Lock()
		defer exportsMu.Unlock()
		names, found := exportsKnown[specifier]
		if !found {
			names = readExports(m.Code())
			exportsKnown[specifier] = names
		}
		return names, true
	}
	return nil, false
}

func readExports(code string) map[string]bool {
	ast, err := js.Parse(parse.NewInputString(code), js.Options{})
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, s := range ast.List {
		e, ok := s.(*js.ExportStmt)
		if !ok {
			continue
		}
		if e.Default {
			names["default"] = true
			continue
		}
		for _, a := range e.List {
			if string(a.Binding) == "*" {
				return nil
			}
			names[text(a.Binding)] = true
		}
		switch d := e.Decl.(type) {
		case *js.VarDecl:
			for _, item := range d.List {
				if v, ok := item.Binding.(*js.Var); ok {
					names[string(v.Name())] = true
				}
			}
		case *js.FuncDecl:
			names[string(d.Name.Name())] = true
		case *js.ClassDecl:
			names[string(d.Name.Name())] = true
		}
	}
	return names
}
