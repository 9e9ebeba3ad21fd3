// Package build makes manifests of a folder of TypeScript. Each definition becomes an object whose code is one module: the
// file, with the files and the npm packages that it imports.
package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// ConfigFile is the optional file with settings.
const ConfigFile = "skein.yaml"

// Config is what skein.yaml says.
type Config struct {
	// The folders, relative to that of the file.
	Tools     string `json:"tools,omitempty"`
	Effects   string `json:"effects,omitempty"`
	Endpoints string `json:"endpoints,omitempty"`
	Agents    string `json:"agents,omitempty"`
	Objects   string `json:"objects,omitempty"`
	// Minify makes the code smaller, and hard to read.
	Minify bool `json:"minify,omitempty"`
}

// readConfig returns the settings in the ConfigFile of a folder, with defaults for what the file leaves out, and when there is none. It
// checks that the folders which the file names exist.
func readConfig(dir string) (Config, error) {
	c := Config{}
	text, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, fmt.Errorf("%s: %s; it may have tools, effects, endpoints, agents and objects, which name folders, and minify: true",
			ConfigFile, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "))
	}
	for _, f := range []struct {
		name string
		to   *string
	}{{"tools", &c.Tools}, {"effects", &c.Effects}, {"endpoints", &c.Endpoints}, {"agents", &c.Agents}, {"objects", &c.Objects}} {
		if *f.to == "" {
			*f.to = f.name
			continue
		}
		if !filepath.IsLocal(*f.to) {
			return c, fmt.Errorf("%s: %s: %s is not a folder below that of the file", ConfigFile, f.name, *f.to)
		}
		if info, err := os.Stat(filepath.Join(dir, *f.to)); err != nil || !info.IsDir() {
			return c, fmt.Errorf("%s: %s: there is no folder %s", ConfigFile, f.name, *f.to)
		}
	}
	return c, nil
}

// source is a file whose default export is a definition.
type source struct {
	file string // relative to the project, with slashes
	kind string
	name string
	path string // of an endpoint
}

// extensions of files with code.
var extensions = []string{".ts", ".tsx", ".mts", ".js", ".jsx", ".mjs"}

// sources returns the definitions that the folders have by their places, in order.
func (c Config) sources(dir string) ([]source, error) {
	var all []source
	for _, f := range []struct {
		folder, kind string
		deep         bool
	}{{c.Tools, "Tool", false}, {c.Effects, "Effect", false}, {c.Endpoints, "ThreadEndpoint", true}, {c.Agents, "Agent", false}} {
		files, err := codeFiles(dir, f.folder, f.deep)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			s := source{file: file, kind: f.kind}
			inner := strings.TrimSuffix(strings.TrimPrefix(file, filepath.ToSlash(f.folder)+"/"), filepath.Ext(file))
			inner = strings.TrimSuffix(inner, "/index")
			if f.deep {
				s.path, inner = endpointPath(inner)
			}
			s.name = objectName(inner)
			if wrong := validation.IsDNS1123Subdomain(s.name); len(wrong) > 0 {
				return nil, fmt.Errorf("%s: %q is not a valid name of an object: rename the file to letters, digits and dashes", file, s.name)
			}
			if i := slices.IndexFunc(all, func(o source) bool { return o.kind == s.kind && o.name == s.name }); i >= 0 {
				return nil, fmt.Errorf("%s and %s would both be %s %s: rename one of them", all[i].file, file, s.kind, s.name)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// codeFiles returns the files of a folder that stand for definitions: those with code, and index files of the folders in
// it, or with deep all below it. Tests, declarations and what begins with "_" or "." are none.
func codeFiles(dir, folder string, deep bool) ([]string, error) {
	var files []string
	root := filepath.Join(dir, folder)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == root && errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == "." {
			return err
		}
		base := d.Name()
		hidden := strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".") || base == "node_modules"
		if d.IsDir() {
			if hidden {
				return fs.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(base)
		stem := strings.TrimSuffix(base, ext)
		inner := filepath.Ext(stem)
		if hidden || !slices.Contains(extensions, ext) || inner == ".d" || inner == ".test" || inner == ".spec" {
			return nil
		}
		depth := strings.Count(filepath.ToSlash(rel), "/")
		if !deep && depth > 0 && (depth > 1 || stem != "index") {
			return nil // a part of a definition
		}
		if !deep && depth == 0 && stem == "index" {
			return nil // it has no name
		}
		files = append(files, filepath.ToSlash(filepath.Join(folder, rel)))
		return nil
	})
	slices.Sort(files)
	return files, err
}

// endpointPath returns the path of an endpoint by that of its file: orders/[region] is /orders/[region], and
// files/[...path] is /files/[*].
func endpointPath(inner string) (path, name string) {
	if inner == "index" {
		return "/", "root"
	}
	segments := strings.Split(inner, "/")
	var names []string
	for i, s := range segments {
		if strings.HasPrefix(s, "[...") && strings.HasSuffix(s, "]") {
			segments[i] = "[*]"
		}
		if n := strings.Trim(s, "[].*"); n != "" {
			names = append(names, n)
		}
	}
	return "/" + strings.Join(segments, "/"), strings.Join(names, "-")
}

// objectName returns the name of an object by that of a file: wordCount and word_count become word-count.
func objectName(stem string) string {
	var b strings.Builder
	for i, r := range stem {
		switch {
		case r >= 'A' && r <= 'Z':
			if i > 0 && b.Len() > 0 && !strings.HasSuffix(b.String(), "-") && !upper(stem[i-1]) {
				b.WriteByte('-')
			}
			b.WriteRune(r - 'A' + 'a')
		case r == '_' || r == ' ':
			b.WriteByte('-')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func upper(c byte) bool { return c >= 'A' && c <= 'Z' }
