// Command crds completes the schemas that controller-gen writes: they then refuse what the Go types cannot decode,
// with a message that says what to write. controller-gen describes a duration as any string and an int32 as any
// integer, so that the API server would store values that the manager cannot decode.
//
// It rewrites the files *.yaml in a folder in place.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func main() {
	dir := flag.String("dir", filepath.Join("config", "crd", "bases"), "folder of the CustomResourceDefinitions")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no *.yaml: generate the CustomResourceDefinitions first", dir)
	}
	scheme := runtime.NewScheme()
	if err := skeinv1.AddToScheme(scheme); err != nil {
		return err
	}
	for _, file := range files {
		if err := complete(file, scheme.KnownTypes(skeinv1.GroupVersion)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// complete rewrites one CustomResourceDefinition.
func complete(file string, types map[string]reflect.Type) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	spec := object(crd, "spec")
	kind, _ := object(spec, "names")["kind"].(string)
	t, ok := types[kind]
	if !ok {
		return fmt.Errorf("no Go type has the kind %q", kind)
	}
	versions, _ := spec["versions"].([]any)
	if len(versions) != 1 {
		return fmt.Errorf("it has %d versions, want one", len(versions))
	}
	version, _ := versions[0].(map[string]any)
	properties := object(object(version, "schema", "openAPIV3Schema"), "properties")
	// The API server owns everything that is neither spec nor status.
	for _, name := range []string{"spec", "status"} {
		f, ok := fieldOf(t, name)
		if schema := object(properties, name); ok && schema != nil {
			narrow(schema, f)
		}
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), out...), 0o644)
}

// object returns the object at a path of keys, or nil when there is none.
func object(o map[string]any, path ...string) map[string]any {
	for _, key := range path {
		o, _ = o[key].(map[string]any)
	}
	return o
}
