package inspect

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// Declared is what the definition that a module exports says of itself, as far as the text shows it.
type Declared struct {
	// Texts are the properties of the definition whose values are plain texts, such as description. The moment of
	// defineHook('filter_messages', …) is the text "hook".
	Texts map[string]string
	// Keys are the names of all properties of the definition, in order.
	Keys []string
}

// DeclaredBy returns what the default export of a compiled module declares. It omits what is not certain.
func DeclaredBy(code string) (d Declared) {
	d.Texts = map[string]string{}
	defer func() { _ = recover() }() // an error of the parser is not a mistake of the code
	ast, err := js.Parse(parse.NewInputString(code), js.Options{})
	if err != nil {
		return d
	}
	m := &module{imports: map[string]imported{}, values: map[string]js.IExpr{}, functions: map[string]bool{}}
	m.collect(ast.List)
	for _, s := range ast.List {
		e, ok := s.(*js.ExportStmt)
		if !ok {
			continue
		}
		if e.Default {
			m.declared(e.Decl, &d, 0)
			continue
		}
		for _, a := range e.List {
			if text(a.Binding) == "default" && e.Module == nil {
				m.declared(m.values[sourceName(a)], &d, 0)
			}
		}
	}
	return d
}

// declared adds what an expression declares. Variables are followed.
func (m *module) declared(x js.IExpr, d *Declared, hops int) {
	if hops > maxHops {
		return
	}
	switch x := x.(type) {
	case *js.GroupExpr:
		m.declared(x.X, d, hops+1)
	case *js.Var:
		m.declared(m.values[string(x.Name())], d, hops+1)
	case *js.ObjectExpr:
		m.properties(x, d)
	case *js.CallExpr:
		kind := defines[m.callee(x.X)]
		if kind == "" {
			return
		}
		for i, a := range x.Args.List {
			if t, ok := m.plainText(a.Value, 0); ok && kind == "hook" && i == 0 {
				d.Texts["hook"] = t
				continue
			}
			m.declared(a.Value, d, hops+1)
		}
	}
}

func (m *module) properties(o *js.ObjectExpr, d *Declared) {
	for i := range o.List {
		p := &o.List[i]
		if p.Spread || p.Name != nil && p.Name.IsComputed() {
			continue
		}
		name := propertyName(p)
		if v, ok := p.Value.(*js.Var); ok && name == "" { // { GET } stands for { GET: GET }
			name = string(v.Name())
		}
		if name == "" {
			continue
		}
		d.Keys = append(d.Keys, name)
		if t, ok := m.plainText(p.Value, 0); ok {
			d.Texts[name] = t
		}
	}
}

// plainText returns the value of an expression that is a text, or a sum of texts.
func (m *module) plainText(x js.IExpr, hops int) (string, bool) {
	if hops > maxHops {
		return "", false
	}
	switch x := x.(type) {
	case *js.GroupExpr:
		return m.plainText(x.X, hops+1)
	case *js.Var:
		if v := m.values[string(x.Name())]; v != nil {
			return m.plainText(v, hops+1)
		}
	case *js.BinaryExpr:
		if x.Op != js.AddToken {
			return "", false
		}
		left, ok := m.plainText(x.X, hops+1)
		if !ok {
			return "", false
		}
		right, ok := m.plainText(x.Y, hops+1)
		return left + right, ok
	case *js.LiteralExpr:
		if x.TokenType == js.StringToken {
			return unquoted(x.Data)
		}
	case *js.TemplateExpr:
		if x.Tag == nil && len(x.List) == 0 {
			return unquoted(x.Tail)
		}
	}
	return "", false
}

// unquoted returns the value of a literal. Escapes that JSON does not have count as uncertain, except for those of
// quotes and of line ends.
func unquoted(literal []byte) (string, bool) {
	if len(literal) < 2 {
		return "", false
	}
	var b bytes.Buffer
	b.WriteByte('"')
	inner := literal[1 : len(literal)-1]
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		switch {
		case c == '\\' && i+1 < len(inner) && strings.IndexByte("'`$", inner[i+1]) >= 0:
			i++
			b.WriteByte(inner[i])
		case c == '\\' && i+1 < len(inner) && inner[i+1] == '\n': // a line that goes on
			i++
		case c == '\\' && i+1 < len(inner):
			b.Write(inner[i : i+2])
			i++
		case c == '"':
			b.WriteString(`\"`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	var s string
	err := json.Unmarshal(b.Bytes(), &s)
	return s, err == nil
}

// Library reports whether sandboxes have a module, so that it need not be bundled.
func Library(specifier string) bool {
	_, known := exportsOf(specifier)
	return known
}

// Check returns what keeps compiled code from being used for a purpose.
func (u Use) Check(code string) []Problem { return u.Problems(Module(code)) }
