// Package inspect reports, without running compiled definition code, whether it can be loaded and what it declares.
// It parses the module's syntax, so a long-lived process must do this in a separate process, where the code is
// compiled.
package inspect

import (
	"bytes"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"

	"github.com/skein-dev/skein/internal/sandbox"
)

// Module returns the facts about a compiled module, or nil for code that it cannot parse.
func Module(code string) (facts *sandbox.Facts) {
	defer func() {
		if recover() != nil { // an error of the parser is not a mistake of the code
			facts = nil
		}
	}()
	ast, err := js.Parse(parse.NewInputString(code), js.Options{})
	if err != nil {
		return nil
	}
	m := &module{
		imports:   map[string]imported{},
		values:    map[string]js.IExpr{},
		functions: map[string]bool{},
		undefined: map[string]bool{},
	}
	m.collect(ast.List)
	facts = &sandbox.Facts{Imports: m.list, Default: m.defaultExport(ast.List)}
	m.evaluate(ast.List)
	if !m.dynamic(ast) {
		facts.Undefined = m.order
	}
	return facts
}

// imported is the origin of a name in the module. name is "default" or "*" for such imports.
type imported struct{ specifier, name string }

// module is one module while it is examined.
type module struct {
	list    []sandbox.Import
	imports map[string]imported // by the local name
	// values holds the initial values of top-level variables that are never assigned again.
	values map[string]js.IExpr
	// functions holds the top-level functions; classes do not count.
	functions map[string]bool

	undefined map[string]bool
	order     []string // the order of undefined
}

// collect records imports and top-level declarations.
func (m *module) collect(list []js.IStmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *js.ImportStmt:
			m.collectImport(s)
		case *js.ExportStmt:
			if s.Module != nil {
				names := make([]string, 0, len(s.List))
				for _, a := range s.List {
					names = append(names, sourceName(a))
				}
				m.addImport(text(s.Module), names)
			}
			m.declare(s.Decl)
		case *js.VarDecl:
			m.declare(s)
		case *js.FuncDecl:
			m.declare(s)
		}
	}
	for name := range assigned(list) {
		delete(m.values, name)
		delete(m.functions, name)
	}
}

func (m *module) collectImport(s *js.ImportStmt) {
	specifier := text(s.Module)
	var names []string
	if s.Default != nil {
		m.imports[string(s.Default)] = imported{specifier, "default"}
		names = append(names, "default")
	}
	for _, a := range s.List {
		if a.Binding == nil {
			continue // a trailing comma
		}
		name := sourceName(a)
		m.imports[string(a.Binding)] = imported{specifier, name}
		names = append(names, name)
	}
	m.addImport(specifier, names)
}

// addImport records an import, and which of its names the imported module does not export.
func (m *module) addImport(specifier string, names []string) {
	i := sandbox.Import{Specifier: specifier}
	exports, known := exportsOf(specifier)
	i.Unknown = !known
	for _, name := range names {
		if known && exports != nil && name != "*" && name != "" && !exports[name] {
			i.Missing = append(i.Missing, name)
		}
	}
	m.list = append(m.list, i)
}

// sourceName returns the name that an import or a re-export has in its source module.
func sourceName(a js.Alias) string {
	if a.Name != nil {
		return string(a.Name)
	}
	return string(a.Binding)
}

func (m *module) declare(d js.IExpr) {
	switch d := d.(type) {
	case *js.VarDecl:
		for _, item := range d.List {
			if v, ok := item.Binding.(*js.Var); ok && item.Default != nil {
				m.values[string(v.Name())] = item.Default
			}
		}
	case *js.FuncDecl:
		if d.Name != nil {
			m.functions[string(d.Name.Name())] = true
		}
	}
}

// text returns the value of a string literal in the form of specifiers: without escapes.
func text(literal []byte) string { return string(bytes.Trim(literal, "\"'`")) }

// assigned returns the names that are assigned to anywhere, whatever variable a name means there.
func assigned(list []js.IStmt) map[string]bool {
	w := &writes{names: map[string]bool{}}
	for _, s := range list {
		js.Walk(w, s)
	}
	return w.names
}

type writes struct{ names map[string]bool }

// Enter implements js.IVisitor.
func (w *writes) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.BinaryExpr:
		if assigns(n.Op) {
			w.target(n.X)
		}
	case *js.UnaryExpr:
		if n.Op == js.PreIncrToken || n.Op == js.PreDecrToken || n.Op == js.PostIncrToken || n.Op == js.PostDecrToken {
			w.target(n.X)
		}
	}
	return w
}

// Exit implements js.IVisitor.
func (w *writes) Exit(js.INode) {}

// target records what is assigned to. In a pattern, every name counts.
func (w *writes) target(x js.IExpr) {
	if v, ok := x.(*js.Var); ok {
		w.names[string(v.Name())] = true
		return
	}
	js.Walk(named(func(name string) { w.names[name] = true }), x)
}

// named is a visitor of all names.
type named func(string)

// Enter implements js.IVisitor.
func (f named) Enter(n js.INode) js.IVisitor {
	if v, ok := n.(*js.Var); ok {
		f(string(v.Name()))
	}
	return f
}

// Exit implements js.IVisitor.
func (f named) Exit(js.INode) {}

func assigns(op js.TokenType) bool {
	switch op {
	case js.EqToken, js.AddEqToken, js.SubEqToken, js.MulEqToken, js.DivEqToken, js.ModEqToken, js.ExpEqToken, js.LtLtEqToken, js.GtGtEqToken, js.GtGtGtEqToken,
		js.BitAndEqToken, js.BitOrEqToken, js.BitXorEqToken, js.AndEqToken, js.OrEqToken, js.NullishEqToken:
		return true
	}
	return false
}
