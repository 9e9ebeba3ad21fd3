package doctest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// eachSchema calls look with each schema of the CRDs and the path of its property, such as Tool.spec.http.url.
func eachSchema(t *testing.T, look func(path string, schema apiextensionsv1.JSONSchemaProps)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d CRDs: %v", len(files), err)
	}
	var walk func(path string, s apiextensionsv1.JSONSchemaProps)
	walk = func(path string, s apiextensionsv1.JSONSchemaProps) {
		look(path, s)
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			walk(path+"."+name, s.Properties[name])
		}
		if s.Items != nil && s.Items.Schema != nil {
			walk(path+"[]", *s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(path+".*", *s.AdditionalProperties.Schema)
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, v := range crd.Spec.Versions {
			walk(crd.Spec.Names.Kind, *v.Schema.OpenAPIV3Schema)
		}
	}
}

// inStatus reports whether a property belongs to the status of its object.
func inStatus(path string) bool {
	_, below, _ := strings.Cut(path, ".")
	return below == "status" || strings.HasPrefix(below, "status.")
}

// The API server refuses a value for a bare pattern with "should match '^…$'", which does not say what to write. CEL
// rules have a message. Skein itself writes the status.
func TestPatternsOfTheCRDsHaveMessages(t *testing.T) {
	rules := 0
	eachSchema(t, func(path string, s apiextensionsv1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
			rules++
			if rule.Message == "" && rule.MessageExpression == "" {
				t.Errorf("%s: the rule %s has no message", path, rule.Rule)
			}
		}
		if s.Pattern == "" || len(s.XValidations) > 0 || inStatus(path) {
			return
		}
		t.Errorf("%s: a bare pattern %s: write it as a rule of CEL with a message", path, s.Pattern)
	})
	if rules < 50 {
		t.Errorf("only %d rules were found", rules)
	}
}

// rowID matches the id of a row of the specification, and the word SPEC.
var rowID = regexp.MustCompile(`\bSPEC\b|\b(THR|IDS|MSG|FIL|KVS|STA|ENV|AGT|RUN|TOL|HOK|END|EFF|EVT|COD|SUB|REL|LOG|K8S|CON)-[0-9]{2}\b`)

// kubectl explain and the reference are for people who do not have the specification.
func TestDescriptionsCiteNoRows(t *testing.T) {
	eachSchema(t, func(path string, s apiextensionsv1.JSONSchemaProps) {
		if id := rowID.FindString(s.Description); id != "" {
			t.Errorf("%s: its description has %q", path, id)
		}
	})
	reference, err := os.ReadFile(filepath.Join(root, "docs/reference/api.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(reference), "\n") {
		if id := rowID.FindString(line); id != "" {
			t.Errorf("docs/reference/api.md:%d has %q", i+1, id)
		}
	}
}
