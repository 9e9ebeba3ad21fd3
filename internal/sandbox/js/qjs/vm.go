//go:build linux && (amd64 || arm64)

// Package qjs is a thin binding of the QuickJS engine (modernc.org/libquickjs, QuickJS in Go without cgo)
// for one purpose: a single-use child process that runs untrusted code.
//
// It exists beside modernc.org/quickjs because that package has no access to what we need: the exact
// memory in use and its peak, a stop that no code can outlive, unhandled rejections, bytes without a detour
// through text, and values that cross without code of ours in JavaScript, which the program could patch.
//
// A VM belongs to one goroutine; only Stop may be called from others. Values are counted references: what a
// method returns is the caller's to Free, what it takes stays the caller's, unless said otherwise.
package qjs

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// Value is a reference to a JavaScript value.
type Value = lib.TJSValue

// ErrEngine says that the engine could not be made.
var ErrEngine = errors.New("the JavaScript engine did not start: out of memory")

// VM is one engine with one realm.
type VM struct {
	tls     *libc.TLS
	rt, ctx uintptr
	id      uintptr
	stat    uintptr // *memory, in C memory
	stopped atomic.Bool

	funcs      []HostFunc
	loader     Loader
	modules    map[string]*SyntheticModule // by name, until their exports are set
	rejections map[uintptr]Value           // unhandled, by promise
	scratch    uintptr
	scratchLen int
	prims      primordials
	buffers    map[*byte]uintptr // in the engine's heap, see buffer.go
	pinned     *byte             // what the engine reads just now
	collected  []Value           // by the collector, see encode.go
	collector  Value
}

// The engine's callbacks carry a number, by which they find their VM.
var (
	vms    sync.Map // uintptr → *VM
	lastID atomic.Uintptr
)

// New makes an engine with no memory limit yet.
func New() (*VM, error) {
	vm := &VM{tls: libc.NewTLS(), id: lastID.Add(1), modules: map[string]*SyntheticModule{}, rejections: map[uintptr]Value{}, buffers: map[*byte]uintptr{}}
	vm.rt = vm.newRuntime()
	if vm.rt == 0 {
		return nil, ErrEngine
	}
	vm.ctx = lib.XJS_NewContext(vm.tls, vm.rt)
	if vm.ctx == 0 {
		return nil, ErrEngine
	}
	vms.Store(vm.id, vm)
	lib.XJS_SetContextOpaque(vm.tls, vm.ctx, vm.id)
	lib.XJS_SetInterruptHandler(vm.tls, vm.rt, fp(interrupted), vm.id)
	lib.XJS_SetModuleLoaderFunc2(vm.tls, vm.rt, fp(normalizeModule), fp(loadModule), 0, vm.id)
	lib.XJS_SetHostPromiseRejectionTracker(vm.tls, vm.rt, fp(trackRejection), vm.id)
	vm.capture()
	return vm, nil
}

// Close frees the engine. A process that ends anyway need not bother.
func (vm *VM) Close() {
	for promise, reason := range vm.rejections {
		delete(vm.rejections, promise)
		vm.Free(reason)
	}
	for b, p := range vm.buffers {
		delete(vm.buffers, b)
		lib.Xjs_free_rt(vm.tls, vm.rt, p)
	}
	vm.release()
	lib.XJS_FreeContext(vm.tls, vm.ctx)
	lib.XJS_FreeRuntime(vm.tls, vm.rt)
	vms.Delete(vm.id)
	if vm.scratch != 0 {
		libc.Xfree(vm.tls, vm.scratch)
	}
	libc.Xfree(vm.tls, vm.stat)
	vm.tls.Close()
}

// Stop ends whatever code runs, soon and beyond its power to catch, and any that would run later.
func (vm *VM) Stop() { vm.stopped.Store(true) }

// Stopped says whether Stop was called, or the code has exhausted its memory.
func (vm *VM) Stopped() bool { return vm.stopped.Load() || vm.Exhausted() }

// interrupted is polled by the engine while code runs.
func interrupted(_ *libc.TLS, _, opaque uintptr) int32 {
	if vm := byID(opaque); vm != nil && vm.Stopped() {
		return 1
	}
	return 0
}

func byID(id uintptr) *VM {
	if v, ok := vms.Load(id); ok {
		return v.(*VM)
	}
	return nil
}

func byContext(tls *libc.TLS, ctx uintptr) *VM { return byID(lib.XJS_GetContextOpaque(tls, ctx)) }

// fp gives the code pointer of a Go function, as the transpiled engine calls it.
func fp(f any) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&f))[1]
}

// at gives access to C memory.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// cText puts a text, with a NUL after it, where the engine may read it until the next cText.
func (vm *VM) cText(s string) uintptr {
	if need := len(s) + 1; need > vm.scratchLen {
		if vm.scratch != 0 {
			libc.Xfree(vm.tls, vm.scratch)
		}
		need = max(need, 4096)
		vm.scratch = libc.Xmalloc(vm.tls, libc.Tsize_t(need))
		vm.scratchLen = need
		if vm.scratch == 0 {
			panic("out of memory")
		}
	}
	b := unsafe.Slice(at[byte](vm.scratch), len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	return vm.scratch
}

// shrink gives back what a large text took.
func (vm *VM) shrink() {
	if vm.scratchLen > 1<<20 {
		libc.Xfree(vm.tls, vm.scratch)
		vm.scratch, vm.scratchLen = 0, 0
	}
}

// cString allocates a NUL-terminated copy; libc.Xfree it.
func (vm *VM) cString(s string) uintptr {
	p := libc.Xmalloc(vm.tls, libc.Tsize_t(len(s)+1))
	if p == 0 {
		panic("out of memory")
	}
	b := unsafe.Slice(at[byte](p), len(s)+1)
	copy(b, s)
	b[len(s)] = 0
	return p
}
