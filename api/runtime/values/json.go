package values

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// NotJSONError means that a value is not JSON, and says where in it.
type NotJSONError struct {
	Path   string // "" for the value itself, else a path such as .items[3].name
	Reason string
}

// Error implements error.
func (e *NotJSONError) Error() string {
	if e.Path == "" {
		return e.Reason
	}
	return e.Reason + ", at " + e.Path
}

// JSON encodes a value as JSON. It refuses values that JSON would change: a bigint, a Map, a Set, bytes, NaN, an
// infinity, and undefined in a list. As JSON.stringify does, it omits properties that are undefined and writes a Date
// as an ISO 8601 string. Errors are *NotJSONError.
func JSON(v any) (json.RawMessage, error) { return write(v, exact) }

// Serialized encodes a value as Plain does, but refuses what JSON.stringify throws for: a bigint. Errors are
// *NotJSONError.
func Serialized(v any) (json.RawMessage, error) { return write(v, serializable) }

func write(v any, refuse func(any) string) (json.RawMessage, error) {
	if e := firstRefused(v, refuse, 0); e != nil {
		return nil, e
	}
	raw, err := Plain(v)
	var refused *NotJSONError
	if err != nil && !errors.As(err, &refused) {
		return nil, &NotJSONError{Reason: err.Error()}
	}
	return raw, err
}

// exact returns why a value by itself is not JSON, or "" when it is.
func exact(v any) string {
	switch v := v.(type) {
	case Undefined:
		return "undefined in a list: give null instead"
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("the number %s: give null or a text instead", strings.Replace(strconv.FormatFloat(v, 'g', -1, 64), "Inf", "Infinity", 1))
		}
	case *big.Int:
		return "a bigint: give a number or a text instead"
	case *Map:
		return "a Map: give Object.fromEntries(map) instead"
	case *Set:
		return "a Set: give an array, [...set], instead"
	case []byte:
		return "bytes: keep them in a file, or as a base64 text"
	}
	return ""
}

// serializable returns why a value by itself cannot be serialized, or "" when it can.
func serializable(v any) string {
	if _, ok := v.(*big.Int); ok {
		return "a bigint: give a number or a text instead"
	}
	return ""
}

// firstRefused returns the path of the first value within v for which refuse returns a reason, with that reason. It returns nil if there is
// none.
func firstRefused(v any, refuse func(any) string, depth int) *NotJSONError {
	if depth > MaxDepth {
		return &NotJSONError{Reason: tooDeep().Error()}
	}
	if reason := refuse(v); reason != "" {
		return &NotJSONError{Reason: reason}
	}
	within := func(item any, place string) *NotJSONError {
		e := firstRefused(item, refuse, depth+1)
		if e != nil && len(e.Path) < 300 {
			e.Path = place + e.Path
		}
		return e
	}
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			if e := within(item, fmt.Sprintf("[%d]", i)); e != nil {
				return e
			}
		}
	case map[string]any:
		for name, item := range v {
			if (item == Undefined{}) {
				continue
			}
			if e := within(item, "."+name); e != nil {
				return e
			}
		}
	case *Set:
		for _, item := range v.Members {
			if e := within(item, "(member)"); e != nil {
				return e
			}
		}
	case *Map:
		for _, entry := range v.Entries {
			for _, item := range entry {
				if e := within(item, "(entry)"); e != nil {
					return e
				}
			}
		}
	}
	return nil
}
