//go:build linux && (amd64 || arm64)

package bytecode

import (
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// Compile returns the bytecode of the modules and scripts, by the names of their files. It is for generate and for tests.
func Compile(vm *qjs.VM) (map[string][]byte, error) {
	all := map[string][]byte{}
	add := func(compile func(name, code string) ([]byte, bool), name, source string) error {
		code, ok := compile(name, source)
		if !ok {
			return fmt.Errorf("compiling %s: %+v", name, vm.Info(vm.Exception()))
		}
		all[fileName(name)] = code
		return nil
	}
	for _, m := range lib.Modules {
		if len(m.Uses) > 0 {
			continue
		}
		if err := add(vm.Compile, m.Name, m.Code()); err != nil {
			return nil, err
		}
	}
	for _, script := range []struct{ name, source string }{
		{Definition, lib.Definition()}, {Handler, lib.Handler}, {HTTP, lib.HTTP}, {Schemas, lib.Schemas}, {URL, lib.URL},
	} {
		if err := add(vm.CompileScript, script.name, script.source); err != nil {
			return nil, err
		}
	}
	return all, nil
}
