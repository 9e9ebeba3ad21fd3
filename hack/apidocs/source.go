package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// constants is a group of string constants of one declaration, with its comment.
type constants struct {
	about  string
	values []constant
}

type constant struct{ value, about string }

// wireType is a struct of the wire format.
type wireType struct {
	name, about string
	fields      []wireField
}

type wireField struct{ name, goType, about string }

// parse parses the Go files of a folder in the order of their names, without tests and generated files.
func parse(dir string) ([]*ast.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, e := range entries {
		if name := e.Name(); !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// readConstants returns the exported string constants of a file: condition types, reasons, labels.
func readConstants(file string) ([]constants, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var groups []constants
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		c := constants{about: g.Doc.Text()}
		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 || !v.Names[0].IsExported() {
				continue
			}
			about := v.Doc.Text()
			if about == "" {
				about = v.Comment.Text() // a trailing comment
			}
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				continue
			}
			c.values = append(c.values, constant{value: strings.Trim(lit.Value, `"`), about: withoutName(v.Names[0].Name, about)})
		}
		if len(c.values) > 0 {
			groups = append(groups, c)
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("%s declares no constants", file)
	}
	return groups, nil
}

// withoutName removes the name at the start of a Go comment, which means nothing outside Go.
func withoutName(name, doc string) string {
	doc = strings.TrimSpace(doc)
	for _, then := range []string{":", " is", ""} {
		if rest, ok := strings.CutPrefix(doc, name+then+" "); ok {
			doc = strings.TrimSpace(rest)
			break
		}
	}
	return capital(doc)
}

func (c *constants) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "%s\n\n| value | meaning |\n|---|---|\n", cell(c.about))
	for _, v := range c.values {
		fmt.Fprintf(out, "| %s | %s |\n", code(v.value), cell(v.about))
	}
	out.WriteByte('\n')
}

// readTypes returns the exported structs of a package that have JSON fields.
func readTypes(dir string) ([]wireType, error) {
	files, err := parse(dir)
	if err != nil {
		return nil, err
	}
	var types []wireType
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok || !t.Name.IsExported() {
					continue
				}
				st, ok := t.Type.(*ast.StructType)
				if !ok {
					continue
				}
				doc := t.Doc.Text()
				if doc == "" {
					doc = g.Doc.Text()
				}
				if w := (wireType{name: t.Name.Name, about: doc, fields: wireFields(st)}); len(w.fields) > 0 {
					types = append(types, w)
				}
			}
		}
	}
	return types, nil
}

func wireFields(st *ast.StructType) []wireField {
	var fields []wireField
	for _, f := range st.Fields.List {
		if f.Tag == nil || len(f.Names) == 0 {
			continue // every object has TypeMeta and ObjectMeta
		}
		name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		t := goType(f.Type)
		if strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero") {
			t += ", optional"
		}
		fields = append(fields, wireField{name: name, goType: t, about: withoutName(f.Names[0].Name, f.Doc.Text())})
	}
	return fields
}

// goType returns the JSON type that a Go type becomes.
func goType(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.StarExpr:
		return goType(t.X) + " or null"
	case *ast.ArrayType:
		return "[]" + goType(t.Elt)
	case *ast.MapType:
		return "object of " + goType(t.Value)
	case *ast.SelectorExpr:
		switch t.Sel.Name {
		case "RawMessage":
			return "any JSON"
		case "Duration":
			return "duration"
		case "Time", "MicroTime":
			return "time"
		}
		return t.Sel.Name
	case *ast.InterfaceType:
		return "any"
	case *ast.Ident:
		switch t.Name {
		case "int", "int32", "int64":
			return "integer"
		case "float64":
			return "number"
		case "bool":
			return "boolean"
		}
		return t.Name
	}
	return "any"
}

func (t *wireType) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "### %s\n\n%s\n\n| field | type | what it is |\n|---|---|---|\n", t.name, cell(withoutName(t.name, t.about)))
	for _, f := range t.fields {
		fmt.Fprintf(out, "| %s | %s | %s |\n", code(f.name), f.goType, cell(f.about))
	}
	out.WriteByte('\n')
}
