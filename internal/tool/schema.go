package tool

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"k8s.io/utils/lru"
)

const (
	maxSchemas      = 4096
	maxSchemaErrors = 8
)

// MaxArgumentBytes bounds the arguments of a call.
const MaxArgumentBytes = 1 << 20

// Schema checks the arguments of a tool.
type Schema struct {
	compiled *jsonschema.Schema // nil: any object
	budget   *budget
}

// schemas caches compiled schemas by the digest of their text, because tools are made again for every run.
var schemas = lru.New(maxSchemas)

// CompileSchema compiles a JSON Schema. Empty means any object. The error says what is wrong with it.
func CompileSchema(text json.RawMessage) (*Schema, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return &Schema{}, nil
	}
	digest := sha256.Sum256(text)
	if s, ok := schemas.Get(digest); ok {
		return s.(*Schema), nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	if err := CheckNumbers(doc); err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	const name = "parameters.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("the schema cannot be used: %w", err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("the schema is not a valid JSON Schema: %w", err)
	}
	s := &Schema{compiled: compiled, budget: budgeted(compiled)}
	schemas.Add(digest, s)
	return s, nil
}

// noLoader keeps "$ref" in a schema from reading files of the manager.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("a $ref must stay within the schema, so it cannot lead to " + url)
}

// Check parses the arguments that a model wrote and validates them against the schema. The error is written for the
// model: it says what is wrong and what would be right.
func (s *Schema) Check(arguments string) (json.RawMessage, error) {
	if text := strings.TrimSpace(arguments); text == "" || text == "null" {
		arguments = "{}" // some models write this for a tool without arguments
	}
	if len(arguments) > MaxArgumentBytes {
		return nil, fmt.Errorf("the arguments have %d bytes, more than the limit of %d: put large data into a file and give its path", len(arguments), MaxArgumentBytes)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments))
	if err != nil {
		return nil, fmt.Errorf("the arguments are not valid JSON (%w): send one JSON object", err)
	}
	if _, ok := doc.(map[string]any); !ok {
		return nil, errors.New("the arguments are not a JSON object: send one, such as {}")
	}
	if s.compiled != nil {
		if err := s.budget.validate(s.compiled, doc, len(arguments)); err != nil {
			return nil, explain(err)
		}
	}
	return json.RawMessage(arguments), nil
}

// Valid returns an error that says where a JSON text does not fit the schema.
func (s *Schema) Valid(text json.RawMessage) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil || s.compiled == nil {
		return err
	}
	return s.budget.validate(s.compiled, doc, len(text))
}

// Decode is Check, but returns the arguments as plain Go values.
func (s *Schema) Decode(arguments string) (any, error) {
	text, err := s.Check(arguments)
	if err != nil {
		return nil, err
	}
	var v any
	err = json.Unmarshal(text, &v)
	return v, err
}

// Validate validates a JSON text against the schema. The error says what is wrong, with one clause for each place.
func (s *Schema) Validate(text string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("it is not valid JSON (%w)", err)
	}
	if s.compiled == nil {
		return nil
	}
	if err := s.budget.validate(s.compiled, doc, len(text)); err != nil {
		return errors.New(problems(err))
	}
	return nil
}

var printer = message.NewPrinter(language.English)

func explain(err error) error {
	return errors.New("the arguments do not fit the tool's schema: " + problems(err) + ". Call the tool again with these corrected")
}

// problems lists the wrong places, with one clause for each.
func problems(err error) string {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	var leaves []string
	collect(invalid, &leaves)
	if len(leaves) > maxSchemaErrors {
		leaves = append(leaves[:maxSchemaErrors], fmt.Sprintf("and %d more", len(leaves)-maxSchemaErrors))
	}
	return strings.Join(leaves, "; ")
}

func collect(e *jsonschema.ValidationError, into *[]string) {
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			collect(c, into)
		}
		return
	}
	place := "the object"
	if len(e.InstanceLocation) > 0 {
		place = "/" + strings.Join(e.InstanceLocation, "/")
	}
	*into = append(*into, place+": "+e.ErrorKind.LocalizedString(printer))
}
