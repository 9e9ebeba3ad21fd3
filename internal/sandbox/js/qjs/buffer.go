//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// What code makes of values on their way out counts as its own memory: one text of a megabyte, thirty times in
// an array, takes no room in the engine but thirty megabytes on the wire. So large buffers of encoded values
// live in the engine's heap.

// smallBuffer is up to where a buffer is an ordinary one.
const smallBuffer = 64 << 10

// grow gives a buffer with room for n bytes more. It gives false when the engine's memory has none left.
func (vm *VM) grow(buf []byte, n int) ([]byte, bool) {
	need := len(buf) + n
	if need <= smallBuffer {
		return append(make([]byte, 0, min(max(2*cap(buf), need, 256), smallBuffer)), buf...), true
	}
	size := need + need/4
	p := vm.buffers[unsafe.SliceData(buf)]
	q := lib.Xjs_realloc_rt(vm.tls, vm.rt, p, libc.Tsize_t(size))
	if q == 0 {
		size = need
		if q = lib.Xjs_realloc_rt(vm.tls, vm.rt, p, libc.Tsize_t(size)); q == 0 {
			return buf, false
		}
	}
	out := unsafe.Slice(at[byte](q), size)
	if p == 0 {
		copy(out, buf)
	}
	delete(vm.buffers, unsafe.SliceData(buf))
	vm.buffers[unsafe.SliceData(out)] = q
	return out[:len(buf)], true
}

// Release gives back what Encode gave. Who does not, keeps the engine's memory in use; b is not to be read
// afterwards.
func (vm *VM) Release(b []byte) {
	if p, ok := vm.buffers[unsafe.SliceData(b)]; ok {
		delete(vm.buffers, unsafe.SliceData(b))
		lib.Xjs_free_rt(vm.tls, vm.rt, p)
	}
}
