//go:build linux && (amd64 || arm64)

package qjs

import (
	"unicode/utf8"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// The values that need no allocation.
var (
	Undefined = Value{Ftag: lib.EJS_TAG_UNDEFINED}
	Null      = Value{Ftag: lib.EJS_TAG_NULL}
	exception = Value{Ftag: lib.EJS_TAG_EXCEPTION}
)

func payload(v Value) uint64        { return *(*uint64)(unsafe.Pointer(&v)) }
func pointer(v Value) uintptr       { return uintptr(payload(v)) }
func isException(v Value) bool      { return v.Ftag == lib.EJS_TAG_EXCEPTION }
func tagOf(v Value) int32           { return int32(v.Ftag) }
func intOf(v Value) int32           { return int32(payload(v)) }
func floatOf(v Value) float64       { return *(*float64)(unsafe.Pointer(&v)) }
func isObject(v Value) bool         { return tagOf(v) == lib.EJS_TAG_OBJECT }
func object(v Value) *lib.TJSObject { return at[lib.TJSObject](pointer(v)) }

// Bool returns a boolean.
func Bool(b bool) (v Value) {
	if b {
		*(*uint64)(unsafe.Pointer(&v)) = 1
	}
	v.Ftag = lib.EJS_TAG_BOOL
	return v
}

// Int returns a number.
func Int(n int32) (v Value) {
	*(*uint64)(unsafe.Pointer(&v)) = uint64(uint32(n))
	v.Ftag = lib.EJS_TAG_INT
	return v
}

// Number returns a number.
func Number(f float64) (v Value) {
	*(*float64)(unsafe.Pointer(&v)) = f
	v.Ftag = lib.EJS_TAG_FLOAT64
	return v
}

// Free drops a reference.
func (vm *VM) Free(v Value) { lib.XFreeValue(vm.tls, vm.ctx, v) }

// Dup adds a reference.
func (vm *VM) Dup(v Value) Value { return lib.XDupValue(vm.tls, vm.ctx, v) }

// IsUndefined reports whether v is undefined.
func IsUndefined(v Value) bool { return tagOf(v) == lib.EJS_TAG_UNDEFINED }

// IsNull reports whether v is null.
func IsNull(v Value) bool { return tagOf(v) == lib.EJS_TAG_NULL }

// IsString reports whether v is a string.
func IsString(v Value) bool {
	return tagOf(v) == lib.EJS_TAG_STRING || tagOf(v) == lib.EJS_TAG_STRING_ROPE
}

// IsFunction reports whether v can be called.
func (vm *VM) IsFunction(v Value) bool { return lib.XJS_IsFunction(vm.tls, vm.ctx, v) != 0 }

// IsError reports whether v is an Error object.
func (vm *VM) IsError(v Value) bool { return isObject(v) && object(v).Fclass_id == lib.EJS_CLASS_ERROR }

// ToNumber returns the value of a number.
func ToNumber(v Value) (float64, bool) {
	switch tagOf(v) {
	case lib.EJS_TAG_INT:
		return float64(intOf(v)), true
	case lib.EJS_TAG_FLOAT64:
		return floatOf(v), true
	}
	return 0, false
}

// ToBool returns the value of a boolean.
func ToBool(v Value) bool { return tagOf(v) == lib.EJS_TAG_BOOL && intOf(v) != 0 }

// String returns a string, or an exception when the engine is out of memory.
func (vm *VM) String(s string) (Value, bool) {
	if len(s) <= smallBuffer {
		v := lib.XJS_NewStringLen(vm.tls, vm.ctx, vm.cText(s), libc.Tsize_t(len(s)))
		return v, !isException(v)
	}
	return vm.UTF8(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// UTF8 returns a string of bytes that are UTF-8, without a copy in between.
func (vm *VM) UTF8(b []byte) (Value, bool) {
	if len(b) == 0 {
		return vm.String("")
	}
	v := lib.XJS_NewStringLen(vm.tls, vm.ctx, vm.pin(b), libc.Tsize_t(len(b)))
	vm.pinned = nil
	return v, !isException(v)
}

// pin returns the address of bytes, which do not move until pinned is cleared: because they are referenced here, they
// are not on a stack, which could move.
func (vm *VM) pin(b []byte) uintptr {
	vm.pinned = unsafe.SliceData(b)
	return uintptr(unsafe.Pointer(vm.pinned))
}

// Text converts any value to text, as String(v) does, which may run code. Lone surrogates become U+FFFD. max limits
// how much is copied; -1 means all.
func (vm *VM) Text(v Value, max int) (string, bool) {
	size := vm.tls.Alloc(8)
	defer vm.tls.Free(8)
	p := lib.XJS_ToCStringLen2(vm.tls, vm.ctx, size, v, 0)
	if p == 0 {
		return "", false
	}
	n := int(*at[libc.Tsize_t](size))
	if max >= 0 && n > max {
		n = max
	}
	s := string(unsafe.Slice(at[byte](p), n))
	lib.XJS_FreeCString(vm.tls, vm.ctx, p)
	return value.WellFormed(s), true
}

// Borrow calls f with the text of a value as UTF-8, without a copy if the text is ASCII. f must not keep it.
func (vm *VM) Borrow(v Value, f func([]byte) (Value, bool)) (Value, bool) {
	size := vm.tls.Alloc(8)
	defer vm.tls.Free(8)
	p := lib.XJS_ToCStringLen2(vm.tls, vm.ctx, size, v, 0)
	if p == 0 {
		return exception, false
	}
	defer lib.XJS_FreeCString(vm.tls, vm.ctx, p)
	b := unsafe.Slice(at[byte](p), *at[libc.Tsize_t](size))
	if !utf8.Valid(b) {
		b = []byte(value.WellFormed(string(b)))
	}
	return f(b)
}

// Object returns an empty object.
func (vm *VM) Object() (Value, bool) {
	v := lib.XJS_NewObject(vm.tls, vm.ctx)
	return v, !isException(v)
}

// Array returns an empty array.
func (vm *VM) Array() (Value, bool) {
	v := lib.XJS_NewArray(vm.tls, vm.ctx)
	return v, !isException(v)
}

// Global returns the global object.
func (vm *VM) Global() Value { return lib.XJS_GetGlobalObject(vm.tls, vm.ctx) }

// Get reads a property, which may run code.
func (vm *VM) Get(v Value, name string) (Value, bool) {
	atom, ok := vm.atom(name)
	if !ok {
		return exception, false
	}
	r := lib.XJS_GetPropertyInternal(vm.tls, vm.ctx, v, atom, v, 0)
	lib.XJS_FreeAtom(vm.tls, vm.ctx, atom)
	return r, !isException(r)
}

// Index reads an element, which may run code.
func (vm *VM) Index(v Value, i int) (Value, bool) {
	r := lib.XJS_GetPropertyUint32(vm.tls, vm.ctx, v, uint32(i))
	return r, !isException(r)
}

// Define defines an own property, regardless of the prototypes. It takes val over. Hidden properties are not
// enumerable and, like fixed ones, cannot be changed.
func (vm *VM) Define(v Value, name string, val Value, flags PropertyFlags) bool {
	atom, ok := vm.atom(name)
	if !ok {
		vm.Free(val)
		return false
	}
	r := lib.XJS_DefinePropertyValue(vm.tls, vm.ctx, v, atom, val, int32(flags))
	lib.XJS_FreeAtom(vm.tls, vm.ctx, atom)
	return r >= 0
}

// PropertyFlags are the flags of Define.
type PropertyFlags int32

// The flags.
const (
	Plain  PropertyFlags = lib.MJS_PROP_C_W_E
	Hidden PropertyFlags = lib.MJS_PROP_CONFIGURABLE | lib.MJS_PROP_WRITABLE
	Fixed  PropertyFlags = lib.MJS_PROP_ENUMERABLE
)

// SetIndex defines an element. It takes val over.
func (vm *VM) SetIndex(v Value, i int, val Value) bool {
	return lib.XJS_DefinePropertyValueUint32(vm.tls, vm.ctx, v, uint32(i), val, lib.MJS_PROP_C_W_E) >= 0
}

func (vm *VM) atom(name string) (lib.TJSAtom, bool) {
	a := lib.XJS_NewAtomLen(vm.tls, vm.ctx, vm.cText(name), libc.Tsize_t(len(name)))
	vm.shrink()
	return a, a != lib.MJS_ATOM_NULL
}

// Bytes returns a Uint8Array.
func (vm *VM) Bytes(b []byte) (Value, bool) {
	if len(b) == 0 {
		b = []byte{0}[:0] // with a valid address
	}
	buffer := lib.XJS_NewArrayBufferCopy(vm.tls, vm.ctx, vm.pin(b), libc.Tsize_t(len(b)))
	vm.pinned = nil
	if isException(buffer) {
		return exception, false
	}
	// The engine reads all three arguments, whatever count is passed.
	args := vm.args(buffer, Undefined, Undefined)
	v := lib.XJS_NewTypedArray(vm.tls, vm.ctx, 3, args, lib.EJS_TYPED_ARRAY_UINT8)
	vm.freeArgs(3)
	vm.Free(buffer)
	return v, !isException(v)
}

// args puts values on the engine's stack. Call freeArgs with their number after the call.
func (vm *VM) args(values ...Value) uintptr {
	p := vm.tls.Alloc(16 * max(len(values), 1))
	copy(unsafe.Slice(at[Value](p), len(values)), values)
	return p
}

func (vm *VM) freeArgs(n int) { vm.tls.Free(16 * max(n, 1)) }

// dateText returns a Date's text in the form of toISOString.
func dateText(ms float64) string {
	return value.DateOf(int64(ms)).Format("2006-01-02T15:04:05.000Z07:00")
}

// Truthy reports whether v counts as true.
func Truthy(vm *VM, v Value) bool { return lib.XJS_ToBool(vm.tls, vm.ctx, v) == 1 }

// Keys returns the names of an object's own enumerable properties.
func (vm *VM) Keys(v Value) []string {
	out := vm.tls.Alloc(16)
	defer vm.tls.Free(16)
	if lib.XJS_GetOwnPropertyNames(vm.tls, vm.ctx, out, out+8, v, lib.MJS_GPN_STRING_MASK|lib.MJS_GPN_ENUM_ONLY) < 0 {
		vm.Free(vm.Exception())
		return nil
	}
	table, n := *at[uintptr](out), *at[uint32](out + 8)
	defer lib.XJS_FreePropertyEnum(vm.tls, vm.ctx, table, n)
	var names []string
	e := encoder{vm: vm}
	if n > 0 {
		for _, p := range unsafe.Slice(at[lib.TJSPropertyEnum](table), n) {
			name, _ := e.atomText(p.Fatom)
			names = append(names, name)
		}
	}
	return names
}
