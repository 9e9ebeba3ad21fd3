//go:build linux && (amd64 || arm64)

package qjs

import (
	"fmt"
	"strings"

	lib "modernc.org/libquickjs"
)

// Exception takes the exception that a method which returned false has left.
func (vm *VM) Exception() Value { return lib.XJS_GetException(vm.tls, vm.ctx) }

// Throw throws v and takes it over. It returns what a HostFunc must then return.
func (vm *VM) Throw(v Value) (Value, bool) { return lib.XJS_Throw(vm.tls, vm.ctx, v), false }

// ThrowError creates an error and throws it.
func (vm *VM) ThrowError(name, message string) (Value, bool) {
	e, ok := vm.Error(name, message)
	if !ok {
		return exception, false
	}
	return vm.Throw(e)
}

// ThrowOutOfMemory throws the engine's own out-of-memory error.
func (vm *VM) ThrowOutOfMemory() (Value, bool) { return vm.throwOutOfMemory(), false }

func (vm *VM) throwOutOfMemory() Value { return lib.XJS_ThrowOutOfMemory(vm.tls, vm.ctx) }

// Error returns an Error whose stack shows the current place in the code. For one of the language's own names
// (TypeError, …) it returns an instance of that class.
func (vm *VM) Error(name, message string) (Value, bool) {
	class, own := vm.prims.errors[name]
	if !own {
		class = vm.prims.errors["Error"]
	}
	text, ok := vm.String(message)
	if !ok {
		return exception, false
	}
	e, ok := vm.Construct(class, text)
	vm.Free(text)
	if ok && !own {
		ok = vm.Name(e, name)
	}
	return e, ok
}

// Name sets the name of an error.
func (vm *VM) Name(e Value, name string) bool {
	text, ok := vm.String(name)
	return ok && vm.Define(e, "name", text, Hidden)
}

// Reshape gives an error another name and message and keeps its stack, so that an error that comes from the host
// later shows the place of the call.
func (vm *VM) Reshape(e Value, name, message string) bool {
	text, ok := vm.String(message)
	if !ok || !vm.Define(e, "message", text, Hidden) {
		return false
	}
	if class, own := vm.prims.errors[name]; own {
		proto, ok := vm.Get(class, "prototype")
		if !ok {
			return false
		}
		ok = lib.XJS_SetPrototype(vm.tls, vm.ctx, e, proto) >= 0
		vm.Free(proto)
		return ok
	}
	return vm.Name(e, name)
}

// ErrorInfo is what a thrown value says about itself.
type ErrorInfo struct {
	Name, Message, Stack string
	IsError              bool // an Error object, or an object that looks like one
	noMemory             bool // the engine really ran out of memory, whatever the program claims
}

// maxErrorText limits each text of an ErrorInfo.
const maxErrorText = 32 << 10

// Info reads a thrown value. Reading may run code; errors of that code are dropped.
func (vm *VM) Info(v Value) ErrorInfo {
	if !isObject(v) {
		message := vm.textOr(v, "(unprintable)")
		if IsNull(v) && vm.OutOfMemory() {
			// The engine throws null when it has no memory left for the error object.
			return ErrorInfo{Name: "InternalError", Message: "out of memory", IsError: true, noMemory: true}
		}
		return ErrorInfo{Name: "Error", Message: message}
	}
	e := ErrorInfo{
		Name:    vm.textProperty(v, "name"),
		Message: vm.textProperty(v, "message"),
		Stack:   vm.textProperty(v, "stack"),
		IsError: vm.IsError(v),
	}
	e.noMemory = vm.OutOfMemory()
	e.Stack += vm.causes(v)
	if e.Name == "" {
		e.Name = "Error"
	}
	if e.Message == "" && !e.IsError {
		e.Message = vm.Inspect(v)
	}
	return e
}

// maxCauses bounds how many causes the stack of an error includes.
const maxCauses = 5

// causes returns the stacks of the errors that caused an error, each below a line that names it.
func (vm *VM) causes(v Value) string {
	var out strings.Builder
	var held []Value // each one keeps the next one alive
	defer func() {
		for _, h := range held {
			vm.Free(h)
		}
	}()
	for range maxCauses {
		cause, ok := vm.Get(v, "cause")
		if !ok {
			vm.Free(vm.Exception())
			break
		}
		held = append(held, cause)
		if !isObject(cause) || !vm.IsError(cause) {
			break
		}
		fmt.Fprintf(&out, "\ncaused by: %s: %s\n%s", vm.textProperty(cause, "name"), vm.textProperty(cause, "message"), vm.textProperty(cause, "stack"))
		if out.Len() > maxErrorText {
			return strings.ToValidUTF8(out.String()[:maxErrorText], "")
		}
		v = cause
	}
	return out.String()
}

func (vm *VM) textOr(v Value, otherwise string) string {
	if tagOf(v) == lib.EJS_TAG_SYMBOL {
		return vm.Inspect(v)
	}
	s, ok := vm.Text(v, maxErrorText)
	if !ok {
		vm.Free(vm.Exception())
		return otherwise
	}
	return s
}

func (vm *VM) textProperty(v Value, name string) string {
	p, ok := vm.Get(v, name)
	if !ok {
		vm.Free(vm.Exception())
		return ""
	}
	defer vm.Free(p)
	if !IsString(p) {
		return ""
	}
	return vm.textOr(p, "")
}

// IsOutOfMemory reports whether an error is the engine's own out-of-memory error.
func (e ErrorInfo) IsOutOfMemory() bool {
	return e.noMemory && e.IsError && e.Name == "InternalError" && e.Message == "out of memory"
}

// Rethrow leaves the pending exception pending and returns what a HostFunc must then return.
func (vm *VM) Rethrow() (Value, bool) { return exception, false }
