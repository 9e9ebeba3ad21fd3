//go:build linux && (amd64 || arm64)

package qjs

import (
	"unsafe"

	lib "modernc.org/libquickjs"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// plain encodes an object without a class of its own as JSON would: the result of its toJSON if it has one, else its
// own enumerable properties in order.
func (e *encoder) plain(v Value, depth int) error {
	replaced, err := e.toJSON(v, depth)
	if replaced || err != nil {
		return err
	}
	if object(v).Fclass_id == lib.EJS_CLASS_PROXY {
		switch lib.XJS_IsArray(e.vm.tls, e.vm.ctx, v) {
		case 1:
			return e.array(v, depth)
		case -1:
			return ErrThrown
		}
	}
	out := e.vm.tls.Alloc(16)
	defer e.vm.tls.Free(16)
	if lib.XJS_GetOwnPropertyNames(e.vm.tls, e.vm.ctx, out, out+8, v, lib.MJS_GPN_STRING_MASK|lib.MJS_GPN_ENUM_ONLY) < 0 {
		return ErrThrown
	}
	table, n := *at[uintptr](out), *at[uint32](out + 8)
	defer lib.XJS_FreePropertyEnum(e.vm.tls, e.vm.ctx, table, n)
	var names []lib.TJSPropertyEnum
	if n > 0 {
		names = unsafe.Slice(at[lib.TJSPropertyEnum](table), n)
	}
	e.w.Open(value.TagObject, len(names))
	at := len(e.path)
	e.path = append(e.path, "")
	for _, p := range names {
		name, ok := e.atomText(p.Fatom)
		if !ok {
			return ErrThrown
		}
		e.w.Name(name)
		item := lib.XJS_GetPropertyInternal(e.vm.tls, e.vm.ctx, v, p.Fatom, v, 0)
		if isException(item) {
			e.path[at] = "." + name
			return ErrThrown
		}
		err := e.value(item, depth+1)
		e.vm.Free(item)
		if err != nil {
			e.path[at] = "." + name
			return err
		}
	}
	e.path = e.path[:at]
	return nil
}

func (e *encoder) toJSON(v Value, depth int) (bool, error) {
	f, ok := e.vm.Get(v, "toJSON")
	if !ok {
		return false, ErrThrown
	}
	defer e.vm.Free(f)
	if !e.vm.IsFunction(f) {
		return false, nil
	}
	r, ok := e.vm.Call(f, v)
	if !ok {
		return false, ErrThrown
	}
	defer e.vm.Free(r)
	// When toJSON returns the object itself, its properties are encoded.
	if isObject(r) && pointer(r) == pointer(v) {
		return false, nil
	}
	return true, e.value(r, depth+1)
}

func (e *encoder) atomText(a lib.TJSAtom) (string, bool) {
	size := e.vm.tls.Alloc(8)
	defer e.vm.tls.Free(8)
	p := lib.XJS_AtomToCStringLen(e.vm.tls, e.vm.ctx, size, a)
	if p == 0 {
		return "", false
	}
	defer lib.XJS_FreeCString(e.vm.tls, e.vm.ctx, p)
	return string(unsafe.Slice(at[byte](p), *at[uint64](size))), true
}
