//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"
	"path"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// internal is the prefix of our own modules, which code cannot import.
const internal = "skein:"

// loader knows the modules of one isolate. Nothing is ever fetched.
type loader struct {
	sources map[string]qjs.Source // by name
	bare    map[string]func() (qjs.Source, error)
	// failed is the specifier that could not be resolved, for the error's sake.
	failed string
}

// extensions that an import may leave out, in the order tried.
var extensions = []string{"", ".ts", ".tsx", ".mts", ".js", ".mjs", ".jsx", ".json", "/index.ts", "/index.js"}

// Resolve implements qjs.Loader.
func (l *loader) Resolve(base, specifier string) (string, error) {
	if strings.HasPrefix(base, internal) {
		return specifier, nil
	}
	if !isRelative(specifier) {
		if _, ok := l.bare[specifier]; ok {
			return specifier, nil
		}
		l.failed = specifier
		return "", fmt.Errorf("cannot find module %q (imported by %s): %s", specifier, base, l.known())
	}
	if name, ok := l.find(path.Join(path.Dir(base), specifier)); ok {
		return name, nil
	}
	l.failed = specifier
	return "", fmt.Errorf("cannot find module %q (imported by %s): give it among the modules", specifier, base)
}

// find gives the name of the source that a path means. Ours are not to be had by any path.
func (l *loader) find(name string) (string, bool) {
	if strings.HasPrefix(name, internal) {
		return "", false
	}
	for _, ext := range extensions {
		if _, ok := l.sources[name+ext]; ok {
			return name + ext, true
		}
	}
	// TypeScript asks for the name of the output; the source is what we have.
	for js, ts := range map[string]string{".js": ".ts", ".mjs": ".mts", ".jsx": ".tsx"} {
		if stem, ok := strings.CutSuffix(name, js); ok {
			if _, ok := l.sources[stem+ts]; ok {
				return stem + ts, true
			}
		}
	}
	return "", false
}

// known says what could be imported instead.
func (l *loader) known() string {
	if len(l.bare) == 0 {
		return "nothing can be imported by name here"
	}
	names := make([]string, 0, len(l.bare))
	for name := range l.bare {
		names = append(names, name)
	}
	if len(names) > 10 {
		return "it is not among the imports"
	}
	return "only " + strings.Join(sorted(names), ", ") + " can be imported by name here"
}

// Load implements qjs.Loader.
func (l *loader) Load(name string) (qjs.Source, error) {
	if src, ok := l.sources[name]; ok {
		return src, nil
	}
	if make, ok := l.bare[name]; ok {
		return make()
	}
	l.failed = name
	return qjs.Source{}, fmt.Errorf("cannot find module %q", name)
}

func isRelative(specifier string) bool {
	return strings.HasPrefix(specifier, "./") || strings.HasPrefix(specifier, "../") || specifier == "." || specifier == ".."
}
