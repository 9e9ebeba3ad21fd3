// Package sourceroot finds the repository's root folder, for tests and generators.
package sourceroot

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
)

// Dir returns SKEIN_ROOT, or else the folder above the working directory that has the module's go.mod. Tests run in the folder of their package, and are
// compiled without the paths of their sources. It panics when there is none.
var Dir = sync.OnceValue(func() string {
	if dir := os.Getenv("SKEIN_ROOT"); dir != "" {
		return dir
	}
	at, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(mod, []byte("module github.com/skein-dev/skein\n")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("no go.mod of Skein above " + at + ": set SKEIN_ROOT")
		}
	}
})
