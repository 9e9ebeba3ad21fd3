//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"
)

// Values that code sends out count as its own memory. For example, one text of a megabyte, thirty times in an array,
// takes little room in the engine but thirty megabytes on the wire. So large buffers of encoded values are allocated
// in the engine's heap.

// smallBuffer is the maximum size of an ordinary buffer.
const smallBuffer = 64 << 10

// grow returns a buffer with room for n more bytes, or false when the engine has no memory left.
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

// Release frees the bytes that Encode returned. Without it the engine's memory stays in use. b must not be read
// afterwards.
func (vm *VM) Release(b []byte) {
	if p, ok := vm.buffers[unsafe.SliceData(b)]; ok {
		delete(vm.buffers, unsafe.SliceData(b))
		lib.Xjs_free_rt(vm.tls, vm.rt, p)
	}
}
