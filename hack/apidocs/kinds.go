package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kind is a custom resource as its definition serves it.
type kind struct {
	name, short, about string
	schema             apiextensionsv1.JSONSchemaProps
}

// readKinds returns every CustomResourceDefinition of a folder, by name.
func readKinds(dir string) ([]kind, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no CustomResourceDefinition: run `make manifests`", dir)
	}
	var kinds []kind
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(b, &crd); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		for _, v := range crd.Spec.Versions {
			k := kind{name: crd.Spec.Names.Kind, short: strings.Join(crd.Spec.Names.ShortNames, ", ")}
			if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
				k.schema = *v.Schema.OpenAPIV3Schema
				k.about = k.schema.Description
			}
			kinds = append(kinds, k)
		}
	}
	slices.SortFunc(kinds, func(a, b kind) int { return strings.Compare(a.name, b.name) })
	return kinds, nil
}

func (k *kind) write(out *bytes.Buffer) {
	fmt.Fprintf(out, "## %s\n\n%s\n\n", k.name, cell(k.about))
	for _, part := range []string{"spec", "status"} {
		schema, ok := k.schema.Properties[part]
		if !ok {
			continue
		}
		fmt.Fprintf(out, "### %s.%s\n\n| field | type | what it is |\n|---|---|---|\n", k.name, part)
		fields(out, "", &schema)
		out.WriteByte('\n')
		if rules := collectRules("", &schema); len(rules) > 0 {
			out.WriteString("Refused at admission:\n\n")
			for _, r := range rules {
				fmt.Fprintf(out, "- %s\n", r)
			}
			out.WriteByte('\n')
		}
	}
}

// opaque lists fields whose shape Kubernetes documents, or that have none. The fields inside them are not listed.
var opaque = []string{"conditions", "resources", "tolerations", "nodeSelector"}

// fields writes a row for each field, and for nested ones by their path.
func fields(out *bytes.Buffer, path string, s *apiextensionsv1.JSONSchemaProps) {
	for _, name := range sortedFields(s) {
		p := s.Properties[name]
		at := name
		if path != "" {
			at = path + "." + name
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", code(at), typeOf(&p, slices.Contains(s.Required, name)), about(&p))
		if slices.Contains(opaque, name) {
			continue
		}
		if p.Items != nil && p.Items.Schema != nil {
			fields(out, at+"[]", p.Items.Schema)
		} else {
			fields(out, at, &p)
		}
	}
}

// sortedFields returns the names of the fields, required ones first.
func sortedFields(s *apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for n := range s.Properties {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if ra, rb := slices.Contains(s.Required, a), slices.Contains(s.Required, b); ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

func typeOf(p *apiextensionsv1.JSONSchemaProps, required bool) string {
	t := p.Type
	switch {
	case p.XIntOrString:
		t = "quantity"
	case t == "array" && p.Items != nil && p.Items.Schema != nil:
		t = "[]" + p.Items.Schema.Type
	case p.Format == "date-time":
		t = "time"
	case t == "":
		t = "any"
	}
	if required {
		t += ", required"
	}
	return t
}

// about returns the description and the limits that the schema sets.
func about(p *apiextensionsv1.JSONSchemaProps) string {
	parts := []string{cell(p.Description)}
	if len(p.Enum) > 0 {
		var values []string
		for _, e := range p.Enum {
			values = append(values, code(strings.Trim(string(e.Raw), `"`)))
		}
		parts = append(parts, "One of "+strings.Join(values, ", ")+".")
	}
	if p.Default != nil {
		parts = append(parts, "Default "+code(strings.Trim(string(p.Default.Raw), `"`))+".")
	}
	if p.Pattern != "" {
		parts = append(parts, "Matches "+code(p.Pattern)+".")
	}
	var bounds []string
	add := func(what string, n *int64) {
		if n != nil {
			bounds = append(bounds, what+" "+strconv.FormatInt(*n, 10))
		}
	}
	if p.Minimum != nil {
		bounds = append(bounds, "from "+strconv.FormatFloat(*p.Minimum, 'f', -1, 64))
	}
	if p.Maximum != nil {
		bounds = append(bounds, "to "+strconv.FormatFloat(*p.Maximum, 'f', -1, 64))
	}
	add("at most, in characters:", p.MaxLength)
	add("at least, in items:", p.MinItems)
	add("at most, in items:", p.MaxItems)
	if len(bounds) > 0 {
		parts = append(parts, "("+strings.Join(bounds, ", ")+")")
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// collectRules returns the messages of the CEL rules, with the path that they apply to.
func collectRules(path string, s *apiextensionsv1.JSONSchemaProps) []string {
	var rules []string
	for _, v := range s.XValidations {
		at := ""
		if path != "" {
			at = code(path) + ": "
		}
		rules = append(rules, at+cell(v.Message))
	}
	for _, name := range sortedFields(s) {
		p := s.Properties[name]
		at := name
		if path != "" {
			at = path + "." + name
		}
		if p.Items != nil && p.Items.Schema != nil {
			rules = append(rules, collectRules(at+"[]", p.Items.Schema)...)
		}
		rules = append(rules, collectRules(at, &p)...)
	}
	return rules
}
