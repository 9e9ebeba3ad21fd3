package doctest

import (
	"go/ast"
	"go/parser"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// mostLines is how many lines a file of Go has at most, so that it is about one thing.
	mostLines = 400
	// mostMethods is how many methods a type of the engine, the runtime API or the packages for Kubernetes has at most.
	mostMethods = 40
)

func TestFilesAreShort(t *testing.T) {
	for _, dir := range []string{"api", "cmd", "internal", "hack", "test"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasPrefix(d.Name(), "zz_generated") {
				return err
			}
			text, err := os.ReadFile(name)
			if n := strings.Count(string(text), "\n"); n > mostLines {
				t.Errorf("%s has %d lines, more than %d: divide it by what it is about", name, n, mostLines)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTypesAreSmall(t *testing.T) {
	type typ struct{ pkg, name string }
	methods := map[typ]int{}
	production(t, func(name string, f *ast.File) {
		areas := []string{"internal/engine", "internal/apiserver", "internal/kube"}
		if !slices.ContainsFunc(areas, func(area string) bool { return strings.HasPrefix(name, area+"/") }) {
			return
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[typ{path.Dir(name), receiver(fn.Recv.List[0].Type)}]++
			}
		}
	}, parser.SkipObjectResolution)
	for of, n := range methods {
		if n > mostMethods {
			t.Errorf("%s.%s has %d methods, more than %d: divide it by what it is about", of.pkg, of.name, n, mostMethods)
		}
	}
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
