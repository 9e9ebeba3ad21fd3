package values

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"time"
)

// Marshal encodes a value for the wire. The error says what cannot be encoded: a function, a channel, an integer that
// no number represents exactly, or a value that nests too deeply.
func Marshal(v any) (json.RawMessage, error) {
	tree, err := wire(v, 0)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func mark(tag string, content any) map[string]any { return map[string]any{tag: content} }

// wire returns a value as a tree that encoding/json encodes correctly.
func wire(v any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, tooDeep()
	}
	switch v := v.(type) {
	case nil, bool, string:
		return v, nil
	case Undefined:
		return mark(tagUndefined, true), nil
	case float64:
		return number(v), nil
	case *big.Int:
		if v == nil {
			return nil, nil
		}
		return mark(tagBigInt, v.String()), nil
	case time.Time:
		return mark(tagDate, v.UnixMilli()), nil
	case []byte:
		if v == nil {
			return nil, nil
		}
		return mark(tagBytes, base64.StdEncoding.EncodeToString(v)), nil
	case []any:
		if v == nil {
			return nil, nil
		}
		return wireItems(v, depth)
	case map[string]any:
		if v == nil {
			return nil, nil
		}
		return wireObject(v, depth)
	case *Set:
		items, err := wireItems(v.Members, depth)
		return mark(tagSet, items), err
	case *Map:
		pairs := make([]any, len(v.Entries))
		for i, entry := range v.Entries {
			pair, err := wireItems(entry[:], depth)
			if err != nil {
				return nil, err
			}
			pairs[i] = pair
		}
		return mark(tagMap, pairs), nil
	}
	return wireOther(v, depth)
}

// number returns a number, or its name when JSON cannot represent it.
func number(f float64) any {
	switch {
	case math.IsNaN(f):
		return mark(tagNumber, "NaN")
	case math.IsInf(f, 1):
		return mark(tagNumber, "Infinity")
	case math.IsInf(f, -1):
		return mark(tagNumber, "-Infinity")
	case f == 0 && math.Signbit(f):
		return mark(tagNumber, "-0")
	}
	return f
}

func wireItems(items []any, depth int) ([]any, error) {
	out := make([]any, len(items))
	for i, item := range items {
		w, err := wire(item, depth+1)
		if err != nil {
			return nil, err
		}
		out[i] = w
	}
	return out, nil
}

func wireObject(object map[string]any, depth int) (any, error) {
	out := make(map[string]any, len(object))
	for name, item := range object {
		w, err := wire(item, depth+1)
		if err != nil {
			return nil, err
		}
		out[name] = w
	}
	if tagged(object) {
		return mark(tagObject, out), nil
	}
	return out, nil
}

// wireOther converts any other Go value: numbers by kind, the rest with encoding/json.
func wireOther(v any, depth int) (any, error) {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n := r.Int(); n > maxSafe || n < -maxSafe {
			return nil, fmt.Errorf("the integer %d is not exact as a number: use *big.Int", n)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n := r.Uint(); n > maxSafe {
			return nil, fmt.Errorf("the integer %d is not exact as a number: use *big.Int", n)
		}
	case reflect.Float32:
		return number(r.Float()), nil
	case reflect.Func:
		return nil, fmt.Errorf("a function cannot be a value: pass functions as globals or imports themselves")
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	return wire(plain, depth)
}
