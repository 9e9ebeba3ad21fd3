package doctest

import (
	"go/ast"
	"go/parser"
	"path"
	"strconv"
	"testing"
)

// byName are packages that look up methods by a name that only the running program knows. The linker then keeps every exported method of every type
// that may be in an interface, which makes the manager a third larger (docs/adr/0086-size-and-start-of-the-manager.md).
var byName = map[string]bool{"github.com/google/go-cmp/cmp": true, "html/template": true, "text/template": true}

// parsesOnly is the package that parses templates with text/template, and executes them itself.
const parsesOnly = "internal/model/providers/scripted"

func TestNothingLooksUpMethodsByName(t *testing.T) {
	parsed := false
	production(t, func(name string, f *ast.File) {
		for _, i := range f.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !byName[imported] {
				continue
			}
			if path.Dir(name) == parsesOnly {
				parsed = true
				continue
			}
			t.Errorf("%s imports %s, which keeps the linker from leaving out methods that nothing calls", name, imported)
		}
		if path.Dir(name) != parsesOnly {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "Execute" || s.Sel.Name == "ExecuteTemplate") {
				t.Errorf("%s executes a template with text/template, which keeps the linker from leaving out methods that nothing calls", name)
			}
			return true
		})
	}, parser.SkipObjectResolution)
	if !parsed {
		t.Errorf("%s does not import text/template any more: remove it here", parsesOnly)
	}
}
