// Package harness drives Skein from outside, as its users do: a dev cluster, the manager as a process or
// as a Deployment, kubectl, and the runtime API. The conformance, e2e, chaos and bench tests share it.
package harness

import (
	"os"
	"path/filepath"
	"runtime"
)

// Root is the repository's root folder.
func Root() string {
	if dir := os.Getenv("SKEIN_ROOT"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Bin is the path of a program that `make build` makes.
func Bin(name string) string { return filepath.Join(Root(), "bin", name) }
