package value

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"sort"
	"strconv"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
)

// Encode encodes a Go value. Errors are *Error.
func Encode(v any) ([]byte, error) { return Append(nil, v) }

// Memory is what EncodeWithin draws memory from.
type Memory interface {
	Draw(bytes int64) error
	Return(bytes int64)
}

// EncodeWithin is Encode that draws its buffer before it allocates it, and so what JSON among the value takes while it is decoded. The
// buffer stays drawn, unless there is an error. Errors are *Error or those of m.
func EncodeWithin(v any, m Memory) ([]byte, error) {
	e := encoder{memory: m}
	e.w.Grow = e.grow
	err := e.value(v, 0)
	if e.full != nil {
		err = e.full
	}
	if err != nil {
		m.Return(int64(cap(e.w.Buf)))
		return nil, e.located(err)
	}
	return e.w.Buf, nil
}

// grow returns a larger buffer with the same content.
func (e *encoder) grow(old []byte, n int) ([]byte, bool) {
	size := max(2*cap(old), len(old)+n)
	if e.full = e.memory.Draw(int64(size)); e.full != nil {
		return old, false
	}
	buf := append(make([]byte, 0, size), old...)
	e.memory.Return(int64(cap(old)))
	return buf, true
}

// Append is Encode, appending to a buffer.
func Append(b []byte, v any) ([]byte, error) {
	e := encoder{w: Writer{Buf: b}, start: len(b)}
	if err := e.value(v, 0); err != nil {
		return b, e.located(err)
	}
	return e.w.Buf, nil
}

// located adds the place in the value to an error.
func (e *encoder) located(err error) error {
	var at *Error
	if errors.As(err, &at) {
		at.Path = e.where()
	}
	return err
}

type encoder struct {
	w      Writer
	memory Memory // nil: no limit
	full   error  // why memory gave no more
	start  int
	nodes  int
	path   []any // int or string; complete only while an error is returned
}

func (e *encoder) where() string {
	var b bytes.Buffer
	for _, p := range e.path {
		switch p := p.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(p) + "]")
		default:
			fmt.Fprintf(&b, ".%v", p)
		}
		if b.Len() > 200 {
			b.WriteString("…")
			break
		}
	}
	return b.String()
}

func refuse(format string, args ...any) error { return &Error{Reason: fmt.Sprintf(format, args...)} }

func (e *encoder) bound(depth int) error {
	if depth > MaxDepth {
		e.path = e.path[:min(len(e.path), 8)]
		return refuse("it nests deeper than %d levels, or contains itself", MaxDepth)
	}
	if e.nodes++; e.nodes > MaxNodes {
		return refuse("it holds more than %d values", MaxNodes)
	}
	if e.full != nil {
		return e.full
	}
	if len(e.w.Buf)-e.start > MaxBytes {
		return refuse("it is larger than %d MiB", MaxBytes>>20)
	}
	return nil
}

func (e *encoder) value(v any, depth int) error {
	if err := e.bound(depth); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		e.w.Tag(TagNull)
	case Undefined:
		e.w.Tag(TagUndefined)
	case bool:
		if v {
			e.w.Tag(TagTrue)
		} else {
			e.w.Tag(TagFalse)
		}
	case float64:
		e.w.Number(v)
	case string:
		if len(v) > MaxBytes {
			return refuse("it is larger than %d MiB", MaxBytes>>20)
		}
		e.w.String(v)
	case []byte:
		if len(v) > MaxBytes {
			return refuse("it is larger than %d MiB", MaxBytes>>20)
		}
		if v == nil {
			e.w.Tag(TagNull)
			return nil
		}
		e.w.Bytes(v)
	case *big.Int:
		return e.bigInt(v)
	case time.Time:
		e.w.Date(v.UnixMilli())
	case FuncRef:
		e.w.Func(v)
	case []any:
		return e.array(TagArray, v, depth)
	case map[string]any:
		return e.object(v, depth)
	case *Map:
		return e.mapping(v, depth)
	case *Set:
		return e.array(TagSet, v.Members, depth)
	case json.RawMessage:
		return e.json(v, depth)
	case json.Number:
		return e.jsonNumber(v)
	default:
		return e.reflected(v, depth)
	}
	return e.bound(depth)
}

func (e *encoder) bigInt(n *big.Int) error {
	if n == nil {
		e.w.Tag(TagNull)
		return nil
	}
	if bigBytes(n) > MaxBigIntBytes {
		return refuse("a bigint of more than %d bytes", MaxBigIntBytes)
	}
	e.w.BigInt(n.Sign() < 0, n.Bytes())
	return nil
}

func (e *encoder) array(t Tag, items []any, depth int) error {
	e.w.Open(t, len(items))
	for i, item := range items {
		e.path = append(e.path, i)
		if err := e.value(item, depth+1); err != nil {
			return err
		}
		e.path = e.path[:len(e.path)-1]
	}
	return nil
}

func (e *encoder) object(m map[string]any, depth int) error {
	if m == nil {
		e.w.Tag(TagNull)
		return nil
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	e.w.Open(TagObject, len(names))
	for _, name := range names {
		e.path = append(e.path, name)
		e.w.Name(name)
		if err := e.value(m[name], depth+1); err != nil {
			return err
		}
		e.path = e.path[:len(e.path)-1]
	}
	return nil
}

func (e *encoder) mapping(m *Map, depth int) error {
	e.w.Open(TagMap, len(m.Entries))
	for i, entry := range m.Entries {
		e.path = append(e.path, i)
		for _, side := range entry {
			if err := e.value(side, depth+1); err != nil {
				return err
			}
		}
		e.path = e.path[:len(e.path)-1]
	}
	return nil
}

func (e *encoder) jsonNumber(n json.Number) error {
	f, err := n.Float64()
	if err != nil {
		return refuse("the number %.40q is out of range", n.String())
	}
	e.w.Number(f)
	return nil
}

func (e *encoder) json(raw []byte, depth int) error {
	if len(raw) > MaxBytes {
		return refuse("it is larger than %d MiB", MaxBytes>>20)
	}
	if len(raw) == 0 {
		e.w.Tag(TagNull)
		return nil
	}
	if e.memory != nil {
		cost := membudget.JSONCost(raw)
		if err := e.memory.Draw(cost); err != nil {
			return err
		}
		defer e.memory.Return(cost)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return refuse("it is not JSON: %v", err)
	}
	return e.value(v, depth)
}

// reflected encodes values without a case of their own: other numbers by kind, the rest with encoding/json.
func (e *encoder) reflected(v any, depth int) error {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n := r.Int()
		if n > maxSafe || n < -maxSafe {
			return refuse("the integer %d is not exact as a number: use *big.Int", n)
		}
		e.w.Int(n)
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := r.Uint()
		if n > maxSafe {
			return refuse("the integer %d is not exact as a number: use *big.Int", n)
		}
		e.w.Int(int64(n))
		return nil
	case reflect.Float32:
		e.w.Number(r.Float())
		return nil
	case reflect.Func:
		return refuse("a Go function")
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return refuse("%v", err)
	}
	return e.json(raw, depth)
}
