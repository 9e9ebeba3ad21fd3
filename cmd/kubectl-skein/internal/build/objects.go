package build

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

// group is the API group of Skein's objects, with its version.
const group = "skein.dev/v1alpha1"

// Object is an object to apply.
type Object struct {
	// Fields are what a manifest has.
	Fields map[string]any
	// From is the file that it is made of, relative to the project.
	From string
}

// Kind returns the kind of the object.
func (o Object) Kind() string { return text(o.Fields, "kind") }

// Name returns the name of the object.
func (o Object) Name() string { return text(o.Fields, "metadata", "name") }

// Namespace returns the namespace that the manifest names, or "".
func (o Object) Namespace() string { return text(o.Fields, "metadata", "namespace") }

// APIVersion returns the group and version of the object.
func (o Object) APIVersion() string { return text(o.Fields, "apiVersion") }

// String returns KIND/NAME, the kind in small letters.
func (o Object) String() string { return strings.ToLower(o.Kind()) + "/" + o.Name() }

// slot is a place in an object where the code of a file belongs.
type slot struct {
	object int
	code   map[string]any // gets the code
	owner  map[string]any // has the code
	file   string         // relative to the project
	use    inspect.Use
	label  string // part of the name of a ConfigMap
	path   string // of an endpoint that has it by the place of its file
}

// readObjects returns the objects of the YAML files of a folder, and the places of code in them.
func readObjects(dir, folder string) ([]Object, []slot, error) {
	var objects []Object
	var slots []slot
	root := filepath.Join(dir, folder)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", rel, err)
			}
			var fields map[string]any
			if err := yaml.UnmarshalStrict(doc, &fields); err != nil {
				return fmt.Errorf("%s: %w", rel, err)
			}
			if fields == nil {
				continue
			}
			o := Object{Fields: fields, From: rel}
			if o.Kind() == "" || o.APIVersion() == "" || len(validation.IsDNS1123Subdomain(o.Name())) > 0 {
				return fmt.Errorf("%s: an object needs apiVersion, kind and metadata.name", rel)
			}
			objects = append(objects, o)
			if strings.HasPrefix(o.APIVersion(), "skein.dev/") {
				found, err := findSlots(dir, o, len(objects)-1)
				if err != nil {
					return err
				}
				slots = append(slots, found...)
			}
		}
	})
	return objects, slots, err
}

// findSlots returns the places of an object that have code: {file: …}.
func findSlots(dir string, o Object, at int) ([]slot, error) {
	var slots []slot
	var walk func(owner map[string]any, in string) error
	var each func(v any, in string) error
	each = func(v any, in string) error {
		switch v := v.(type) {
		case map[string]any:
			return walk(v, in)
		case []any:
			for _, item := range v {
				if err := each(item, in); err != nil {
					return err
				}
			}
		}
		return nil
	}
	walk = func(owner map[string]any, in string) error {
		code, _ := owner["code"].(map[string]any)
		if named, ok := code["file"]; ok {
			file, isText := named.(string)
			if !isText || file == "" || len(code) > 1 {
				return fmt.Errorf("%s: %s: write code: {file: PATH} without other fields, or inline code without file", o.From, o)
			}
			file = filepath.ToSlash(filepath.Join(filepath.Dir(o.From), filepath.FromSlash(file)))
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				return fmt.Errorf("%s: %s: there is no file %s; a path is relative to the folder of the manifest", o.From, o, file)
			}
			slots = append(slots, slot{object: at, code: code, owner: owner, file: file, use: useOf(o.Kind(), in), label: in})
		}
		for _, key := range sortedKeys(owner) {
			if key == "code" {
				continue
			}
			if err := each(owner[key], key); err != nil {
				return err
			}
		}
		return nil
	}
	err := walk(o.Fields, "")
	return slots, err
}

// useOf returns what code of an object is used for. field is the name of the field that has the code, such as hooks or handler. In any
// other field, the kind of the object decides.
func useOf(kind, field string) inspect.Use {
	switch {
	case field == "hooks":
		return inspect.Hook
	case field == "handler":
		return inspect.Handler
	case kind == "Effect":
		return inspect.Effect
	case kind == "ThreadEndpoint":
		return inspect.Endpoint
	}
	return inspect.Tool
}

// byConvention returns the object of a file whose place says what it is.
func byConvention(s source, at int) (Object, slot) {
	spec, code := map[string]any{}, map[string]any{}
	o := Object{From: s.file, Fields: map[string]any{"apiVersion": group, "kind": s.kind, "metadata": map[string]any{"name": s.name}, "spec": spec}}
	place := slot{object: at, code: code, owner: spec, file: s.file, use: useOf(s.kind, ""), path: s.path}
	if s.kind == "Agent" {
		handler := map[string]any{}
		spec["sideA"] = map[string]any{"handler": handler}
		place.owner, place.use, place.label = handler, inspect.Handler, "handler"
	}
	place.owner["code"] = code
	return o, place
}

// methods that an endpoint may have.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// declare fills in what a manifest does not say and the code does.
func (s slot) declare(d inspect.Declared) error {
	missing := func(field string) bool { return s.owner[field] == nil }
	switch s.use.Kind {
	case "tool", "effect":
		if t := strings.TrimSpace(d.Texts["description"]); missing("description") && t != "" {
			s.owner["description"] = t
		}
		if s.use.Kind == "tool" && missing("description") {
			return fmt.Errorf("%s: the tool has no description for the model: give defineTool one as a plain text, or write description into a manifest", s.file)
		}
	case "hook":
		if missing("hook") && d.Texts["hook"] != "" {
			s.owner["hook"] = d.Texts["hook"]
		}
		if missing("hook") {
			return fmt.Errorf("%s: the source does not show which hook it is: write hook: NAME beside its code in the manifest", s.file)
		}
	case "endpoint":
		if missing("path") && s.path != "" {
			s.owner["path"] = s.path
		}
		if missing("path") {
			return fmt.Errorf("%s: the endpoint has no path: write path into the manifest", s.file)
		}
		if missing("methods") {
			var has []any
			for _, m := range methods {
				if slices.Contains(d.Keys, m) {
					has = append(has, m)
				}
			}
			if len(has) > 0 {
				s.owner["methods"] = has
			}
		}
	}
	return nil
}

// text returns a text in nested fields.
func text(fields map[string]any, path ...string) string {
	for _, key := range path[:len(path)-1] {
		fields, _ = fields[key].(map[string]any)
	}
	t, _ := fields[path[len(path)-1]].(string)
	return t
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
