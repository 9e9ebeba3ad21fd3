//go:build linux && (amd64 || arm64)

package qjs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/libquickjs"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// ErrThrown means that code that ran during encoding (a getter, toJSON, a proxy) threw. The exception is pending.
var ErrThrown = errors.New("the code threw while its value was read")

// ErrStopped means that Stop was called meanwhile.
var ErrStopped = errors.New("stopped")

// FuncSink takes a function in an encoded value and returns a reference to it.
type FuncSink func(Value) value.FuncRef

// Encode encodes a value for the host (see package value). Without a sink, functions are refused. The error is
// *value.Error, ErrThrown or ErrStopped. The caller must call Release with the bytes.
//
// Encode walks the engine's own structures in Go, so that no change of the program to the language's built-ins can
// mislead it.
func (vm *VM) Encode(v Value, funcs FuncSink) ([]byte, error) {
	e := vm.encoder(funcs)
	return e.end(e.value(v, 0))
}

func (vm *VM) encoder(funcs FuncSink) *encoder {
	return &encoder{vm: vm, w: value.Writer{Grow: vm.grow}, funcs: funcs, above: map[uintptr]bool{}}
}

// end returns what was written, or discards it on an error.
func (e *encoder) end(err error) ([]byte, error) {
	if err == nil && e.w.Full() {
		e.vm.throwOutOfMemory()
		err = ErrThrown
	}
	if err != nil {
		e.vm.Release(e.w.Buf)
		return nil, e.located(err)
	}
	return e.w.Buf, nil
}

// EncodeArgs encodes a list of values as one array, as Encode does.
func (vm *VM) EncodeArgs(args []Value, funcs FuncSink) ([]byte, error) {
	e := vm.encoder(funcs)
	e.w.Open(value.TagArray, len(args))
	for i, v := range args {
		e.path = append(e.path[:0], "["+strconv.Itoa(i)+"]")
		if err := e.value(v, 1); err != nil {
			return e.end(err)
		}
	}
	return e.end(nil)
}

type encoder struct {
	vm    *VM
	w     value.Writer
	funcs FuncSink
	nodes int
	above map[uintptr]bool // the objects that enclose the current value
	path  []string
}

func (e *encoder) located(err error) error {
	var refused *value.Error
	if errors.As(err, &refused) {
		refused.Path = strings.Join(e.path[:min(len(e.path), 12)], "")
		if len(e.path) > 12 {
			refused.Path += "…"
		}
		refused.Path = cutTo(refused.Path, 300)
	}
	return err
}

func cutTo(s string, n int) string {
	if len(s) > n {
		return value.WellFormed(s[:n]) + "…"
	}
	return s
}

func refuse(format string, args ...any) error {
	return &value.Error{Reason: fmt.Sprintf(format, args...)}
}

func (e *encoder) bound(depth int) error {
	if depth > value.MaxDepth {
		return refuse("it nests deeper than %d levels", value.MaxDepth)
	}
	if e.nodes++; e.nodes > value.MaxNodes {
		return refuse("it holds more than %d values", value.MaxNodes)
	}
	if len(e.w.Buf) > value.MaxBytes {
		return refuse("it is larger than %d MiB", value.MaxBytes>>20)
	}
	if e.w.Full() {
		e.vm.throwOutOfMemory()
		return ErrThrown
	}
	if e.vm.Stopped() {
		return ErrStopped
	}
	return nil
}

func (e *encoder) value(v Value, depth int) error {
	if err := e.bound(depth); err != nil {
		return err
	}
	switch tagOf(v) {
	case lib.EJS_TAG_UNDEFINED:
		e.w.Tag(value.TagUndefined)
	case lib.EJS_TAG_NULL:
		e.w.Tag(value.TagNull)
	case lib.EJS_TAG_BOOL:
		if intOf(v) != 0 {
			e.w.Tag(value.TagTrue)
		} else {
			e.w.Tag(value.TagFalse)
		}
	case lib.EJS_TAG_INT:
		e.w.Int(int64(intOf(v)))
	case lib.EJS_TAG_FLOAT64:
		e.w.Number(floatOf(v))
	case lib.EJS_TAG_STRING, lib.EJS_TAG_STRING_ROPE:
		return e.text(v)
	case lib.EJS_TAG_BIG_INT, lib.EJS_TAG_SHORT_BIG_INT:
		return e.bigInt(v)
	case lib.EJS_TAG_SYMBOL:
		return refuse("a symbol")
	case lib.EJS_TAG_OBJECT:
		return e.object(v, depth)
	default:
		return refuse("it is internal to the engine")
	}
	return nil
}

func (e *encoder) text(v Value) error {
	size := e.vm.tls.Alloc(8)
	defer e.vm.tls.Free(8)
	p := lib.XJS_ToCStringLen2(e.vm.tls, e.vm.ctx, size, v, 0)
	if p == 0 {
		return ErrThrown
	}
	defer lib.XJS_FreeCString(e.vm.tls, e.vm.ctx, p)
	n := *at[libc.Tsize_t](size)
	if n > value.MaxBytes {
		return refuse("a string larger than %d MiB", value.MaxBytes>>20)
	}
	e.w.String(unsafe.String(at[byte](p), n))
	return nil
}

func (e *encoder) bigInt(v Value) error {
	s, ok := e.vm.Call(e.vm.prims.bigIntText, v, Int(16))
	if !ok {
		return ErrThrown
	}
	defer e.vm.Free(s)
	text, ok := e.vm.Text(s, -1)
	if !ok {
		return ErrThrown
	}
	digits, negative := strings.CutPrefix(text, "-")
	if len(digits)%2 == 1 {
		digits = "0" + digits
	}
	if len(digits)/2 > value.MaxBigIntBytes {
		return refuse("a bigint of more than %d bytes", value.MaxBigIntBytes)
	}
	magnitude, err := hex.DecodeString(digits)
	if err != nil {
		return refuse("a bigint that is none")
	}
	e.w.BigInt(negative, magnitude)
	return nil
}

// object encodes an object by its class.
func (e *encoder) object(v Value, depth int) error {
	if e.vm.IsFunction(v) {
		if e.funcs == nil {
			return refuse("a function")
		}
		e.w.Func(e.funcs(v))
		return nil
	}
	key := pointer(v)
	if e.above[key] {
		return refuse("it contains itself")
	}
	e.above[key] = true
	defer delete(e.above, key)

	switch class := int(object(v).Fclass_id); class {
	case lib.EJS_CLASS_ARRAY, lib.EJS_CLASS_ARGUMENTS, lib.EJS_CLASS_MAPPED_ARGUMENTS:
		return e.array(v, depth)
	case lib.EJS_CLASS_DATE:
		return e.date(v)
	case lib.EJS_CLASS_NUMBER, lib.EJS_CLASS_STRING, lib.EJS_CLASS_BOOLEAN, lib.EJS_CLASS_BIG_INT:
		return e.value(inner(v), depth+1)
	case lib.EJS_CLASS_SYMBOL:
		return refuse("a symbol")
	case lib.EJS_CLASS_MAP:
		return e.collection(v, value.TagMap, e.vm.prims.mapEach, depth)
	case lib.EJS_CLASS_SET:
		return e.collection(v, value.TagSet, e.vm.prims.setEach, depth)
	case lib.EJS_CLASS_ARRAY_BUFFER, lib.EJS_CLASS_SHARED_ARRAY_BUFFER:
		return e.buffer(v, 0, -1)
	case lib.EJS_CLASS_UINT8_ARRAY, lib.EJS_CLASS_UINT8C_ARRAY, lib.EJS_CLASS_DATAVIEW:
		return e.bytes(v)
	case lib.EJS_CLASS_ERROR:
		return e.error(v)
	case lib.EJS_CLASS_PROMISE:
		return refuse("a promise: await it first")
	case lib.EJS_CLASS_WEAKMAP, lib.EJS_CLASS_WEAKSET, lib.EJS_CLASS_WEAK_REF, lib.EJS_CLASS_FINALIZATION_REGISTRY,
		lib.EJS_CLASS_GENERATOR, lib.EJS_CLASS_ASYNC_GENERATOR, lib.EJS_CLASS_MAP_ITERATOR, lib.EJS_CLASS_SET_ITERATOR,
		lib.EJS_CLASS_ARRAY_ITERATOR, lib.EJS_CLASS_ITERATOR_HELPER, lib.EJS_CLASS_ITERATOR_WRAP, lib.EJS_CLASS_ITERATOR_CONCAT:
		return refuse("an object that holds no data of its own (an iterator, a generator or a weak reference)")
	default:
		if class >= lib.EJS_CLASS_INT8_ARRAY && class <= lib.EJS_CLASS_FLOAT64_ARRAY {
			return e.typed(v, depth)
		}
	}
	return e.plain(v, depth)
}

// inner returns the value that a Date or a boxed primitive holds.
func inner(v Value) Value { return *(*Value)(unsafe.Pointer(&object(v).Fu)) }

func (e *encoder) date(v Value) error {
	ms, ok := ToNumber(inner(v))
	if !ok || math.IsNaN(ms) {
		return refuse("an invalid Date")
	}
	e.w.Date(int64(ms))
	return nil
}

func (e *encoder) array(v Value, depth int) error {
	n, err := e.length(v)
	if err != nil {
		return err
	}
	e.w.Open(value.TagArray, n)
	return e.elements(v, n, depth)
}

// typed encodes a typed array as an array of its numbers.
func (e *encoder) typed(v Value, depth int) error {
	n, err := e.typedLength(v)
	if err != nil {
		return err
	}
	if n > value.MaxNodes {
		return refuse("it holds more than %d values", value.MaxNodes)
	}
	e.w.Open(value.TagArray, n)
	return e.elements(v, n, depth)
}

// typedLength returns the current number of elements of a typed array, whatever the program has assigned as its
// length.
func (e *encoder) typedLength(v Value) (int, error) {
	length, ok := e.vm.Call(e.vm.prims.typedLength, v)
	if !ok {
		return 0, ErrThrown
	}
	n, _ := ToNumber(length)
	return int(n), nil
}

func (e *encoder) elements(v Value, n, depth int) error {
	at := len(e.path)
	e.path = append(e.path, "")
	for i := range n {
		item, ok := e.vm.Index(v, i)
		if !ok {
			return ErrThrown
		}
		err := e.value(item, depth+1)
		e.vm.Free(item)
		if err != nil {
			e.path[at] = "[" + strconv.Itoa(i) + "]"
			return err
		}
	}
	e.path = e.path[:at]
	return nil
}

func (e *encoder) length(v Value) (int, error) {
	length, ok := e.vm.Get(v, "length")
	if !ok {
		return 0, ErrThrown
	}
	defer e.vm.Free(length)
	n, ok := ToNumber(length)
	if !ok || n < 0 || n != math.Trunc(n) {
		return 0, refuse("an array of no length")
	}
	if n > value.MaxNodes {
		return 0, refuse("it holds more than %d values", value.MaxNodes)
	}
	return int(n), nil
}

// collection encodes a Map or a Set.
func (e *encoder) collection(v Value, tag value.Tag, each Value, depth int) error {
	outer := e.vm.collected
	e.vm.collected = nil
	r, ok := e.vm.Call(each, v, e.vm.collector)
	pairs := e.vm.collected // value, key, value, key, …
	e.vm.collected = outer
	defer func() {
		for _, p := range pairs {
			e.vm.Free(p)
		}
	}()
	if !ok {
		return ErrThrown
	}
	e.vm.Free(r)
	e.w.Open(tag, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if tag == value.TagMap {
			if err := e.value(pairs[i+1], depth+1); err != nil {
				return err
			}
		}
		if err := e.value(pairs[i], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// error encodes an Error as its text, because JSON would show it as {}.
func (e *encoder) error(v Value) error {
	info := e.vm.Info(v)
	e.w.Open(value.TagObject, 2)
	e.w.Name("name")
	e.w.String(info.Name)
	e.w.Name("message")
	e.w.String(info.Message)
	return nil
}
