//go:build linux && (amd64 || arm64)

package qjs

import (
	"errors"
	"fmt"
	"unicode/utf8"

	lib "modernc.org/libquickjs"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// ErrNoMemory means that the engine's heap has no room for a value.
var ErrNoMemory = errors.New("out of memory")

// Decode returns the value that b encodes. An error that wraps ErrNoMemory leaves no exception pending.
func (vm *VM) Decode(b []byte) (Value, error) {
	if len(b) == 0 {
		return Undefined, nil
	}
	d := decoder{vm: vm, r: value.NewReader(b), atoms: atoms{}}
	defer d.atoms.free(vm)
	v, err := d.value(0)
	if err != nil {
		return Undefined, err
	}
	if d.r.Left() != 0 {
		vm.Free(v)
		return Undefined, fmt.Errorf("%w: bytes left over", value.ErrMalformed)
	}
	return v, nil
}

// DecodeArgs returns the values of an encoded array.
func (vm *VM) DecodeArgs(b []byte) ([]Value, error) {
	if len(b) == 0 {
		return nil, nil
	}
	d := decoder{vm: vm, r: value.NewReader(b), atoms: atoms{}}
	defer d.atoms.free(vm)
	tag, err := d.r.Tag()
	if err != nil {
		return nil, err
	}
	if tag != value.TagArray {
		return nil, fmt.Errorf("%w: no array", value.ErrMalformed)
	}
	n, err := d.r.Count(1)
	if err != nil {
		return nil, err
	}
	args := make([]Value, 0, min(n, 1024))
	for range n {
		v, err := d.value(1)
		if err != nil {
			for _, a := range args {
				vm.Free(a)
			}
			return nil, err
		}
		args = append(args, v)
	}
	return args, nil
}

// atoms caches the names of properties that repeat within one value.
type atoms map[string]lib.TJSAtom

func (a atoms) free(vm *VM) {
	for _, atom := range a {
		lib.XJS_FreeAtom(vm.tls, vm.ctx, atom)
	}
}

type decoder struct {
	vm    *VM
	r     *value.Reader
	atoms atoms
}

// made converts the engine's result to ours: a constructor can only fail for lack of memory.
func (d *decoder) made(v Value, ok bool) (Value, error) {
	if ok && !isException(v) {
		return v, nil
	}
	d.vm.Free(d.vm.Exception())
	return Undefined, ErrNoMemory
}

func (d *decoder) value(depth int) (Value, error) {
	if depth > value.MaxDepth {
		return Undefined, fmt.Errorf("%w: nested deeper than %d levels", value.ErrMalformed, value.MaxDepth)
	}
	tag, err := d.r.Tag()
	if err != nil {
		return Undefined, err
	}
	switch tag {
	case value.TagUndefined:
		return Undefined, nil
	case value.TagNull:
		return Null, nil
	case value.TagFalse, value.TagTrue:
		return Bool(tag == value.TagTrue), nil
	case value.TagInt:
		n, err := d.r.Integer()
		if int64(int32(n)) == n {
			return Int(int32(n)), err
		}
		return Number(float64(n)), err
	case value.TagFloat:
		f, err := d.r.Float()
		return Number(f), err
	case value.TagString:
		s, err := d.r.Span()
		if err == nil && !utf8.Valid(s) {
			err = fmt.Errorf("%w: text that is not UTF-8", value.ErrMalformed)
		}
		if err != nil {
			return Undefined, err
		}
		return d.made(d.vm.UTF8(s))
	case value.TagBigInt:
		return d.bigInt()
	case value.TagDate:
		ms, err := d.r.Date()
		if err != nil {
			return Undefined, err
		}
		return d.made(lib.XJS_NewDate(d.vm.tls, d.vm.ctx, float64(ms)), true)
	case value.TagBytes:
		b, err := d.r.Span()
		if err != nil {
			return Undefined, err
		}
		return d.made(d.vm.Bytes(b))
	case value.TagArray:
		return d.array(depth)
	case value.TagObject:
		return d.object(depth)
	case value.TagMap:
		return d.collection(2, d.vm.prims.mapClass, d.vm.prims.mapSet, depth)
	case value.TagSet:
		return d.collection(1, d.vm.prims.setClass, d.vm.prims.setAdd, depth)
	}
	return Undefined, fmt.Errorf("%w: unknown tag %d", value.ErrMalformed, tag)
}

func (d *decoder) bigInt() (Value, error) {
	n, err := d.r.BigInt()
	if err != nil {
		return Undefined, err
	}
	if n.IsInt64() {
		return d.made(lib.XJS_NewBigInt64(d.vm.tls, d.vm.ctx, n.Int64()), true)
	}
	// BigInt() does not parse signed hexadecimal.
	text, err := d.made(d.vm.String(n.String()))
	if err != nil {
		return Undefined, err
	}
	defer d.vm.Free(text)
	return d.made(d.vm.Call(d.vm.prims.bigInt, Undefined, text))
}

func (d *decoder) array(depth int) (Value, error) {
	n, err := d.r.Count(1)
	if err != nil {
		return Undefined, err
	}
	v, err := d.made(d.vm.Array())
	if err != nil {
		return Undefined, err
	}
	for i := range n {
		item, err := d.value(depth + 1)
		if err == nil && !d.vm.SetIndex(v, i, item) {
			_, err = d.made(exception, false)
		}
		if err != nil {
			d.vm.Free(v)
			return Undefined, err
		}
	}
	return v, nil
}

func (d *decoder) object(depth int) (Value, error) {
	n, err := d.r.Count(2)
	if err != nil {
		return Undefined, err
	}
	v, err := d.made(d.vm.Object())
	if err != nil {
		return Undefined, err
	}
	for range n {
		if err := d.property(v, depth); err != nil {
			d.vm.Free(v)
			return Undefined, err
		}
	}
	return v, nil
}

func (d *decoder) property(v Value, depth int) error {
	name, err := d.r.Text()
	if err != nil {
		return err
	}
	atom, known := d.atoms[name]
	if !known {
		var ok bool
		if atom, ok = d.vm.atom(name); !ok {
			_, err := d.made(exception, false)
			return err
		}
		d.atoms[name] = atom
	}
	item, err := d.value(depth + 1)
	if err != nil {
		return err
	}
	if lib.XJS_DefinePropertyValue(d.vm.tls, d.vm.ctx, v, atom, item, lib.MJS_PROP_C_W_E) < 0 {
		_, err = d.made(exception, false)
	}
	return err
}

// collection returns a Map (members of two values) or a Set (of one).
func (d *decoder) collection(width int, class, add Value, depth int) (Value, error) {
	n, err := d.r.Count(width)
	if err != nil {
		return Undefined, err
	}
	v, err := d.made(d.vm.Construct(class))
	if err != nil {
		return Undefined, err
	}
	for range n {
		if err := d.member(v, width, add, depth); err != nil {
			d.vm.Free(v)
			return Undefined, err
		}
	}
	return v, nil
}

// member decodes one member of a Map or a Set, which consists of width values, and adds it to v by calling add.
func (d *decoder) member(v Value, width int, add Value, depth int) error {
	args := make([]Value, 0, 2)
	defer func() {
		for _, a := range args {
			d.vm.Free(a)
		}
	}()
	for range width {
		item, err := d.value(depth + 1)
		if err != nil {
			return err
		}
		args = append(args, item)
	}
	r, err := d.made(d.vm.Call(add, v, args...))
	d.vm.Free(r)
	return err
}
