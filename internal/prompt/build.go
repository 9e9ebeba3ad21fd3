package prompt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Limits of prompts.
const (
	// MaxDepth is how deeply prompts may include one another.
	MaxDepth = 16
	// MaxParts limits the parts of a prompt with all its includes.
	MaxParts = 4096
	// MaxBytes limits the size of a prompt with all its includes, before values are inserted.
	MaxBytes = 1 << 20
)

// Error is a mistake in a prompt or in one of its includes. Reason is a reason of a definition's condition.
type Error struct{ Reason, Message string }

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Loader loads what a prompt refers to, from its namespace. Build returns its errors unchanged, except that it adds
// where they occurred.
type Loader interface {
	// Prompt returns the spec of another prompt. field is the field with its name.
	Prompt(ctx context.Context, name, field string) (*skeinv1.PromptSpec, error)
	// ConfigMapKey returns the text of a key, or nil when it does not exist and is optional.
	ConfigMapKey(ctx context.Context, ref corev1.ConfigMapKeySelector, field string) ([]byte, error)
	// Within returns the error with the name of the included prompt that it is about.
	Within(prompt string, err error) error
}

// Template is a system prompt without its values. It is immutable and may be shared.
type Template struct {
	segments []segment
	included []Included
	env      bool
}

// Included is a prompt that is part of another one.
type Included struct {
	Name string
	Spec *skeinv1.PromptSpec
}

// Included returns the prompts that are part of the template, each once, in the order of their first occurrence.
func (t *Template) Included() []Included { return t.included }

// UsesEnv reports whether the template has placeholders for variables.
func (t *Template) UsesEnv() bool { return t.env }

// Build combines the parts of a prompt. It returns an *Error when the prompt has a mistake.
func Build(ctx context.Context, name string, spec *skeinv1.PromptSpec, l Loader) (*Template, error) {
	b := &builder{loader: l, out: &Template{}}
	if err := b.prompt(ctx, name, spec); err != nil {
		return nil, err
	}
	return b.out, nil
}

type builder struct {
	loader Loader
	out    *Template
	path   []string // the chain of includes to the current prompt, which is the last
	parts  int
	bytes  int
}

func (b *builder) prompt(ctx context.Context, name string, spec *skeinv1.PromptSpec) error {
	b.path = append(b.path, name)
	defer func() { b.path = b.path[:len(b.path)-1] }()
	if len(spec.Parts) == 0 {
		return b.text(spec.Text, "spec.text", false)
	}
	for i := range spec.Parts {
		if err := b.part(ctx, &spec.Parts[i], fmt.Sprintf("spec.parts[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) part(ctx context.Context, p *skeinv1.PromptPart, field string) error {
	if b.parts++; b.parts > MaxParts {
		return &Error{skeinv1.ReasonInvalidSpec, fmt.Sprintf("%s: the prompt has more than %d parts with all that it includes: include less", field, MaxParts)}
	}
	switch {
	case p.Include != "":
		return b.include(ctx, p.Include, field+".include")
	case p.Env != "":
		b.add(segment{from: fromEnv, path: []string{p.Env}})
		return nil
	case p.ConfigMapKeyRef != nil:
		field += ".configMapKeyRef"
		data, err := b.loader.ConfigMapKey(ctx, *p.ConfigMapKeyRef, field)
		if err != nil {
			return err
		}
		if !utf8.Valid(data) {
			return &Error{skeinv1.ReasonInvalidSpec, fmt.Sprintf("%s: key %q of ConfigMap %q is not UTF-8 text", field, p.ConfigMapKeyRef.Key, p.ConfigMapKeyRef.Name)}
		}
		return b.text(string(data), fmt.Sprintf("%s: key %q of ConfigMap %q", field, p.ConfigMapKeyRef.Key, p.ConfigMapKeyRef.Name), p.Literal)
	default:
		return b.text(p.Text, field+".text", p.Literal)
	}
}

func (b *builder) include(ctx context.Context, name, field string) error {
	if at := slices.Index(b.path, name); at >= 0 {
		return &Error{skeinv1.ReasonIncludeCycle, fmt.Sprintf("%s: the prompts include one another in a circle, %s: take one of the includes out",
			field, strings.Join(append(slices.Clone(b.path[at:]), name), " → "))}
	}
	if len(b.path) >= MaxDepth {
		return &Error{skeinv1.ReasonInvalidSpec, fmt.Sprintf("%s: %d prompts include one another, more than %d: include less deeply", field, len(b.path)+1, MaxDepth)}
	}
	spec, err := b.loader.Prompt(ctx, name, field)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(b.out.included, func(i Included) bool { return i.Name == name }) {
		b.out.included = append(b.out.included, Included{Name: name, Spec: spec})
	}
	err = b.prompt(ctx, name, spec)
	var circle *Error
	if err == nil || errors.As(err, &circle) && circle.Reason == skeinv1.ReasonIncludeCycle {
		return err // the error names the whole circle
	}
	return b.loader.Within(name, err)
}

func (b *builder) text(text, field string, literal bool) error {
	if b.bytes += len(text); b.bytes > MaxBytes {
		return &Error{skeinv1.ReasonInvalidSpec, fmt.Sprintf("%s: the prompt has more than %d bytes with all that it includes: make it shorter, or keep large texts in files", field, MaxBytes)}
	}
	if literal {
		b.add(segment{literal: text})
		return nil
	}
	segments, err := parse(text)
	if err != nil {
		return &Error{skeinv1.ReasonInvalidPlaceholder, field + ", " + err.Error()}
	}
	for _, s := range segments {
		b.add(s)
	}
	return nil
}

func (b *builder) add(s segment) {
	b.out.env = b.out.env || s.from == fromEnv
	b.out.segments = append(b.out.segments, s)
}
