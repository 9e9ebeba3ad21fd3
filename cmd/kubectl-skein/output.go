package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// The values of --output.
const (
	outputJSON = "json"
	outputYAML = "yaml"
	outputWide = "wide"
	outputName = "name"
)

// outputFormats are those of commands that list or show objects.
var outputFormats = []string{outputJSON, outputYAML, outputWide, outputName}

// outputFlag adds --output to a command that lists or shows objects.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "Output format: json, yaml, wide or name.")
}

// checkListOutput checks --output of a command that lists or shows objects.
func checkListOutput(format string) error {
	if format == "" || slices.Contains(outputFormats, format) {
		return nil
	}
	return fmt.Errorf("--output=%s: give json, yaml, wide or name", format)
}

// checkOutput checks --output of a command that prints one result, which has no name.
func checkOutput(format string) error {
	switch format {
	case "", outputJSON, outputYAML:
		return nil
	}
	return fmt.Errorf("--output=%s: give json or yaml", format)
}

// structured prints what --output asks for: v as JSON or YAML, or the names of what is in it, one a line. done is false
// for the formats that are text for people.
func (p *plugin) structured(output string, v any, names []string) (done bool, err error) {
	switch output {
	case outputJSON, outputYAML:
		return true, encode(p.Out, output, v)
	case outputName:
		for _, name := range names {
			if _, err := fmt.Fprintln(p.Out, safe(name)); err != nil {
				return true, err
			}
		}
		return true, nil
	}
	return false, nil
}

// namesOf returns the names of the items of a list.
func namesOf[T any](items []T, name func(*T) string) []string {
	names := make([]string, len(items))
	for i := range items {
		names[i] = name(&items[i])
	}
	return names
}

// wideRow appends the columns that only the format wide has to a row of a table.
func wideRow(output, row string, more ...any) string {
	if output != outputWide {
		return row
	}
	for _, m := range more {
		row += "\t" + orDash(safe(fmt.Sprint(m)))
	}
	return row
}

// objectList returns objects as the List that the API server would give.
func objectList(kind string, items any) map[string]any {
	return map[string]any{"apiVersion": skeinv1.GroupVersion.String(), "kind": kind, "items": items}
}

func encode(w io.Writer, format string, v any) error {
	if format == outputYAML {
		data, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printValue prints a value, which has no columns: as JSON, as YAML, or the names of what is in it.
func (p *plugin) printValue(output string, v any, names []string) error {
	if output == "" || output == outputWide {
		output = outputJSON
	}
	_, err := p.structured(output, v, names)
	return err
}

// each returns a function that prints one of many values as they come: as JSON on a line, as a document of YAML, or its name.
func (p *plugin) each(output string) func(v any, name string) error {
	lines := json.NewEncoder(p.Out)
	lines.SetEscapeHTML(false)
	return func(v any, name string) error {
		switch output {
		case outputYAML:
			if _, err := fmt.Fprintln(p.Out, "---"); err != nil {
				return err
			}
			return encode(p.Out, outputYAML, v)
		case outputName:
			_, err := fmt.Fprintln(p.Out, safe(name))
			return err
		}
		return lines.Encode(v)
	}
}

// formatsOf returns the formats that the usage of a flag --output names.
func formatsOf(usage string) (formats []string) {
	_, list, ok := strings.Cut(usage, "ormat: ")
	if !ok {
		list = usage
	}
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' || r == '.' }) {
		if slices.Contains([]string{outputJSON, outputYAML, outputWide, outputName, "text", "mermaid", "dot"}, word) {
			formats = append(formats, word)
		}
	}
	return formats
}
