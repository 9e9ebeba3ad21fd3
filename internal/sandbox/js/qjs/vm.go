//go:build linux && (amd64 || arm64)

// Package qjs is a thin binding of the QuickJS engine (modernc.org/libquickjs, QuickJS in Go without cgo) for one
// purpose: a single-use child process that runs untrusted code.
//
// It exists beside modernc.org/quickjs because that package lacks what we need: the exact memory in use and its peak, a
// stop that no code can survive, and unhandled rejections. It also lacks bytes that do not pass through text, and
// conversion of values without JavaScript of ours, which the program could patch.
//
// A VM belongs to one goroutine; only Stop may be called from others. Values are counted references. The caller must
// Free what a method returns, and keeps what it passes to a method, unless the method says otherwise.
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

// ErrEngine means that the engine could not be created.
var ErrEngine = errors.New("the JavaScript engine did not start: out of memory")

// VM is one engine with one realm. All fields belong to the goroutine of the engine, except stopped.
type VM struct {
	tls     *libc.TLS
	rt, ctx uintptr
	id      uintptr
	stat    uintptr // *memory, in C memory
	stopped atomic.Bool

	funcs      []HostFunc
	loader     Loader
	modules    map[string]*SyntheticModule // by name, until their exports are set
	rejections map[uintptr]Value           // unhandled ones, by promise
	scratch    uintptr
	scratchLen int
	prims      primordials
	buffers    map[*byte]uintptr // in the engine's heap, see buffer.go
	pinned     *byte             // what the engine reads at the moment
	collected  []Value           // by the collector, see encode.go
	collector  Value
}

// The engine's callbacks carry a number with which they find their VM.
var (
	vms    sync.Map // uintptr → *VM
	lastID atomic.Uintptr
)

// New returns an engine without a memory limit.
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

// Close frees the engine. A process that ends anyway need not call it.
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
	heap.free(vm.tls, vm.stat)
	vm.tls.Close()
}

// Stop soon ends any code that runs, in a way that code cannot catch, and any code that would run later.
func (vm *VM) Stop() { vm.stopped.Store(true) }

// Stopped reports whether Stop was called, or the code has exhausted its memory.
func (vm *VM) Stopped() bool { return vm.stopped.Load() || vm.Exhausted() }

// interrupted is called regularly by the engine while code runs.
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

// fp returns the code pointer of a Go function, in the form that the transpiled engine calls.
func fp(f any) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&f))[1]
}

// at returns a pointer into C memory.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// cText copies a text with a final NUL to where the engine may read it until the next cText.
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

// shrink frees the memory that a large text used.
func (vm *VM) shrink() {
	if vm.scratchLen > 1<<20 {
		libc.Xfree(vm.tls, vm.scratch)
		vm.scratch, vm.scratchLen = 0, 0
	}
}

// cString allocates a NUL-terminated copy. Free it with libc.Xfree.
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
