//go:build linux && (amd64 || arm64)

package js

import (
	"errors"
	"slices"

	"github.com/skein-dev/skein/internal/sandbox/js/bytecode"
	"github.com/skein-dev/skein/internal/sandbox/js/qjs"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

// The environment of definition code is console, the other globals, and the functions that describe and invoke. What of it
// is the same for all isolates is made first, so that images have it behind them: their engines only get functions
// of the host that belong to the new isolate.

// hostFunc is a function of the host.
type hostFunc struct {
	name   string
	length int
	call   qjs.HostFunc
}

// objectOf returns an object of functions of the host.
func objectOf(vm *qjs.VM, funcs []hostFunc, flags qjs.PropertyFlags) (qjs.Value, bool) {
	object, ok := vm.Object()
	if !ok {
		return object, false
	}
	for _, f := range funcs {
		v, ok := vm.Func(f.name, f.length, f.call)
		if !ok || !vm.Define(object, f.name, v, flags) {
			return object, false
		}
	}
	return object, true
}

// environment makes what is the same for all isolates. It returns the function that takes the rest.
func (i *isolate) environment() (qjs.Value, error) {
	global := i.vm.Global()
	defer i.vm.Free(global)
	if !i.console.install(global) {
		return qjs.Undefined, errMemory
	}
	sys, ok := objectOf(i.vm, i.hostSide(), qjs.Fixed)
	if !ok {
		return qjs.Undefined, errMemory
	}
	defer i.vm.Free(sys)
	script, ok := i.vm.EvalBytecode(bytecode.Of(bytecode.Definition))
	if !ok {
		return qjs.Undefined, i.broken()
	}
	defer i.vm.Free(script)
	begin, ok := i.vm.Call(script, qjs.Undefined, sys)
	if !ok {
		return qjs.Undefined, i.broken()
	}
	return begin, nil
}

// adopt makes the functions of an environment from an image those of this isolate.
func (i *isolate) adopt() error {
	var calls []qjs.HostFunc
	for _, f := range slices.Concat(i.console.methods(), i.hostSide()) { // as environment makes them
		calls = append(calls, f.call)
	}
	return i.vm.Bind(calls...)
}

// statics returns what the host says of the isolate.
func (i *isolate) statics(open *protocol.Open) (qjs.Value, error) {
	v, err := i.vm.Decode(open.Static)
	if err != nil {
		if errors.Is(err, qjs.ErrNoMemory) {
			err = errMemory
		}
		return qjs.Undefined, err
	}
	if !qjs.IsUndefined(v) {
		return v, nil
	}
	v, ok := i.vm.Object()
	if !ok {
		return v, errMemory
	}
	return v, nil
}
