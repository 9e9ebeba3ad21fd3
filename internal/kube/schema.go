package kube

import (
	"bytes"
	"crypto/sha256"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
)

// schemaCache remembers which JSON Schemas are good.
type schemaCache struct {
	seen *lru.Cache // digest → *engine.NotReadyError, nil when good
}

func newSchemaCache() *schemaCache { return &schemaCache{seen: lru.New(maxCompiled)} }

// check tells whether spec.parameters is a usable schema of an object; absent is good.
func (c *schemaCache) check(parameters *runtime.RawExtension) error {
	if parameters == nil || len(parameters.Raw) == 0 {
		return nil
	}
	digest := sha256.Sum256(parameters.Raw)
	v, ok := c.seen.Get(digest)
	if !ok {
		v = checkSchema(parameters.Raw)
		c.seen.Add(digest, v)
	}
	if err := v.(*engine.NotReadyError); err != nil {
		return err
	}
	return nil
}

// schemaURL names the schema in the compiler's messages.
const schemaURL = "spec.parameters"

func checkSchema(raw []byte) *engine.NotReadyError {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return notReady(skeinv1.ReasonInvalidSchema, "spec.parameters is not JSON: %v", err)
	}
	if o, ok := doc.(map[string]any); !ok || (o["type"] != nil && o["type"] != "object") {
		return notReady(skeinv1.ReasonInvalidSchema, "spec.parameters must be the schema of an object: write type: object")
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return notReady(skeinv1.ReasonInvalidSchema, "spec.parameters: %v", err)
	}
	if _, err := c.Compile(schemaURL); err != nil {
		return notReady(skeinv1.ReasonInvalidSchema, "spec.parameters is not a valid JSON Schema: %v", err)
	}
	return nil
}

// noLoader keeps a schema from reading files of the manager by "$ref".
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("a $ref must stay within the schema, so it cannot lead to " + url)
}
