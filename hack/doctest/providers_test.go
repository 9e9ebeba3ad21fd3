package doctest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
)

// Each provider of models that the API takes is registered, and the other way round. Each has its row in the guide; those that are
// servers also have a sample, and a module for agents in code. "Where a change goes" in docs/architecture.md lists these places.
func TestEachModelProviderHasItsPlaces(t *testing.T) {
	taken := enumOf(t, "Model.spec.provider")
	if registered := providers.Names(); !slices.Equal(taken, registered) {
		t.Errorf("the CRD of Model takes the providers %q, but internal/model/providers registers %q", taken, registered)
	}
	samples := ""
	files, err := filepath.Glob(filepath.Join(root, "config/samples/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for _, file := range files {
		samples += read(t, file)
	}
	guide, modules, types := read(t, root, "docs/models.md"), read(t, root, "docs/code-execution.md"), read(t, root, "internal/sandbox/types/handlers.d.ts")
	for _, name := range taken {
		if !strings.Contains(guide, "\n| `"+name+"` |") {
			t.Errorf("the table of docs/models.md has no row for the provider %s", name)
		}
		if name == string(skeinv1.ProviderScripted) {
			continue // it has neither a server nor an SDK
		}
		if name != string(skeinv1.ProviderOpenAI) && !strings.Contains(samples, "provider: "+name+"\n") {
			t.Errorf("config/samples has no Model of the provider %s", name)
		}
		module := "@ai-sdk/" + name
		if !lib.Has(module) {
			t.Errorf("internal/sandbox/js/lib/modules.go lacks the module %s", module)
		}
		if !strings.Contains(types, "declare module '"+module+"'") {
			t.Errorf("handlers.d.ts does not declare the module %s", module)
		}
		if !strings.Contains(modules, "`"+module+"`") {
			t.Errorf("docs/code-execution.md does not list the module %s", module)
		}
	}
}

// enumOf returns the values that the CRDs allow for a property, such as Model.spec.provider, sorted.
func enumOf(t *testing.T, property string) []string {
	t.Helper()
	var values []string
	eachSchema(t, func(path string, schema apiextensionsv1.JSONSchemaProps) {
		if path != property {
			return
		}
		for _, v := range schema.Enum {
			values = append(values, strings.Trim(string(v.Raw), `"`))
		}
	})
	if len(values) == 0 {
		t.Fatalf("the CRDs have no enum %s", property)
	}
	slices.Sort(values)
	return values
}

// read returns the text of a file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
