//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Unmap takes an image that this process made out of its memory, so that it can be mapped as another process would.
func Unmap(image []byte) {
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(image))), imageSpan, 0)
}

// Elsewhere changes what the image says of the program that made it.
func Elsewhere(image []byte) {
	(*header)(unsafe.Pointer(unsafe.SliceData(image))).program[0]++
}

// Bytes returns the mapped image.
func (i *Image) Bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(i.header)), i.header.length)
}
