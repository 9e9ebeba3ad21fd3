//go:build linux && (amd64 || arm64)

package js

import (
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
)

// httpParts evaluates lib.HTTP: httpParts(sys) returns { classes, serve }.
func (i *isolate) httpParts(a []qjs.Value) (qjs.Value, bool) {
	make, ok := i.vm.Eval(internal+"http", lib.HTTP)
	if !ok {
		return i.vm.Rethrow()
	}
	defer i.vm.Free(make)
	return i.vm.Call(make, qjs.Undefined, a[0])
}

// handlerParts evaluates lib.Handler: handlerParts(sys, parts) returns { serve }.
func (i *isolate) handlerParts(a []qjs.Value) (qjs.Value, bool) {
	make, ok := i.vm.Eval(internal+"handler", lib.Handler)
	if !ok {
		return i.vm.Rethrow()
	}
	defer i.vm.Free(make)
	return i.vm.Call(make, qjs.Undefined, a[0], a[1])
}
