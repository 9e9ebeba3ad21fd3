//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"
	"path"
	"strings"

	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// internal is the prefix of our own modules, which code cannot import.
const internal = "skein:"

// loader resolves the modules of one isolate. It never fetches anything.
type loader struct {
	sources map[string]qjs.Source // by name
	bare    map[string]func() (qjs.Source, error)
	// failed is the specifier that could not be resolved, for the error.
	failed string
}

// libraries returns what definition code may import by name, each made when it is imported.
func libraries() map[string]func() (qjs.Source, error) {
	all := make(map[string]func() (qjs.Source, error), len(lib.Modules))
	for _, m := range lib.Modules {
		all[m.Name] = func() (qjs.Source, error) {
			if code := bytecode.Of(m.Name); code != nil {
				return qjs.Source{Bytecode: code}, nil
			}
			return qjs.Source{Code: m.Code()}, nil
		}
	}
	return all
}

// extensions are what an import may omit, in the order in which they are tried.
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

// find returns the name of the source that a path means. No path leads to our own modules.
func (l *loader) find(name string) (string, bool) {
	if strings.HasPrefix(name, internal) {
		return "", false
	}
	for _, ext := range extensions {
		if _, ok := l.sources[name+ext]; ok {
			return name + ext, true
		}
	}
	// TypeScript code imports the name of the output file, but the loader has the source file.
	for js, ts := range map[string]string{".js": ".ts", ".mjs": ".mts", ".jsx": ".tsx"} {
		if stem, ok := strings.CutSuffix(name, js); ok {
			if _, ok := l.sources[stem+ts]; ok {
				return stem + ts, true
			}
		}
	}
	return "", false
}

// known returns a text that says what could be imported instead.
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
