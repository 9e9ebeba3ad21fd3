//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// HostFunc is a function of the host. It borrows its arguments. It returns a value, or false after a Throw.
type HostFunc func(args []Value) (Value, bool)

// Func returns a function that lives as long as the VM.
func (vm *VM) Func(name string, length int, f HostFunc) (Value, bool) {
	vm.funcs = append(vm.funcs, f)
	data := vm.args(Int(int32(len(vm.funcs) - 1)))
	v := lib.XJS_NewCFunctionData(vm.tls, vm.ctx, fp(callHost), int32(length), 0, 1, data)
	vm.freeArgs(1)
	if isException(v) {
		return v, false
	}
	if text, ok := vm.String(name); !ok || !vm.Define(v, "name", text, PropertyFlags(lib.MJS_PROP_CONFIGURABLE)) {
		vm.Free(v)
		return exception, false
	}
	return v, true
}

func callHost(tls *libc.TLS, ctx uintptr, _ Value, argc int32, argv uintptr, _ int32, data uintptr) Value {
	vm := byContext(tls, ctx)
	index := intOf(*at[Value](data))
	// Copy the arguments, because the engine may move its stack while the function runs.
	args := append([]Value(nil), unsafe.Slice(at[Value](argv), int(argc))...)
	v, ok := vm.funcs[index](args)
	if !ok {
		return exception
	}
	return v
}

// Call calls a function, which runs code.
func (vm *VM) Call(f, this Value, args ...Value) (Value, bool) {
	argv := vm.args(args...)
	v := lib.XJS_Call(vm.tls, vm.ctx, f, this, int32(len(args)), argv)
	vm.freeArgs(len(args))
	return v, !isException(v)
}

// Construct calls a constructor.
func (vm *VM) Construct(f Value, args ...Value) (Value, bool) {
	argv := vm.args(args...)
	v := lib.XJS_CallConstructor(vm.tls, vm.ctx, f, int32(len(args)), argv)
	vm.freeArgs(len(args))
	return v, !isException(v)
}

// Promise returns a promise and the functions that settle it.
func (vm *VM) Promise() (promise, resolve, reject Value, ok bool) {
	pair := vm.tls.Alloc(32)
	defer vm.tls.Free(32)
	promise = lib.XJS_NewPromiseCapability(vm.tls, vm.ctx, pair)
	if isException(promise) {
		return promise, Undefined, Undefined, false
	}
	both := unsafe.Slice(at[Value](pair), 2)
	return promise, both[0], both[1], true
}

// RunJobs runs pending jobs of the engine until there are none, or until Stop. It drops errors of jobs: jobs are
// reactions of promises, which keep their own errors.
func (vm *VM) RunJobs() {
	for !vm.Stopped() {
		switch n := lib.XJS_ExecutePendingJob(vm.tls, vm.rt, 0); {
		case n == 0:
			return
		case n < 0:
			vm.Free(vm.Exception())
		}
	}
}

// trackRejection is called for each promise that is rejected without a listener, and for each that gets a listener
// afterwards.
func trackRejection(_ *libc.TLS, _ uintptr, promise, reason Value, handled lib.TBOOL, opaque uintptr) {
	vm := byID(opaque)
	key := pointer(promise)
	if old, ok := vm.rejections[key]; ok {
		delete(vm.rejections, key)
		vm.Free(old)
	}
	if handled == 0 && len(vm.rejections) < 100 {
		vm.rejections[key] = vm.Dup(reason)
	}
}

// Rejections returns the reasons of the promises that were rejected without a listener since the last call.
func (vm *VM) Rejections() []Value {
	if len(vm.rejections) == 0 {
		return nil
	}
	var out []Value
	for promise, reason := range vm.rejections {
		delete(vm.rejections, promise)
		out = append(out, reason)
	}
	return out
}

// PromiseState is the state of a promise.
type PromiseState int

// The states. NoPromise stands for any other value.
const (
	NoPromise PromiseState = -1
	Pending   PromiseState = 0
	Fulfilled PromiseState = 1
	Rejected  PromiseState = 2
)

// State returns a promise's state and, when it is settled, the value that it was settled with.
func (vm *VM) State(promise Value) (PromiseState, Value) {
	s := PromiseState(lib.XJS_PromiseState(vm.tls, vm.ctx, promise))
	switch s {
	case Fulfilled:
		return s, lib.XJS_PromiseResult(vm.tls, vm.ctx, promise)
	case Rejected:
		vm.heard(promise)
		return s, lib.XJS_PromiseResult(vm.tls, vm.ctx, promise)
	}
	return s, Undefined
}

// heard records that we listen to a promise, although not with a reaction.
func (vm *VM) heard(promise Value) {
	if reason, ok := vm.rejections[pointer(promise)]; ok {
		delete(vm.rejections, pointer(promise))
		vm.Free(reason)
	}
}

// Settled returns a promise that follows v as await does. v may be any value, a promise or a thenable.
func (vm *VM) Settled(v Value) (Value, bool) {
	promise, resolve, reject, ok := vm.Promise()
	if !ok {
		return promise, false
	}
	r, ok := vm.Call(resolve, Undefined, v)
	vm.Free(r)
	vm.Free(resolve)
	vm.Free(reject)
	if !ok {
		vm.Free(promise)
		return exception, false
	}
	return promise, true
}
