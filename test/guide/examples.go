package guide

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Example is code in TypeScript that the guide or the samples show.
type Example struct {
	// From is where it is, such as docs/tools.md:9.
	From string
	Code string
}

// Examples returns all TypeScript of the guide and of config/samples: blocks of it, and the inline code of manifests.
func Examples(root string) ([]Example, error) {
	pages, err := Pages(root)
	if err != nil {
		return nil, err
	}
	var examples []Example
	for _, page := range pages {
		blocks, err := Blocks(root, page)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			switch b.Language {
			case "ts", "typescript", "js", "javascript":
				examples = append(examples, Example{From: b.String(), Code: b.Text})
			case "yaml":
				found, err := inlineCode(b.String(), b.Text)
				if err != nil {
					return nil, err
				}
				examples = append(examples, found...)
			}
		}
	}
	samples, err := filepath.Glob(filepath.Join(root, "config", "samples", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range samples {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found, err := inlineCode("config/samples/"+filepath.Base(path), string(text))
		if err != nil {
			return nil, err
		}
		examples = append(examples, found...)
	}
	return examples, nil
}

// inlineCode returns the code of manifests: the text "inline" of each object that is called "code".
func inlineCode(from, manifests string) ([]Example, error) {
	var examples []Example
	for doc := range strings.SplitSeq(manifests, "\n---\n") {
		var object any
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		codeIn(object, func(code string) { examples = append(examples, Example{From: from, Code: code}) })
	}
	return examples, nil
}

func codeIn(node any, found func(string)) {
	switch node := node.(type) {
	case map[string]any:
		if code, ok := node["code"].(map[string]any); ok {
			if text, ok := code["inline"].(string); ok {
				found(text)
			}
		}
		keys := make([]string, 0, len(node))
		for key := range node {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			codeIn(node[key], found)
		}
	case []any:
		for _, item := range node {
			codeIn(item, found)
		}
	}
}
