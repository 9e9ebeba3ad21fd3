//go:build linux && (amd64 || arm64)

package v8

import (
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/stacks"
)

// internal is the prefix of the modules that the keeper provides to the harness.
const internal = "skein:"

// compileModules compiles the modules of a run in place, and returns a mapper for their positions.
func compileModules(open *protocol.Open) (*stacks.Mapper, *sandbox.Error) {
	compiled := map[string]sandbox.Module{}
	for i, m := range open.Modules {
		module, err := compile.Module(m)
		if err != nil {
			if m.Name != open.Main {
				err.Specifier = "./" + m.Name
			}
			return nil, err
		}
		compiled[m.Name] = module
		open.Modules[i] = protocol.Module{Name: m.Name, Form: protocol.FormCompiled, Source: module.Code}
	}
	return stacks.New(compiled), nil
}

// addLibraries adds the modules that definition code may import, as far as a module may name them, and the script
// that makes its state.
func addLibraries(open *protocol.Open) {
	sources := make([]string, 0, len(open.Modules))
	for _, m := range open.Modules {
		sources = append(sources, m.Source)
	}
	open.Modules = append(open.Modules, protocol.Module{Name: internal + "definition", Source: lib.DefinitionWithParts()})
	for _, m := range lib.Named(sources...) {
		open.Modules = append(open.Modules, protocol.Module{Name: internal + m.Name, Source: m.Code()})
	}
}
