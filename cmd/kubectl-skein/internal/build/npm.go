package build

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// packageName returns the name of the package that a specifier is about: @scope/name/part is of @scope/name.
func packageName(specifier string) string {
	parts := strings.SplitN(specifier, "/", 3)
	if strings.HasPrefix(specifier, "@") && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// declared reports whether package.json lists a package that is missing from node_modules.
func declared(dir, name string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil || installed(dir, name) {
		return false
	}
	var p struct{ Dependencies, DevDependencies, OptionalDependencies, PeerDependencies map[string]any }
	if json.Unmarshal(text, &p) != nil {
		return false
	}
	for _, list := range []map[string]any{p.Dependencies, p.DevDependencies, p.OptionalDependencies, p.PeerDependencies} {
		if _, ok := list[name]; ok {
			return true
		}
	}
	return false
}

// installed reports whether a file in a folder finds a package.
func installed(dir, name string) bool { return inModules(dir, filepath.FromSlash(name)) != "" }

// inModules returns the path below the nearest node_modules that has it, or "".
func inModules(dir, path string) string {
	for {
		full := filepath.Join(dir, "node_modules", path)
		if _, err := os.Stat(full); err == nil {
			return full
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}
