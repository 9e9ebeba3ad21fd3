package tool

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	// minSteps and byteSteps bound the steps of one check of a value against a schema: minSteps, and byteSteps for each byte of the value.
	// A schema of a few lines can ask for more steps than can be waited for, because each of its levels may ask for the next one twice.
	minSteps, byteSteps = 100_000, 2
	// stepBytes is how much of a text counts as one step.
	stepBytes = 256
	// maxNumber bounds a number, in characters, and its exponent. The library calculates with all digits of a number.
	maxNumber, maxExponent = 400, 400
)

// errSteps ends a check that has used up its steps.
var errSteps = errors.New("the check took too many steps and was given up: make the schema simpler, for example with fewer $ref, allOf, anyOf and oneOf inside one another")

// budget counts the steps of one check at a time.
type budget struct {
	mu   sync.Mutex
	left int
}

// validate checks a value, of a text of some bytes, within the budget.
func (b *budget) validate(s *jsonschema.Schema, v any, bytes int) (err error) {
	if err := CheckNumbers(v); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = minSteps + byteSteps*bytes
	defer func() {
		if p := recover(); p == errSteps { //nolint:errorlint // it is the value that take panics with
			err = errSteps
		} else if p != nil {
			panic(p)
		}
	}()
	return s.Validate(v)
}

// take takes steps. The library has no way to end a check early but a panic, which validate recovers.
func (b *budget) take(n int) {
	if b.left -= n; b.left < 0 {
		panic(errSteps)
	}
}

// step is added to each part of a compiled schema. It counts what the part costs, and compares with the part's constants in the place of
// the library, which would compare with all of them before anything is counted.
type step struct {
	budget *budget
	part   *jsonschema.Schema
	enum   *jsonschema.Enum
	value  *any
}

// Validate implements jsonschema.SchemaExt. It takes the steps that the check of v against the part costs, and compares v with the constants
// of the part.
func (s *step) Validate(ctx *jsonschema.ValidatorContext, v any) {
	s.budget.take(1 + len(s.part.Required))
	switch v := v.(type) {
	case string:
		s.budget.take(len(v) / stepBytes)
	case []any:
		if s.part.UniqueItems {
			s.budget.take(len(v))
		}
	case map[string]any:
		s.budget.take(len(v) * (1 + len(s.part.PatternProperties)))
	}
	if s.value != nil && !s.equal(ctx, v, *s.value) {
		ctx.AddError(&kind.Const{Got: v, Want: *s.value})
	}
	if s.enum == nil {
		return
	}
	for _, want := range s.enum.Values {
		if s.equal(ctx, v, want) {
			return
		}
	}
	ctx.AddError(&kind.Enum{Got: v, Want: s.enum.Values})
}

func (s *step) equal(ctx *jsonschema.ValidatorContext, a, b any) bool {
	s.budget.take(1 + min(sizeOf(a), sizeOf(b)))
	same, err := ctx.Equals(a, b)
	return err == nil && same
}

// sizeOf returns about how many steps a comparison with a value takes.
func sizeOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) / stepBytes
	case []any:
		n := len(v)
		for _, e := range v {
			n += sizeOf(e)
		}
		return n
	case map[string]any:
		n := len(v)
		for _, e := range v {
			n += sizeOf(e)
		}
		return n
	}
	return 0
}

// budgeted adds a step to each part of a compiled schema.
func budgeted(root *jsonschema.Schema) *budget {
	b := &budget{}
	seen := map[*jsonschema.Schema]bool{}
	var walk func(...*jsonschema.Schema)
	walk = func(parts ...*jsonschema.Schema) {
		for _, p := range parts {
			if p == nil || seen[p] {
				continue
			}
			seen[p] = true
			p.Extensions = append(p.Extensions, &step{budget: b, part: p, enum: p.Enum, value: p.Const})
			p.Enum, p.Const = nil, nil
			walk(below(p)...)
		}
	}
	walk(root)
	return b
}

// below returns the parts that a part of a schema refers to.
func below(p *jsonschema.Schema) []*jsonschema.Schema {
	parts := []*jsonschema.Schema{p.Ref, p.RecursiveRef, p.Not, p.If, p.Then, p.Else, p.PropertyNames, p.UnevaluatedProperties, p.Contains, p.Items2020,
		p.UnevaluatedItems, p.ContentSchema}
	if p.DynamicRef != nil {
		parts = append(parts, p.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{p.AllOf, p.AnyOf, p.OneOf, p.PrefixItems} {
		parts = append(parts, list...)
	}
	for _, m := range []map[string]*jsonschema.Schema{p.Properties, p.DependentSchemas} {
		for _, s := range m {
			parts = append(parts, s)
		}
	}
	for _, s := range p.PatternProperties {
		parts = append(parts, s)
	}
	mixed := []any{p.AdditionalProperties, p.Items, p.AdditionalItems}
	for _, d := range p.Dependencies {
		mixed = append(mixed, d)
	}
	for _, v := range mixed {
		switch v := v.(type) {
		case *jsonschema.Schema:
			parts = append(parts, v)
		case []*jsonschema.Schema:
			parts = append(parts, v...)
		}
	}
	return parts
}

// errNumber says which numbers are too much to calculate with.
var errNumber = errors.New("a number in it is too long, or has too large an exponent: numbers have at most 400 characters and exponents from -400 to 400")

// CheckNumbers refuses numbers that take long to calculate with, wherever they are in a decoded JSON text.
func CheckNumbers(v any) error {
	switch v := v.(type) {
	case json.Number:
		text := string(v)
		if len(text) > maxNumber {
			return errNumber
		}
		if i := strings.IndexAny(text, "eE"); i >= 0 {
			if n, err := strconv.Atoi(text[i+1:]); err != nil || n > maxExponent || n < -maxExponent {
				return errNumber
			}
		}
	case []any:
		for _, e := range v {
			if err := CheckNumbers(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := CheckNumbers(e); err != nil {
				return err
			}
		}
	}
	return nil
}
