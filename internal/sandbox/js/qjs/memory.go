//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// memory counts what the engine allocates. It lives in C memory because the engine holds a pointer to it.
//
// The engine swallows an out-of-memory error within its promise machinery: the promise is then never settled. So
// failures are counted here, and a run that never settles after a failure counts as out of memory. After the first
// failure a reserve opens, so that the error itself and the rejections that it causes can be allocated.
type memory struct {
	limit   uint64 // 0 means none
	reserve uint64
	peak    uint64
	fails   uint64
	opened  uint64
	given   uint64 // bytes of an image that do not count
	funcs   lib.TJSMallocFunctions
}

const memoryReserve = 1 << 20

// minMemory is the lowest limit with which the engine itself works.
const minMemory = 1 << 20

// newRuntime creates the runtime with our allocator.
func (vm *VM) newRuntime() uintptr {
	vm.stat = heap.malloc(vm.tls, unsafe.Sizeof(memory{}))
	if vm.stat == 0 {
		return 0
	}
	m := at[memory](vm.stat)
	*m = memory{reserve: memoryReserve}
	m.funcs = lib.TJSMallocFunctions{
		Fjs_malloc:             fp(memMalloc),
		Fjs_free:               fp(memFree),
		Fjs_realloc:            fp(memRealloc),
		Fjs_malloc_usable_size: fp(memUsableSize),
	}
	return lib.XJS_NewRuntime2(vm.tls, vm.stat+unsafe.Offsetof(m.funcs), vm.stat)
}

// SetMemoryLimit limits the engine's heap, in bytes.
func (vm *VM) SetMemoryLimit(bytes int64) {
	bytes = max(bytes, minMemory)
	at[memory](vm.stat).limit = uint64(bytes)
	vm.delayCollection(min(collectAfter, uint64(bytes)/8))
}

// maxFails is how many allocations may fail before the code is stopped, because code can catch the errors and try
// again.
const maxFails = 1000

// Exhausted reports whether the code was stopped because it repeatedly requested more memory than it may use.
func (vm *VM) Exhausted() bool { return at[memory](vm.stat).fails > maxFails }

// MemoryLimit returns the limit of the engine's heap in bytes, or 0 when there is none.
func (vm *VM) MemoryLimit() int64 { return int64(at[memory](vm.stat).limit) }

// FailAllocation counts a failed allocation that was not even tried.
func (vm *VM) FailAllocation() { at[memory](vm.stat).fails++ }

// PeakMemory returns the peak size of the engine's heap, in bytes.
func (vm *VM) PeakMemory() int64 {
	m := at[memory](vm.stat)
	return int64(m.peak - min(m.given, m.peak))
}

// OutOfMemory reports whether an allocation has ever failed.
func (vm *VM) OutOfMemory() bool { return at[memory](vm.stat).fails > 0 }

// refuse reports whether the heap may not grow to size.
func (m *memory) refuse(size uint64) bool {
	size -= min(m.given, size)
	if m.limit == 0 || size <= m.limit {
		if size < m.limit/10*9 {
			m.opened = 0
		}
		return false
	}
	if m.opened != 0 && size <= m.limit+m.reserve {
		return false
	}
	m.fails++
	m.opened = 1
	return true
}

// overhead is what the allocator itself uses for each allocation.
const overhead = 8

func (m *memory) grown(st *lib.TJSMallocState) {
	if size := uint64(st.Fmalloc_size); size > m.peak {
		m.peak = size
	}
}

func memMalloc(tls *libc.TLS, s uintptr, size lib.Tsize_t) uintptr {
	st := at[lib.TJSMallocState](s)
	m := at[memory](st.Fopaque)
	if m.refuse(uint64(st.Fmalloc_size) + uint64(size)) {
		return 0
	}
	p := heap.malloc(tls, uintptr(size))
	if p == 0 {
		m.fails++
		return 0
	}
	st.Fmalloc_count++
	st.Fmalloc_size += libc.Tsize_t(heap.usable(tls, p)) + overhead
	m.grown(st)
	return p
}

func memFree(tls *libc.TLS, s, p uintptr) {
	if p == 0 {
		return
	}
	st := at[lib.TJSMallocState](s)
	st.Fmalloc_count--
	st.Fmalloc_size -= libc.Tsize_t(heap.usable(tls, p)) + overhead
	heap.free(tls, p)
}

func memRealloc(tls *libc.TLS, s, p uintptr, size lib.Tsize_t) uintptr {
	if p == 0 {
		if size == 0 {
			return 0
		}
		return memMalloc(tls, s, size)
	}
	if size == 0 {
		memFree(tls, s, p)
		return 0
	}
	st := at[lib.TJSMallocState](s)
	m := at[memory](st.Fopaque)
	old := libc.Tsize_t(heap.usable(tls, p))
	if size > old && m.refuse(uint64(st.Fmalloc_size)+uint64(size-old)) {
		return 0
	}
	q := heap.realloc(tls, p, uintptr(size))
	if q == 0 {
		m.fails++
		return 0
	}
	st.Fmalloc_size += libc.Tsize_t(heap.usable(tls, q)) - old
	m.grown(st)
	return q
}

func memUsableSize(tls *libc.TLS, p uintptr) lib.Tsize_t { return libc.Tsize_t(heap.usable(tls, p)) }
