package prompt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// world holds prompts and ConfigMap keys by name.
type world struct {
	prompts map[string]*skeinv1.PromptSpec
	keys    map[string]string
}

func (w world) Prompt(_ context.Context, name, field string) (*skeinv1.PromptSpec, error) {
	if p := w.prompts[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no prompt %s: correct %s", name, field)
}

func (w world) ConfigMapKey(_ context.Context, ref corev1.ConfigMapKeySelector, _ string) ([]byte, error) {
	return []byte(w.keys[ref.Key]), nil
}

func (w world) Within(name string, err error) error {
	var bad *Error
	if errors.As(err, &bad) {
		return &Error{bad.Reason, name + ": " + bad.Message}
	}
	return fmt.Errorf("%s: %w", name, err)
}

func build(t testing.TB, w world, spec skeinv1.PromptSpec) *Template {
	t.Helper()
	out, err := Build(context.Background(), "root", &spec, w)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func render(t testing.TB, tpl *Template, args string, env map[string]string) string {
	t.Helper()
	text, err := tpl.Render(Values{Arguments: json.RawMessage(args), Env: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPlaceholders(t *testing.T) {
	args := `{"a":"x","b":{"c":[1,{"d":"deep"}]},"n":null,"big":12345678901234567890,"e-f":"dash"}`
	for source, want := range map[string]string{
		"plain":                              "plain",
		"{{arguments.a}}":                    "x",
		"{{  arguments.a\n}}-{ b}":           "x-{ b}",
		"{{ arguments.b }}":                  `{"c":[1,{"d":"deep"}]}`,
		"{{ arguments.b.c.1.d }}":            "deep",
		"{{ arguments.b.c.7.d }}|":           "|",
		"{{ arguments.b.c.-1 }}|":            "|",
		"{{ arguments.a.b }}|":               "|",
		"[{{ arguments.none }}]":             "[]",
		"[{{ arguments.n }}]":                "[]",
		"{{ arguments.big }}":                "12345678901234567890",
		"{{ arguments.e-f }}":                "dash",
		"{{ env.KEY }}/{{ env.NONE }}/":      "value//",
		`\{{ arguments.a }}`:                 "{{ arguments.a }}",
		`a\{{b}} {{ arguments.a }} \{{c`:     "a{{b}} x {{c",
		"}} {{ arguments.a }} }}":            "}} x }}",
		"{{ env.KEY }}{{ arguments.a }}tail": "valuextail",
	} {
		tpl := build(t, world{}, skeinv1.PromptSpec{Text: source})
		if got := render(t, tpl, args, map[string]string{"KEY": "value"}); got != want {
			t.Errorf("%q: got %q, want %q", source, got, want)
		}
	}
}

func TestBadPlaceholders(t *testing.T) {
	for source, says := range map[string]string{
		"one\ntwo {{ argument.a }}":     "spec.text, line 2: {{ argument.a }} is not a placeholder",
		"{{ env }}":                     "is not a placeholder",
		"{{ env.A.B }}":                 "is not a placeholder",
		"{{ env.1A }}":                  "is not a placeholder",
		"{{ arguments. }}":              "is not a placeholder",
		"{{ arguments.a } and more":     "has no }}",
		"{{{ arguments.a }}}":           "is not a placeholder",
		"{{ " + strings.Repeat("x", 99): "…",
	} {
		_, err := Build(context.Background(), "root", &skeinv1.PromptSpec{Text: source}, world{})
		var bad *Error
		if !errors.As(err, &bad) || bad.Reason != skeinv1.ReasonInvalidPlaceholder || !strings.Contains(bad.Message, says) {
			t.Errorf("%q: got %v, want it to say %q", source, err, says)
		}
	}
}

func TestParts(t *testing.T) {
	w := world{
		prompts: map[string]*skeinv1.PromptSpec{
			"tone":    {Text: "Be kind to {{ arguments.who }}. "},
			"policy":  {Parts: []skeinv1.PromptPart{{Include: "tone"}, {Text: "Never lie. "}, {Env: "REGION"}}},
			"another": {Text: "{{ env.SECRET }}"},
		},
		keys: map[string]string{"rules": " Rule for {{ arguments.who }};", "vue": "<b>{{ vue }}</b>"},
	}
	key := func(k string) *corev1.ConfigMapKeySelector { return &corev1.ConfigMapKeySelector{Key: k} }
	tpl := build(t, w, skeinv1.PromptSpec{Parts: []skeinv1.PromptPart{
		{Include: "policy"}, {ConfigMapKeyRef: key("rules")}, {ConfigMapKeyRef: key("vue"), Literal: true},
		{Text: "{{ raw }}", Literal: true}, {Include: "tone"},
	}})
	got := render(t, tpl, `{"who":"Ada"}`, map[string]string{"REGION": "EU"})
	if want := "Be kind to Ada. Never lie. EU Rule for Ada;<b>{{ vue }}</b>{{ raw }}Be kind to Ada. "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var names []string
	for _, i := range tpl.Included() {
		names = append(names, i.Name)
	}
	if fmt.Sprint(names) != "[policy tone]" || !tpl.UsesEnv() {
		t.Errorf("included %v, uses env %v", names, tpl.UsesEnv())
	}
}

func TestIncludesThatCannotBe(t *testing.T) {
	includes := func(names ...string) *skeinv1.PromptSpec {
		p := &skeinv1.PromptSpec{}
		for _, n := range names {
			p.Parts = append(p.Parts, skeinv1.PromptPart{Include: n})
		}
		return p
	}
	deep := map[string]*skeinv1.PromptSpec{}
	wide := map[string]*skeinv1.PromptSpec{"w20": {Parts: []skeinv1.PromptPart{{Env: "A"}}}}
	for i := range 20 {
		deep[fmt.Sprintf("d%d", i)] = includes(fmt.Sprintf("d%d", i+1))
		wide[fmt.Sprintf("w%d", 8+i)] = includes(fmt.Sprintf("w%d", 9+i), fmt.Sprintf("w%d", 9+i), fmt.Sprintf("w%d", 9+i), fmt.Sprintf("w%d", 9+i))
	}
	wide["w20"] = &skeinv1.PromptSpec{Parts: []skeinv1.PromptPart{{Env: "A"}}}
	for _, c := range []struct {
		prompts map[string]*skeinv1.PromptSpec
		root    *skeinv1.PromptSpec
		reason  string
		says    string
	}{
		{map[string]*skeinv1.PromptSpec{"a": includes("b"), "b": includes("c"), "c": includes("a")}, includes("a"), skeinv1.ReasonIncludeCycle, "a → b → c → a"},
		{nil, includes("root"), skeinv1.ReasonIncludeCycle, "root → root"},
		{deep, includes("d0"), skeinv1.ReasonInvalidSpec, "more than 16"},
		{wide, includes("w8"), skeinv1.ReasonInvalidSpec, "more than 4096 parts"},
		{map[string]*skeinv1.PromptSpec{"a": {Text: strings.Repeat("x", MaxBytes/4)}}, includes("a", "a", "a", "a", "a"), skeinv1.ReasonInvalidSpec, "more than 1048576 bytes"},
		{map[string]*skeinv1.PromptSpec{"a": {Text: "{{ oops }}"}}, includes("a"), skeinv1.ReasonInvalidPlaceholder, "a: spec.text, line 1: {{ oops }}"},
	} {
		_, err := Build(context.Background(), "root", c.root, world{prompts: c.prompts})
		var bad *Error
		if !errors.As(err, &bad) || bad.Reason != c.reason || !strings.Contains(bad.Message, c.says) {
			t.Errorf("got %v, want %s: %s", err, c.reason, c.says)
		}
	}
	if _, err := Build(context.Background(), "root", includes("none"), world{}); err == nil || !strings.Contains(err.Error(), "spec.parts[0].include") {
		t.Errorf("of an unknown include: %v", err)
	}
}

func TestRenderedSizeIsBounded(t *testing.T) {
	tpl := build(t, world{}, skeinv1.PromptSpec{Text: strings.Repeat("{{ arguments.a }}", 100)})
	args, _ := json.Marshal(map[string]string{"a": strings.Repeat("x", MaxRendered/50)})
	if _, err := tpl.Render(Values{Arguments: args}); err == nil {
		t.Error("a prompt of any size was made")
	}
}

// Values are not parsed: they come out as they went in, in every form and at every place.
func TestValuesAreNotTakenForPlaceholders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"{{", "}}", `\{{`, "{{ env.SECRET }}", "{{ arguments.b }}", "{", "}", `\`, " ", "env.SECRET", "ä", "x"})
		value := func(label string) string { return strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, label), "") }
		a, b := value("a"), value("b")
		args, _ := json.Marshal(map[string]string{"a": a, "b": b})
		tpl, err := Build(context.Background(), "root", &skeinv1.PromptSpec{Parts: []skeinv1.PromptPart{
			{Text: "1{{ arguments.a }}{{ arguments.b }}2"}, {Env: "V"}, {Text: `\{{3`},
		}}, world{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tpl.Render(Values{Arguments: args, Env: func(name string) (string, bool) {
			return map[string]string{"V": b, "SECRET": "leaked"}[name], true
		}})
		if want := "1" + a + b + "2" + b + "{{3"; err != nil || got != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "{{", "}}", `\{{`, "{{ arguments.a }}", "a{{env.B}}c", "{{{{}}}}", "\xff{{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		segments, err := parse(text)
		if err != nil {
			return
		}
		out := &Template{segments: segments}
		got, err := out.Render(Values{})
		if err == nil && !strings.Contains(text, "{{") && got != text {
			t.Fatalf("a text without braces became %q", got)
		}
	})
}
