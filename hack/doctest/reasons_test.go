package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The only file that declares reasons, and the store's copies of those that it writes itself.
const (
	declaresReasons = "api/v1alpha1/conditions.go"
	storesReasons   = "internal/store/reasons.go"
)

// Each reason of conditions, runs and Events is declared in one file, with a comment that becomes its row in the reference. Code names
// the constants: neither other constants nor plain texts are reasons.
func TestEachReasonIsDeclaredOnce(t *testing.T) {
	declared := reasonsOf(t, declaresReasons)
	reference := read(t, root, "docs/reference/api.md")
	for name, r := range declared {
		if name != "Reason"+r.value {
			t.Errorf("the constant of the reason %s is %s: call it Reason%s", r.value, name, r.value)
		}
		if r.about == "" {
			t.Errorf("%s has no comment, so the reference cannot say what it means", name)
		}
		if !strings.Contains(reference, "| `"+r.value+"` |") {
			t.Errorf("docs/reference/api.md has no row for the reason %s: run make docs", r.value)
		}
	}
	for name, r := range reasonsOf(t, storesReasons) {
		if declared[name].value != r.value {
			t.Errorf("%s has %s = %q, which %s does not declare", storesReasons, name, r.value, declaresReasons)
		}
	}
	used := map[string]bool{}
	sources := map[string]string{}
	eachSource(t, func(path, source string) {
		for _, m := range regexp.MustCompile(`\bReason\w+`).FindAllString(source, -1) {
			used[m] = true
		}
		sources[path] = source
	})
	for _, p := range plainReasonsIn(t, sources) {
		t.Errorf("%s: it is a reason: declare it in %s and use the constant", p, declaresReasons)
	}
	for name := range declared {
		if !used[name] {
			t.Errorf("no code uses %s", name)
		}
	}
}

type reason struct{ value, about string }

// reasonsOf returns the constants of a file whose names begin with Reason.
func reasonsOf(t *testing.T, file string) map[string]reason {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]reason{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok || !strings.HasPrefix(v.Names[0].Name, "Reason") {
				continue
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			about := v.Doc.Text() + v.Comment.Text()
			if !g.Lparen.IsValid() {
				about += g.Doc.Text()
			}
			found[v.Names[0].Name] = reason{value, about}
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s declares no reasons", file)
	}
	return found
}

// eachSource calls look with each file of production code that may set reasons.
func eachSource(t *testing.T, look func(path, source string)) {
	t.Helper()
	// Gateways answer with reasons of HTTP, which no object has. What the plugin says of its own, such as Parked, is in a blocker. Helpers of tests play what they like.
	apart := []string{"internal/gateway", "internal/store/storetest", "internal/engine/enginetest"}
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			at, err := filepath.Rel(root, path)
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains(apart, at):
				return fs.SkipDir
			case !d.IsDir() && strings.HasSuffix(at, ".go") && !strings.HasSuffix(at, "_test.go") && at != storesReasons:
				look(at, read(t, path))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
