package definitions

import (
	"bytes"
	"crypto/sha256"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/tool"
)

// schemaCache remembers which JSON Schemas are valid.
type schemaCache struct {
	seen *lru.Cache // schemaKey → *definition.NotReadyError, nil when valid
}

func newSchemaCache() *schemaCache { return &schemaCache{seen: lru.New(maxCompiled)} }

// check returns an error unless a field of a spec is absent or a usable schema of an object.
func (c *schemaCache) check(field string, schema *runtime.RawExtension) error {
	if schema == nil || len(schema.Raw) == 0 {
		return nil
	}
	key := schemaKey{field, sha256.Sum256(schema.Raw)}
	v, ok := c.seen.Get(key)
	if !ok {
		v = checkSchema(field, schema.Raw)
		c.seen.Add(key, v)
	}
	if err := v.(*definition.NotReadyError); err != nil {
		return err
	}
	return nil
}

type schemaKey struct {
	field  string
	digest [sha256.Size]byte
}

// checkSchema compiles a schema. field names it in the compiler's messages too.
func checkSchema(field string, raw []byte) *definition.NotReadyError {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return objects.NotReady(skeinv1.ReasonInvalidSchema, "%s is not JSON: %v", field, err)
	}
	if o, ok := doc.(map[string]any); !ok || (o["type"] != nil && o["type"] != "object") {
		return objects.NotReady(skeinv1.ReasonInvalidSchema, "%s must be the schema of an object: write type: object", field)
	}
	if err := tool.CheckNumbers(doc); err != nil {
		return objects.NotReady(skeinv1.ReasonInvalidSchema, "%s: %v", field, err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(field, doc); err != nil {
		return objects.NotReady(skeinv1.ReasonInvalidSchema, "%s: %v", field, err)
	}
	if _, err := c.Compile(field); err != nil {
		return objects.NotReady(skeinv1.ReasonInvalidSchema, "%s is not a valid JSON Schema: %v", field, err)
	}
	return nil
}

// noLoader keeps a schema from reading files of the manager through "$ref".
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("a $ref must stay within the schema, so it cannot lead to " + url)
}
