package values

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
)

// maxBigInt bounds the digits of a bigint, because parsing one takes quadratic time.
const maxBigInt = 160_000

// Unmarshal decodes a value from the wire. Empty data means undefined.
func Unmarshal(data []byte) (any, error) {
	if len(data) == 0 {
		return Undefined{}, nil
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("it is not a JSON value: %w", err)
	}
	return unwire(tree, 0)
}

func unwire(v any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, tooDeep()
	}
	switch v := v.(type) {
	case []any:
		return v, unwireItems(v, depth)
	case map[string]any:
		if tagged(v) {
			for tag, content := range v {
				return unmark(tag, content, depth)
			}
		}
		return v, unwireObject(v, depth)
	}
	return v, nil
}

func unwireItems(items []any, depth int) error {
	for i, item := range items {
		var err error
		if items[i], err = unwire(item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func unwireObject(object map[string]any, depth int) error {
	for name, item := range object {
		var err error
		if object[name], err = unwire(item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// unmark decodes a value that JSON lacks.
func unmark(tag string, content any, depth int) (any, error) {
	bad := func(what string) (any, error) { return nil, fmt.Errorf("%q must hold %s", tag, what) }
	switch tag {
	case tagUndefined:
		return Undefined{}, nil
	case tagNumber:
		switch content {
		case "NaN":
			return math.NaN(), nil
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		case "-0":
			return math.Copysign(0, -1), nil
		}
		return bad(`"NaN", "Infinity", "-Infinity" or "-0"`)
	case tagBigInt:
		if text, ok := content.(string); ok && len(text) <= maxBigInt {
			if n, ok := new(big.Int).SetString(text, 10); ok {
				return n, nil
			}
		}
		return bad("an integer as a string of digits")
	case tagDate:
		if ms, ok := content.(float64); ok && math.Abs(ms) <= maxDate && ms == math.Trunc(ms) {
			return dateOf(int64(ms)), nil
		}
		return bad("whole milliseconds since 1970")
	case tagBytes:
		if text, ok := content.(string); ok {
			if b, err := base64.StdEncoding.DecodeString(text); err == nil {
				return b, nil
			}
		}
		return bad("base64")
	case tagSet:
		members, ok := content.([]any)
		if !ok {
			return bad("an array")
		}
		return &Set{Members: members}, unwireItems(members, depth)
	case tagMap:
		return unmarkMap(content, depth)
	case tagObject:
		object, ok := content.(map[string]any)
		if !ok {
			return bad("an object")
		}
		return object, unwireObject(object, depth)
	}
	return nil, fmt.Errorf(`%q is not a kind of value: write an object of that one name as {"$object": {…}}`, tag)
}

func unmarkMap(content any, depth int) (any, error) {
	bad := errors.New(`"$map" must hold an array of [key, value]`)
	pairs, ok := content.([]any)
	if !ok {
		return nil, bad
	}
	m := &Map{Entries: make([][2]any, len(pairs))}
	for i, p := range pairs {
		pair, ok := p.([]any)
		if !ok || len(pair) != 2 {
			return nil, bad
		}
		if err := unwireItems(pair, depth); err != nil {
			return nil, err
		}
		m.Entries[i] = [2]any{pair[0], pair[1]}
	}
	return m, nil
}
