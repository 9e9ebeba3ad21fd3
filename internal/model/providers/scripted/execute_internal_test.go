package scripted

import (
	"bytes"
	"encoding/json"
	"text/template"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/model"
)

// reference executes a template as text/template does.
func reference(v *view, source string) (string, error) {
	t, err := template.New("t").Option("missingkey=error").Funcs(template.FuncMap{
		"toolResult": v.toolResult,
		"fromJSON":   func(text string) (any, error) { return decode([]byte(text)) },
		"toJSON":     toJSON,
	}).Parse(source)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = t.Execute(&out, v)
	return out.String(), err
}

var _ = Describe("Templates", func() {
	conversation := func() *view {
		GinkgoHelper()
		v, err := newView(model.Request{
			Session: "s-1", SessionMessages: 1,
			Arguments: json.RawMessage(`{"n":3,"f":2.5,"zero":0,"s":"a<b>&\"c\"","empty":"","yes":true,"no":false,"none":null,"big":123456789012345678901234567890,
				"list":[1,"two",3.5,null,[4,5],{"k":"v"}],"nothing":[],"map":{"b":2,"a":1,"c":{"d":[7,8]}},"bare":{}}`),
			Messages: []model.Message{
				{Role: model.RoleTool, Name: "totals", Content: `{"total":12345678.25,"count":4}`},
				{Role: model.RoleTool, Name: "plain", Content: "not JSON"},
				{Role: model.RoleUser, Name: "ann", Content: "hello"},
			},
		})
		Expect(err).NotTo(HaveOccurred())
		return v
	}

	It("say what text/template says, and fail where it fails", func() {
		for _, source := range sources() {
			v := conversation()
			want, wrong := reference(v, source)
			parsed, err := parseText("t", source)
			var got string
			if err == nil {
				got, err = v.render(parsed)
			}
			if wrong != nil && !looser[source] {
				Expect(err).To(HaveOccurred(), "%s: text/template: %s", source, wrong)
				Expect(got).To(Equal(want), source)
			} else {
				Expect(err).NotTo(HaveOccurred(), source)
			}
			if wrong == nil {
				Expect(got).To(Equal(want), source)
			}
		}
	})
})

// looser are templates that text/template refuses, because its slice does not look into an interface for an index, as its index does.
var looser = map[string]bool{`{{slice .Arguments.s .Arguments.n}}`: true, `{{slice .Arguments.list .Arguments.n}}`: true}

// sources are templates of every node, every function, and every pair of values in every function of two.
func sources() []string {
	all := []string{
		`{{.}}`, `{{.Last}}`, `{{.Last.Content}} {{.Last.Role}} {{.Last.Name}} {{.Session}} {{.NewMessages}}`, `{{.last}}`, `{{.Last.none}}`, `{{.None}}`, `{{.messages}}`, `{{$.Last.Content}}`,
		`{{/* nothing */}}a{{- " b " -}}c`, `{{"a" "b"}}`, `{{.Last.Content "b"}}`, `{{1 | .Last.Content}}`, `{{nil}}`, `{{true}} {{false}} {{'x'}} {{0x1F}} {{1.5}} {{1e3}} {{0x1p4}} {{1i}} {{1_000}} {{99999999999999999999}}`,
		`{{.Arguments.f.String}}`, `{{.Arguments.n.String}}`, `{{.Arguments.none.x}}`, `{{.Arguments.missing}}`, `{{.Arguments.map.c.d}}`, `{{(.Arguments.map).c}}`, `{{(index .Arguments.list 5).k}}`,
		`{{$x := 1}}{{$x}}{{$x = "two"}}{{$x}}`, `{{$x := .Arguments}}{{$x.map.c}}`, `{{if true}}{{$x := 1}}{{end}}{{$x}}`, `{{$x := 1}}{{if true}}{{$x = 2}}{{$x := 3}}{{$x}}{{end}}{{$x}}`,
		`{{with .Arguments.s}}{{.}}{{else}}none{{end}}`, `{{with .Arguments.empty}}{{.}}{{else}}none{{end}}`, `{{with $x := .Arguments.n}}{{$x}}{{end}}`, `{{with .Arguments.no}}a{{else with .Arguments.n}}{{.}}{{end}}`,
		`{{if .Arguments.no}}a{{else if .Arguments.yes}}b{{else}}c{{end}}`, `{{if .Arguments.zero}}a{{else if .Arguments.bare}}b{{else if .Arguments.nothing}}c{{else if .}}d{{end}}`, `{{if .Arguments.f}}a{{end}}{{if .Last}}b{{end}}{{if .Arguments.none}}c{{end}}`,
		`{{range .Arguments.list}}[{{.}}]{{end}}`, `{{range $i, $e := .Arguments.list}}{{$i}}={{$e}};{{end}}`, `{{range $k, $e := .Arguments.map}}{{$k}}={{$e}};{{end}}`, `{{range $e := .Arguments.map}}{{$e}}{{end}}`,
		`{{range .Arguments.nothing}}a{{else}}b{{end}}`, `{{range .Arguments.none}}a{{else}}b{{end}}`, `{{range .Arguments.bare}}a{{else}}b{{end}}`, `{{range .Arguments.n}}{{.}}{{end}}`, `{{range 3}}{{.}}{{else}}b{{end}}`, `{{range 0}}a{{else}}b{{end}}`,
		`{{range $i := 3}}{{$i}}{{end}}`, `{{range $i, $j := 3}}{{$i}}{{end}}`, `{{range .Arguments.s}}a{{end}}`, `{{range .Arguments.f}}a{{end}}`, `{{range .Arguments.yes}}a{{end}}`, `{{range .}}a{{end}}`, `{{range .Last}}a{{end}}`,
		`{{range $i, $e := .Arguments.list}}{{if eq $i 1}}{{continue}}{{end}}{{if eq $i 3}}{{break}}{{end}}{{$i}}{{end}}`, `{{range .Arguments.list}}{{with .}}{{break}}{{end}}{{end}}x`, `{{$x := 0}}{{range $x = .Arguments.list}}{{$x}}{{end}}{{$x}}`,
		`{{$k := 0}}{{$x := 0}}{{range $k, $x = .Arguments.map}}{{$k}}{{$x}}{{end}}{{$k}}`, `{{range .Arguments.list}}{{range $.Arguments.map}}{{.}}{{break}}{{end}},{{end}}`, `{{range .Arguments.list}}{{$y := .}}{{$y}}{{end}}{{$.Session}}`,
		`{{define "x"}}<{{.}}>{{end}}{{template "x" .Last.Content}}{{template "x"}}`, `{{define "x"}}{{$}}{{end}}{{template "x" 1}}`, `{{template "none"}}`, `{{block "b" .Arguments.n}}({{.}}){{end}}`, `{{$v := 1}}{{define "y"}}{{$v}}{{end}}`,
		`{{define "x"}}{{if lt (len .) 5}}{{template "x" (print . "a")}}{{else}}{{.}}{{end}}{{end}}{{template "x" "a"}}`, `{{define "x"}}{{end}}{{template "x"}}`, `{{define "x"}}a{{end}}`,
		`{{toolResult "totals"}}`, `{{(toolResult "totals").total}}`, `{{toolResult "plain"}}`, `{{toolResult "none"}}`, `{{toolResult 1}}`, `{{toolResult}}`, `{{"totals" | toolResult | toJSON}}`, `{{.Last.Name | toolResult}}`, `{{toolResult nil}}`,
		`{{fromJSON "[1,2.5]"}}`, `{{fromJSON "["}}`, `{{fromJSON .Arguments.n}}`, `{{toJSON .Arguments}}`, `{{toJSON .Last}}`, `{{toJSON .Arguments.none}}`, `{{.Arguments.big}}`, `{{.Arguments.f}} {{.Arguments.list}} {{.Arguments.map}}`,
		`{{printf "%d %v %s %.2f" .Arguments.n .Arguments.list .Arguments.s .Arguments.f}}`, `{{printf}}`, `{{printf 1}}`, `{{printf "%v" nil}}`, `{{"%s!" | printf "%s"}}`, `{{print}}`, `{{print 1 2 "a" "b" nil}}`, `{{println .Arguments.n .Last}}`,
		`{{and}}`, `{{and 1}}`, `{{and 0 (toolResult "none")}}`, `{{and 1 2}}`, `{{or 0 "" "a"}}`, `{{or 1 (toolResult "none")}}`, `{{1 | and 2}}`, `{{1 | or 0}}`, `{{0 | and 1}}`, `{{not 1}} {{not ""}} {{not .Arguments.none}}`, `{{not}}`, `{{not 1 2}}`,
		`{{call 1}}`, `{{call}}`, `{{index}}`, `{{index .Arguments.list}}`, `{{index .Arguments.list 4 1}}`, `{{index .Arguments.list 3 1}}`, `{{index .Arguments.map "c" "d" 1}}`, `{{index .Arguments.map "none"}}`, `{{index .Arguments.map nil}}`, `{{index nil 1}}`,
		`{{slice .Arguments.s 1}}`, `{{slice .Arguments.s 1 2}}`, `{{slice .Arguments.s 1 2 3}}`, `{{slice .Arguments.s 2 1}}`, `{{slice .Arguments.s 1 100}}`, `{{slice .Arguments.list 1 2}}`, `{{slice .Arguments.list 1 2 3}}`, `{{slice .Arguments.list 1 3 2}}`,
		`{{slice .Arguments.list 0 1 2 3}}`, `{{slice nil}}`, `{{slice .Arguments.list}}`, `{{slice .Arguments.map 1}}`, `{{slice .Arguments.list "a"}}`, `{{eq 1}}`, `{{eq}}`, `{{ne 1}}`, `{{lt 1}}`, `{{lt 1 2 3}}`, `{{eq 1 2 3 1}}`, `{{eq 1 1 "a"}}`, `{{eq 1 "a" 1}}`,
		`{{1 | eq 1}}`, `{{len}}`, `{{len 1 2}}`, `{{html}}`, `{{html .Arguments.s}} {{js .Arguments.s}} {{urlquery .Arguments.s}}`, `{{html 1 nil "<"}}`, `{{.Arguments.s | html}}`, `{{html .Arguments.list}}`,
		`{{($x := 1)}}`, `{{$x}}`, `{{.Arguments.n.x}}`, `{{"a".x}}`, `{{(1).x}}`, `{{true.x}}`, `{{nil.x}}`, `{{.Arguments.list.x}}`, `{{$.Arguments.map.a}}`, `{{print $}}`,
	}
	values := []string{`1`, `3`, `2.5`, `"a"`, `nil`, `true`, `.Arguments.n`, `.Arguments.f`, `.Arguments.s`, `.Arguments.none`, `.Arguments.list`, `.Arguments.map`, `.Arguments.yes`, `(index "a" 0)`, `97`, `1i`, `.Last`, `.`, `.NewMessages`}
	for _, f := range []string{"eq", "ne", "lt", "le", "gt", "ge", "index", "and", "or", "slice"} {
		for _, a := range values {
			for _, b := range values {
				all = append(all, "{{"+f+" "+a+" "+b+"}}")
			}
		}
	}
	for _, f := range []string{"len", "not", "html", "js", "urlquery", "print", "toJSON", "fromJSON", "toolResult", "index", "slice", "printf", "call"} {
		for _, a := range values {
			all = append(all, "{{"+f+" "+a+"}}", "{{"+a+" | "+f+"}}")
		}
	}
	return all
}
