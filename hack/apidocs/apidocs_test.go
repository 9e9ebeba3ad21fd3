package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: knots.skein.dev}
spec:
  group: skein.dev
  scope: Namespaced
  names: {kind: Knot, plural: knots, shortNames: [kn]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: Knot ties. It has a | in it.
        properties:
          spec:
            type: object
            required: [ends]
            properties:
              ends:
                type: array
                maxItems: 2
                items:
                  type: object
                  properties:
                    colour: {type: string, enum: [red, blue], default: red}
                  x-kubernetes-validations:
                  - {rule: "true", message: "an end needs a colour: set it"}
`

func TestReferenceShowsFieldsRulesAndConstants(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"crds/knots.yaml":   crd,
		"api/conditions.go": "package x\n\n// Kinds of end.\nconst (\n\t// EndLoose is not tied.\n\tEndLoose = \"Loose\"\n\tEndTied = \"Tied\" // both of them\n\thidden = \"hidden\"\n)\n",
		"wire/types.go":     "package x\n\n// Tie is the body of POST ties.\ntype Tie struct {\n\t// At is when.\n\tAt int64 `json:\"at,omitempty\"`\n\thidden int\n}\n",
		"wire/more_test.go": "package x\n\ntype NotOnTheWire struct {\n\tA int `json:\"a\"`\n}\n",
	} {
		f := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := write(&out, filepath.Join(dir, "crds"), []string{filepath.Join(dir, "api", "conditions.go")}, filepath.Join(dir, "wire")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| [Knot](#knot) | kn | Knot ties. |",
		`It has a \| in it.`,
		"| `ends` | []object, required | (at most, in items: 2) |",
		"| `ends[].colour` | string | One of `red`, `blue`. Default `red`. |",
		"- `ends[]`: an end needs a colour: set it",
		"| `Loose` | Not tied. |",
		"| `Tied` | Both of them |",
		"### Tie\n\nThe body of POST ties.",
		"| `at` | integer, optional | When. |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing: %s\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "NotOnTheWire") || strings.Contains(out.String(), "hidden") {
		t.Errorf("shows what is not on the wire:\n%s", out.String())
	}
}

func TestReferenceNeedsSchemas(t *testing.T) {
	if err := write(&bytes.Buffer{}, t.TempDir(), nil, "."); err == nil || !strings.Contains(err.Error(), "make manifests") {
		t.Errorf("an empty folder was taken: %v", err)
	}
}
