//go:build linux && (amd64 || arm64)

package qjs

import (
	"errors"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// bytes encodes a view of a buffer as the bytes that it shows.
func (e *encoder) bytes(v Value) error {
	if object(v).Fclass_id == lib.EJS_CLASS_DATAVIEW {
		return refuse("a DataView: send its buffer")
	}
	sizes := e.vm.tls.Alloc(16)
	defer e.vm.tls.Free(16)
	buffer := lib.XJS_GetTypedArrayBuffer(e.vm.tls, e.vm.ctx, v, sizes, sizes+8, 0)
	if isException(buffer) {
		return ErrThrown
	}
	defer e.vm.Free(buffer)
	offset := int(*at[libc.Tsize_t](sizes))
	n, err := e.typedLength(v) // in bytes; only this knows the length of a view that tracks a resizable buffer
	if err != nil {
		return err
	}
	return e.buffer(buffer, offset, n)
}

// buffer encodes n bytes of an ArrayBuffer, or all when n is negative.
func (e *encoder) buffer(v Value, offset, n int) error {
	size := e.vm.tls.Alloc(8)
	defer e.vm.tls.Free(8)
	p := lib.XJS_GetArrayBuffer(e.vm.tls, e.vm.ctx, size, v)
	total := int(*at[libc.Tsize_t](size))
	if p == 0 && lib.XJS_HasException(e.vm.tls, e.vm.ctx) != 0 {
		return ErrThrown
	}
	if n < 0 {
		n = total
	}
	if offset > total || n > total-offset {
		return refuse("a view beyond its buffer")
	}
	if n > value.MaxBytes {
		return refuse("bytes larger than %d MiB", value.MaxBytes>>20)
	}
	if n == 0 {
		e.w.Bytes(nil)
		return nil
	}
	e.w.Bytes(unsafe.Slice(at[byte](p+uintptr(offset)), n))
	return nil
}

// BytesOf copies the bytes of a Uint8Array or a buffer.
func (vm *VM) BytesOf(v Value) ([]byte, bool) {
	b, err := vm.Encode(v, nil)
	if err != nil {
		if !errors.Is(err, ErrThrown) {
			vm.ThrowError("TypeError", err.Error())
		}
		return nil, false
	}
	defer vm.Release(b)
	decoded, err := value.Decode(b)
	out, ok := decoded.([]byte)
	if err != nil || !ok {
		vm.ThrowError("TypeError", "bytes are needed: a Uint8Array or an ArrayBuffer")
		return nil, false
	}
	return out, true
}
