//go:build linux && (amd64 || arm64)

package js

import (
	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// httpParts evaluates lib.HTTP: httpParts(sys) returns { classes, serve }.
func (i *isolate) httpParts(a []qjs.Value) (qjs.Value, bool) {
	make, ok := i.vm.EvalBytecode(bytecode.Of(bytecode.HTTP))
	if !ok {
		return i.vm.Rethrow()
	}
	defer i.vm.Free(make)
	return i.vm.Call(make, qjs.Undefined, a[0])
}

// handlerParts evaluates lib.Handler: handlerParts(sys, parts) returns { serve }.
func (i *isolate) handlerParts(a []qjs.Value) (qjs.Value, bool) {
	make, ok := i.vm.EvalBytecode(bytecode.Of(bytecode.Handler))
	if !ok {
		return i.vm.Rethrow()
	}
	defer i.vm.Free(make)
	return i.vm.Call(make, qjs.Undefined, a[0], a[1])
}
