// Package v8 is the child of a sandbox whose engine is V8. A Deno process without any permission runs the code. A
// keeper, which is this program, stands between Deno and the supervisor. It uses the same frames as the child of
// package js.
//
// The keeper compiles TypeScript, starts Deno locked down (package lockdown), enforces the limits on memory and time,
// which V8 does not do by itself, ends Deno when told to, and maps positions. It is locked down itself before it
// reads anything of the code. Deno runs the harness: our own JavaScript, which removes every global that is not part
// of the language, keeps private copies of the built-ins that it needs, and executes the request.
package v8

import (
	"embed"
	"io/fs"
	"strings"
	"sync"
)

//go:embed harness/*.js
var harnessFiles embed.FS

// harness is the program that Deno runs: the files in the order of their names, as one module.
var harness = sync.OnceValue(func() string {
	names, err := fs.Glob(harnessFiles, "harness/*.js")
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	for _, name := range names {
		b, err := harnessFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		out.Write(b)
	}
	return out.String()
})
