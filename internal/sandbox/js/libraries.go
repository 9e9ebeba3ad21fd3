//go:build linux && (amd64 || arm64)

package js

import (
	"fmt"

	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// CompileLibraries gives the bytecode of the large library, for Libraries.Zod of children of the same build.
func CompileLibraries(vm *qjs.VM) ([]byte, error) {
	code, ok := vm.Compile("zod", lib.Zod)
	if !ok {
		v := vm.Exception()
		return nil, fmt.Errorf("compiling zod: %+v", vm.Info(v))
	}
	return code, nil
}
