//go:build linux && (amd64 || arm64)

package qjs

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	lib "modernc.org/libquickjs"
)

// Limits of Inspect.
const (
	inspectDepth = 4
	inspectItems = 100
	inspectBytes = 64 << 10
)

// Inspect formats a value for people, as consoles do. It runs no code of the program: getters and proxies are named,
// not evaluated.
func (vm *VM) Inspect(v Value) string {
	i := inspector{vm: vm, above: map[uintptr]bool{}}
	i.value(v, 0)
	return cutTo(i.out.String(), inspectBytes)
}

type inspector struct {
	vm    *VM
	out   strings.Builder
	above map[uintptr]bool
}

func (i *inspector) full() bool { return i.out.Len() > inspectBytes }

func (i *inspector) value(v Value, depth int) {
	if i.full() {
		return
	}
	switch tagOf(v) {
	case lib.EJS_TAG_STRING, lib.EJS_TAG_STRING_ROPE:
		s := i.vm.primitive(v)
		if depth == 0 {
			i.out.WriteString(s)
		} else {
			i.out.WriteString(strconv.Quote(s))
		}
	case lib.EJS_TAG_BIG_INT, lib.EJS_TAG_SHORT_BIG_INT:
		i.out.WriteString(i.vm.primitive(v) + "n")
	case lib.EJS_TAG_SYMBOL:
		i.out.WriteString("Symbol(" + i.symbol(v) + ")")
	case lib.EJS_TAG_OBJECT:
		i.object(v, depth)
	default:
		i.out.WriteString(i.vm.primitive(v))
	}
}

// primitive returns the text of a primitive. Making it runs no code.
func (vm *VM) primitive(v Value) string {
	s, ok := vm.Text(v, inspectBytes)
	if !ok {
		vm.Free(vm.Exception())
		return "?"
	}
	return s
}

func (i *inspector) symbol(v Value) string {
	d, ok := i.vm.Get(v, "description")
	if !ok {
		i.vm.Free(i.vm.Exception())
		return ""
	}
	defer i.vm.Free(d)
	if !IsString(d) {
		return ""
	}
	return i.vm.primitive(d)
}

func (i *inspector) object(v Value, depth int) {
	key := pointer(v)
	if i.above[key] {
		i.out.WriteString("[Circular]")
		return
	}
	i.above[key] = true
	defer delete(i.above, key)

	class := int(object(v).Fclass_id)
	switch {
	case class == lib.EJS_CLASS_PROXY:
		i.out.WriteString("[Proxy]")
	case i.vm.IsFunction(v):
		i.out.WriteString("[Function" + prefixed(": ", i.own(v, "name")) + "]")
	case class == lib.EJS_CLASS_ERROR:
		i.error(v, depth)
	case class == lib.EJS_CLASS_DATE:
		if ms, ok := ToNumber(inner(v)); ok && ms == ms {
			i.out.WriteString(dateText(ms))
		} else {
			i.out.WriteString("Invalid Date")
		}
	case class == lib.EJS_CLASS_PROMISE:
		i.out.WriteString("[Promise]")
	case class == lib.EJS_CLASS_REGEXP:
		if s, ok := i.vm.Call(i.vm.prims.regexpText, v); ok {
			i.out.WriteString(i.vm.primitive(s))
			i.vm.Free(s)
		} else {
			i.vm.Free(i.vm.Exception())
			i.out.WriteString("[RegExp]")
		}
	case class >= lib.EJS_CLASS_NUMBER && class <= lib.EJS_CLASS_BOOLEAN || class == lib.EJS_CLASS_BIG_INT:
		i.value(inner(v), depth+1)
	case class >= lib.EJS_CLASS_ARRAY_BUFFER && class <= lib.EJS_CLASS_DATAVIEW:
		i.out.WriteString("[bytes]")
	case depth >= inspectDepth:
		i.out.WriteString("[Object]")
	case class == lib.EJS_CLASS_MAP, class == lib.EJS_CLASS_SET:
		i.collection(v, class, depth)
	case class == lib.EJS_CLASS_ARRAY:
		i.array(v, depth)
	default:
		i.properties(v, depth)
	}
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// own reads an own data property that is a string.
func (i *inspector) own(v Value, name string) string {
	atom, ok := i.vm.atom(name)
	if !ok {
		i.vm.Free(i.vm.Exception())
		return ""
	}
	defer lib.XJS_FreeAtom(i.vm.tls, i.vm.ctx, atom)
	p, getter, ok := i.data(v, atom)
	if !ok || getter {
		return ""
	}
	defer i.vm.Free(p)
	if !IsString(p) {
		return ""
	}
	return i.vm.primitive(p)
}

// data reads an own property without running a getter.
func (i *inspector) data(v Value, atom lib.TJSAtom) (val Value, getter, ok bool) {
	size := int(unsafe.Sizeof(lib.TJSPropertyDescriptor{}))
	d := i.vm.tls.Alloc(size)
	defer i.vm.tls.Free(size)
	switch lib.XJS_GetOwnProperty(i.vm.tls, i.vm.ctx, d, v, atom) {
	case 0:
		return Undefined, false, false
	case -1:
		i.vm.Free(i.vm.Exception())
		return Undefined, false, false
	}
	desc := at[lib.TJSPropertyDescriptor](d)
	if desc.Fflags&lib.MJS_PROP_GETSET != 0 {
		i.vm.Free(desc.Fgetter)
		i.vm.Free(desc.Fsetter)
		return Undefined, true, true
	}
	return desc.Fvalue, false, true
}

func (i *inspector) error(v Value, depth int) {
	info := i.vm.Info(v)
	i.out.WriteString(info.Name + prefixed(": ", info.Message))
	if depth == 0 && info.Stack != "" {
		i.out.WriteString("\n" + strings.TrimRight(info.Stack, "\n"))
	}
}

func (i *inspector) array(v Value, depth int) {
	n := 0
	if length, ok := i.vm.Get(v, "length"); ok {
		f, _ := ToNumber(length)
		n = int(f)
	}
	i.out.WriteString("[")
	for k := range min(n, inspectItems) {
		if k > 0 {
			i.out.WriteString(", ")
		}
		atom := lib.XJS_NewAtomUInt32(i.vm.tls, i.vm.ctx, uint32(k))
		i.property(v, atom, depth)
		lib.XJS_FreeAtom(i.vm.tls, i.vm.ctx, atom)
		if i.full() {
			break
		}
	}
	if n > inspectItems {
		fmt.Fprintf(&i.out, ", … %d more", n-inspectItems)
	}
	i.out.WriteString("]")
}

func (i *inspector) property(v Value, atom lib.TJSAtom, depth int) {
	p, getter, ok := i.data(v, atom)
	switch {
	case !ok:
		i.out.WriteString("undefined")
	case getter:
		i.out.WriteString("[Getter]")
	default:
		i.value(p, depth+1)
		i.vm.Free(p)
	}
}

func (i *inspector) collection(v Value, class, depth int) {
	each, name := i.vm.prims.mapEach, "Map"
	if class == lib.EJS_CLASS_SET {
		each, name = i.vm.prims.setEach, "Set"
	}
	outer := i.vm.collected
	i.vm.collected = nil
	r, ok := i.vm.Call(each, v, i.vm.collector)
	pairs := i.vm.collected
	i.vm.collected = outer
	if ok {
		i.vm.Free(r)
	} else {
		i.vm.Free(i.vm.Exception())
	}
	fmt.Fprintf(&i.out, "%s(%d) {", name, len(pairs)/2)
	for k := 0; k+1 < len(pairs); k += 2 {
		if k/2 < inspectItems && !i.full() {
			i.out.WriteString(map[bool]string{true: " ", false: ", "}[k == 0])
			if name == "Map" {
				i.value(pairs[k+1], depth+1)
				i.out.WriteString(" => ")
			}
			i.value(pairs[k], depth+1)
		}
		i.vm.Free(pairs[k])
		i.vm.Free(pairs[k+1])
	}
	i.out.WriteString(" }")
}

func (i *inspector) properties(v Value, depth int) {
	out := i.vm.tls.Alloc(16)
	defer i.vm.tls.Free(16)
	if lib.XJS_GetOwnPropertyNames(i.vm.tls, i.vm.ctx, out, out+8, v, lib.MJS_GPN_STRING_MASK|lib.MJS_GPN_ENUM_ONLY) < 0 {
		i.vm.Free(i.vm.Exception())
		i.out.WriteString("[Object]")
		return
	}
	table, n := *at[uintptr](out), *at[uint32](out + 8)
	defer lib.XJS_FreePropertyEnum(i.vm.tls, i.vm.ctx, table, n)
	if n == 0 {
		i.out.WriteString("{}")
		return
	}
	i.out.WriteString("{ ")
	e := encoder{vm: i.vm}
	for k, p := range unsafe.Slice(at[lib.TJSPropertyEnum](table), n) {
		if k >= inspectItems || i.full() {
			i.out.WriteString(", …")
			break
		}
		if k > 0 {
			i.out.WriteString(", ")
		}
		name, _ := e.atomText(p.Fatom)
		i.out.WriteString(name + ": ")
		i.property(v, p.Fatom, depth)
	}
	i.out.WriteString(" }")
}
