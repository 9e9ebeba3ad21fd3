package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	config "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// texts are values that people write, and values at the limits of what Go decodes.
var texts = []string{
	"", " ", "0", "-0", "1", "300", "5", "5s", "5 s", "10 seconds", "1d", "30d", "2 minutes", "*/5 * * * *", "1h30m", "30m1h", "1.5h", ".5s", "1.s", "-5s", "+5s", "1e3s",
	"5S", "5sec", "1µs", "1μs", "1us", "1ns", "0s", "0h0m0s", "99999h", "100000h", "999999999s", "9999999999s", "2562047h47m16.854775807s", "2562048h", "1h1h1h1h", "99999h99999h99999h99999h",
	"0.000000001s", "0.0000000000000000000000001h", "9223372036854775807ns", "9223372036854775808ns", "infinity", "PT5M", "1:30",
	"2027-01-31T09:00:00Z", "2027-01-31T09:00:00.5Z", "2027-01-31T09:00:00.000000Z", "2027-01-31T09:00:00.123456789123Z", "2027-01-31T09:00:00+02:00", "2027-01-31T09:00:00-23:59",
	"2027-01-31T09:00:00+24:00", "2027-01-31", "2027-01-31 09:00:00", "2027-01-31T09:00Z", "2027-1-31T09:00:00Z", "2027-02-30T09:00:00Z", "2027-02-29T09:00:00Z", "2028-02-29T09:00:00Z",
	"2100-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2027-04-31T00:00:00Z", "2027-13-01T00:00:00Z", "2027-01-31T24:00:00Z", "2027-01-31T23:60:00Z", "2027-01-31T23:59:60Z", "2027-01-31t09:00:00z",
	"0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "tomorrow", "now", "1767225600",
	"500Mi", "500 Mi", "500mi", "1.5Gi", "1.", ".5", ".", "1.2.3", "1e3", "1E3", "1e-3", "1e99", "1e100", "1e1.5", "1e999999999", "1e-999999999", "1E", "1Ei", "1k", "1K", "100m", "-1", "+1", "1u", "1n",
	"9223372036854775807", "9223372036854775808", "99999999999999999999999999999999", "0x10", "1_000", "½", "lots", "NaN", "Inf", "null", "true",
	"0.50", "0,50", "1/2", "a\nb", "1s\n", "\x001s",
}

// numbers are integers and other numbers in JSON form.
var numbers = []any{
	int64(0), int64(1), int64(-1), int64(1 << 31), int64(1<<31 - 1), int64(-1 << 31), int64(-1<<31 - 1), int64(1<<53 - 1), int64(1 << 53), int64(1<<63 - 1), int64(-1 << 63),
	1.5, 1e19, -1e19, 1e40, 1e300, 3.0, true,
}

// leaves calls check for each part of a schema whose Go type has no parts, or decodes itself.
func leaves(s *structuralschema.Structural, t reflect.Type, path string, check func(s *structuralschema.Structural, t reflect.Type, path string)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		check(s, t, path)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		for name := range s.Properties {
			property := s.Properties[name]
			if f, ok := fieldOf(t, name); ok {
				leaves(&property, f, path+"."+name, check)
			}
		}
	case reflect.Slice:
		if s.Items != nil {
			leaves(s.Items, t.Elem(), path+"[]", check)
		}
	case reflect.Map:
		if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
			leaves(s.AdditionalProperties.Structural, t.Elem(), path+"{}", check)
		}
	default:
		check(s, t, path)
	}
}

// accepter returns a function that returns the API server's messages for a value under a schema, or none when it
// accepts the value.
func accepter(s *structuralschema.Structural) func(value any) field.ErrorList {
	v := validation.NewSchemaValidatorFromOpenAPI(s.ToKubeOpenAPI())
	rules := cel.NewValidator(s, false, config.PerCallLimit)
	return func(value any) field.ErrorList {
		errs := validation.ValidateCustomResource(field.NewPath("value"), value, v)
		if rules != nil {
			more, _ := rules.Validate(context.Background(), field.NewPath("value"), s, value, nil, config.RuntimeCELCostBudget)
			errs = append(errs, more...)
		}
		return errs
	}
}

func schemaOf(g Gomega, file string) (kind string, s *structuralschema.Structural) {
	data, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	g.Expect(yaml.UnmarshalStrict(data, &crd)).To(Succeed())
	var internal apiextensions.JSONSchemaProps
	g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil)).To(Succeed())
	s, err = structuralschema.NewStructural(&internal)
	g.Expect(err).NotTo(HaveOccurred())
	return crd.Spec.Names.Kind, s
}

// TestWhatASchemaTakesTheManagerDecodes tries many values in every field of every kind. The manager's type must
// decode each value that the API server would store. Fields of the status are written only by the manager.
func TestWhatASchemaTakesTheManagerDecodes(t *testing.T) {
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	seen := map[reflect.Type]int{}
	for _, file := range files {
		kind, s := schemaOf(g, file)
		spec := s.Properties["spec"]
		specType, ok := fieldOf(scheme.KnownTypes(skeinv1.GroupVersion)[kind], "spec")
		g.Expect(ok).To(BeTrue(), kind)
		leaves(&spec, specType, kind+".spec", func(s *structuralschema.Structural, typ reflect.Type, path string) {
			seen[typ]++
			values := append([]any{}, numbers...)
			for _, text := range texts {
				values = append(values, text)
			}
			refusals := accepter(s)
			for _, value := range values {
				if len(refusals(value)) > 0 {
					continue
				}
				raw, err := json.Marshal(value)
				g.Expect(err).NotTo(HaveOccurred())
				if typ == reflect.TypeFor[resource.Quantity]() {
					g.Expect(len(raw)).To(BeNumerically("<", 70), "%s", path)
				}
				if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, reflect.New(typ).Interface()); err != nil {
					t.Errorf("%s: the schema takes %s, and %s does not: %v", path, raw, typ, err)
				}
			}
		})
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[metav1.Duration](), reflect.TypeFor[skeinv1.Timestamp](), reflect.TypeFor[resource.Quantity](), reflect.TypeFor[int32](), reflect.TypeFor[int64]()} {
		g.Expect(seen[typ]).NotTo(BeZero(), "no field of the type %s was looked at", typ)
	}
}

// TestRefusalsSayWhatToWrite checks the values that the messages name, and values that people get wrong.
func TestRefusalsSayWhatToWrite(t *testing.T) {
	g := NewWithT(t)
	schema := func(typ reflect.Type, already map[string]any) *structuralschema.Structural {
		narrow(already, typ)
		data, err := json.Marshal(already)
		g.Expect(err).NotTo(HaveOccurred())
		var props apiextensionsv1.JSONSchemaProps
		g.Expect(json.Unmarshal(data, &props)).To(Succeed())
		var internal apiextensions.JSONSchemaProps
		g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil)).To(Succeed())
		s, err := structuralschema.NewStructural(&internal)
		g.Expect(err).NotTo(HaveOccurred())
		return s
	}
	text := map[string]any{"type": "string"}
	ruled := map[string]any{"type": "string", "x-kubernetes-validations": []any{map[string]any{"rule": "duration(self) >= duration('1s')", "message": "at least 1s"}}}
	amount := map[string]any{"x-kubernetes-int-or-string": true, "anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}, "pattern": "x"}
	limits := schema(reflect.TypeFor[map[string]resource.Quantity](), map[string]any{"type": "object", "additionalProperties": map[string]any{
		"x-kubernetes-int-or-string": true, "anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}, "pattern": "x"}})
	listed := limits.AdditionalProperties.Structural
	for _, c := range []struct {
		schema  *structuralschema.Structural
		takes   []any
		refuses map[any]string
	}{
		{schema(reflect.TypeFor[metav1.Duration](), ruled), []any{"10s", "5m", "1h30m", "720h", (90 * time.Minute).String(), "1m0.5s"},
			map[any]string{"1d": durationMessage, "10 seconds": durationMessage, "-5s": durationMessage, "": durationMessage, "10ms": "at least 1s"}},
		{schema(reflect.TypeFor[skeinv1.Timestamp](), text), []any{"2027-01-31T09:00:00Z", "2027-01-31T09:00:00.25Z", "2027-01-31T09:00:00+02:00", "2028-02-29T00:00:00Z"},
			map[any]string{"2027-01-31": timeMessage, "2027-02-30T00:00:00Z": timeMessage, "2027-02-29T00:00:00Z": leapMessage, "2100-02-29T00:00:00Z": leapMessage}},
		{schema(reflect.TypeFor[*resource.Quantity](), amount), []any{"500Mi", "2", "0.5", int64(3), "1e3"},
			map[any]string{"500 MB": quantityMessage, "1e-999999999": quantityMessage, "1.2.3": quantityMessage, "": quantityMessage}},
		{listed, []any{"500Mi", "2", "0.5", int64(3), "1e3", "129e6", "1E", "2Ei", "1.5Gi", "+1"},
			map[any]string{"500 MB": listedMessage, "1e-999999999": listedMessage, "1E99999": listedMessage, "1e-9": listedMessage, "1.2.3": listedMessage, "": listedMessage, "-1": listedMessage, int64(-1): listedMessage, "lots": listedMessage}},
	} {
		refusals := accepter(c.schema)
		for _, value := range c.takes {
			g.Expect(refusals(value)).To(BeEmpty(), fmt.Sprint(value))
		}
		for value, message := range c.refuses {
			errs := refusals(value)
			g.Expect(errs).To(HaveLen(1), fmt.Sprint(value))
			g.Expect(errs[0].Detail).To(ContainSubstring(message), fmt.Sprint(value))
		}
	}
}
