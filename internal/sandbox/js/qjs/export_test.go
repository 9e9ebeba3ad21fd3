//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// UnmapMade takes the image that this process made last out of its memory, so that it can be mapped as another process would.
func UnmapMade() { unmap(heap.first + (heap.made-1)*ImageSpan) }

// Unmap takes a mapped image out of the memory of this process.
func (i *Image) Unmap() { unmap(uintptr(unsafe.Pointer(i.header))) }

func unmap(base uintptr) { _, _, _ = unix.Syscall(unix.SYS_MUNMAP, base, ImageSpan, 0) }

// Elsewhere changes what the beginning of an image says of the program that made it.
func Elsewhere(image []byte) {
	(*header)(unsafe.Pointer(unsafe.SliceData(image))).program[0]++
}

// Content returns the bytes of a mapped image.
func (i *Image) Content() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(i.header)), i.header.length)
}

// HeaderSize is the size of the beginning of an image.
const HeaderSize = int(unsafe.Sizeof(header{}))
