//go:build linux && (amd64 || arm64)

// Package bytecode holds what package lib has, compiled for the engine, so that no sandbox compiles it. The engine trusts
// bytecode, so it must only come from here. A test compares it with what the engine makes of the sources.
package bytecode

import (
	"embed"
	"io/fs"
	"strings"
)

//go:generate go run ./generate

//go:embed *.qbc
var files embed.FS

// fileName returns the name of the file with the bytecode of a module or script.
func fileName(name string) string {
	return strings.NewReplacer("@", "", "/", "-", ":", "-").Replace(name) + ".qbc"
}

// Names of the scripts of package lib.
const (
	Definition = "skein:definition"
	Handler    = "skein:handler"
	HTTP       = "skein:http"
	Schemas    = "skein:schemas"
	URL        = "skein:url"
)

// Of returns the bytecode of a module of lib.Modules or of a script, or nil if there is none. A module that uses others has none: the
// engine can only compile it when it has what the module imports.
func Of(name string) []byte {
	code, err := fs.ReadFile(files, fileName(name))
	if err != nil {
		return nil
	}
	return code
}
