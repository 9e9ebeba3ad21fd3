// Package harness drives Skein from outside, as its users do: a dev cluster, the manager as a process or
// as a Deployment, kubectl, and the runtime API. The conformance, e2e, chaos and bench tests share it.
package harness

import (
	"path/filepath"

	"github.com/skein-dev/skein/internal/sourceroot"
)

// Root is the repository's root folder.
func Root() string { return sourceroot.Dir() }

// Bin is the path of a program that `make build` makes.
func Bin(name string) string { return filepath.Join(Root(), "bin", name) }
