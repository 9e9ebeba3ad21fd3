package doctest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plainReasons find texts in the place of a reason that belongs to another package, whose parameters are not looked at.
var plainReasons = []*regexp.Regexp{
	regexp.MustCompile(`metav1\.Condition(?:True|False|Unknown), "([A-Z]\w+)"`),   // of a condition
	regexp.MustCompile(`Eventf\([^\n]*EventType(?:Normal|Warning), "([A-Z]\w+)"`), // of an Event
	regexp.MustCompile(`\bproblem\{"([A-Z]\w+)"`),                                 // of a controller
}

var (
	// reasonName is how variables, constants, fields and parameters are called that hold a reason.
	reasonName = regexp.MustCompile(`^[rR]eason`)
	// oneWord is the form of a reason. Parameters called reason may also take a sentence.
	oneWord = regexp.MustCompile(`^[A-Z]\w+$`)
)

// plainReasonsIn returns the places in files of Go, by path, where a plain text, or a constant of the file's own package, is a reason. It
// is one if it is assigned to a name that begins with reason, if it is in a field called Reason, or if it is passed for a parameter whose
// name begins with reason.
func plainReasonsIn(t *testing.T, sources map[string]string) (found []string) {
	t.Helper()
	files, fset := map[string]*ast.File{}, token.NewFileSet()
	constants := map[string]map[string]string{} // of each folder, by name
	parameters := map[string][]int{}            // of functions and methods, by name, and those of a folder by folder and name: which ones are a reason
	for path, source := range sources {
		f, err := parser.ParseFile(fset, path, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = f
		ofFolder := constants[filepath.Dir(path)]
		if ofFolder == nil {
			ofFolder = map[string]string{}
			constants[filepath.Dir(path)] = ofFolder
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.CONST {
						for i, value := range v.Values {
							ofFolder[v.Names[i].Name] = textOf(value, nil)
						}
					}
				}
			case *ast.FuncDecl:
				for _, name := range []string{d.Name.Name, filepath.Join(filepath.Dir(path), d.Name.Name)} {
					parameters[name] = append(parameters[name], reasonsAmong(d.Type.Params)...)
				}
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		ofFolder := constants[filepath.Dir(path)]
		check := func(value ast.Expr) {
			if text := textOf(value, ofFolder); oneWord.MatchString(text) {
				found = append(found, fmt.Sprintf("%s: %q", fset.Position(value.Pos()), text))
			}
		}
		assigned := func(names, values []ast.Expr) {
			for i := range names {
				if len(names) == len(values) && reasonName.MatchString(nameOf(names[i])) {
					check(values[i])
				}
			}
		}
		ast.Inspect(files[path], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				assigned(n.Lhs, n.Rhs)
			case *ast.ValueSpec:
				names := make([]ast.Expr, len(n.Names))
				for i := range n.Names {
					names[i] = n.Names[i]
				}
				assigned(names, n.Values)
			case *ast.KeyValueExpr:
				if nameOf(n.Key) == "Reason" { // the plugin has a field of its own that is called reason
					check(n.Value)
				}
			case *ast.CallExpr:
				name := nameOf(n.Fun)
				if _, own := n.Fun.(*ast.Ident); own { // a function of the same package
					name = filepath.Join(filepath.Dir(path), name)
				}
				for _, i := range parameters[name] {
					if i < len(n.Args) {
						check(n.Args[i])
					}
				}
			}
			return true
		})
		for _, p := range plainReasons {
			for _, m := range p.FindAllStringSubmatch(sources[path], -1) {
				found = append(found, fmt.Sprintf("%s: %s: %q", path, m[0], m[1]))
			}
		}
	}
	return found
}

// reasonsAmong returns which parameters are called reason.
func reasonsAmong(parameters *ast.FieldList) (which []int) {
	n := 0
	for _, f := range parameters.List {
		for _, name := range f.Names {
			if reasonName.MatchString(name.Name) {
				which = append(which, n)
			}
			n++
		}
		if len(f.Names) == 0 {
			n++
		}
	}
	return which
}

// nameOf returns the name that an expression ends with, or "".
func nameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// textOf returns the text of a literal, or of a constant that a name stands for; "" for everything else.
func textOf(x ast.Expr, constants map[string]string) string {
	switch x := x.(type) {
	case *ast.Ident:
		return constants[x.Name]
	case *ast.BasicLit:
		if text, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
			return text
		}
	}
	return ""
}

// What the test of reasons finds, and what it leaves alone.
func TestPlainReasonsAreFound(t *testing.T) {
	for what, c := range map[string]struct {
		code string
		want []string
	}{
		"a constant":                      {`const reasonX = "Xed"`, []string{`"Xed"`}},
		"a variable":                      {`func f() { reason := "Xed"; reason = "Yed" }`, []string{`"Xed"`, `"Yed"`}},
		"several variables":               {`func f() { said, reason, action := "refused", "CallRefused", "Refuse" }`, []string{`"CallRefused"`}},
		"several variables once more":     {`func f() { said, reason = "approved", "CallApproved" }`, []string{`"CallApproved"`}},
		"a field":                         {`var c = Condition{Reason: "Xed", Message: "Yed"}`, []string{`"Xed"`}},
		"a parameter":                     {`func (r *R) tell(o *O, reason, message string) {}; func g() { r.tell(d.object, "InvalidRequest", "Text") }`, []string{`"InvalidRequest"`}},
		"another constant":                {`const Skipped = "Missed"; func (b *B) skip(first, last int, reason, detail string) {}; func g() { b.skip(1, 2, Skipped, "") }`, []string{`"Missed"`}},
		"another constant for a variable": {`const Skipped = "Missed"; func g() { reason, detail := Skipped, "" }`, []string{`"Missed"`}},
		"an Event":                        {`func g() { x.Eventf(o, nil, corev1.EventTypeNormal, "Xed", "Do", "text") }`, []string{`"Xed"`}},
		"a condition":                     {`func g() { w.Set("Ready", metav1.ConditionTrue, "Xed", "") }`, []string{`"Xed"`}},
		"a problem":                       {`func g() { p := &problem{"Xed", "text"} }`, []string{`"Xed"`}},
		"a declared reason":               {`func g() { said, reason := "Refused", skeinv1.ReasonCallRefused; r.tell(o, skeinv1.ReasonMissed, "Text") }`, nil},
		"a sentence":                      {`func cancel(ctx Ctx, reason string) {}; func g() { cancel(ctx, "removed before it was due") }`, nil},
	} {
		found := plainReasonsIn(t, map[string]string{"folder/file.go": "package p\n" + c.code})
		same := len(found) == len(c.want)
		for i := range found {
			same = same && strings.HasSuffix(found[i], c.want[i])
		}
		if !same {
			t.Errorf("%s: found %q, want %q", what, found, c.want)
		}
	}
}
