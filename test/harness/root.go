// Package harness drives Skein from outside, as its users do: a dev cluster, the manager as a process or
// as a Deployment, kubectl, and the runtime API. The conformance, e2e, chaos and bench tests share it.
package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
)

// Root is the repository's root folder: SKEIN_ROOT, or else the folder above the working directory that has the module's go.mod. Tests run in the
// folder of their package, and are compiled without the paths of their sources.
var Root = sync.OnceValue(func() string {
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

// Bin is the path of a program that `make build` makes.
func Bin(name string) string { return filepath.Join(Root(), "bin", name) }
