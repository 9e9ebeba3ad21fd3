package scripted

import (
	"errors"
	"fmt"
	"text/template"
)

// function is what a template can call, with the numbers of arguments that it takes. A negative most is without limit.
type function struct {
	least, most int
	call        func(v *view, args []any) (any, error)
}

// functions are those of text/template, and those of scripts.
var functions = map[string]function{
	"and":      {1, -1, func(_ *view, args []any) (any, error) { return args[len(args)-1], nil }},
	"or":       {1, -1, func(_ *view, args []any) (any, error) { return args[len(args)-1], nil }},
	"not":      {1, 1, func(_ *view, args []any) (any, error) { return !truth(args[0]), nil }},
	"call":     {1, -1, func(_ *view, args []any) (any, error) { return nil, fmt.Errorf("%v is not a function", args[0]) }},
	"html":     {0, -1, func(_ *view, args []any) (any, error) { return template.HTMLEscaper(args...), nil }},
	"js":       {0, -1, func(_ *view, args []any) (any, error) { return template.JSEscaper(args...), nil }},
	"urlquery": {0, -1, func(_ *view, args []any) (any, error) { return template.URLQueryEscaper(args...), nil }},
	"print":    {0, -1, func(_ *view, args []any) (any, error) { return fmt.Sprint(args...), nil }},
	"println":  {0, -1, func(_ *view, args []any) (any, error) { return fmt.Sprintln(args...), nil }},
	"printf":   {1, -1, ofText(func(_ *view, format string, args []any) (any, error) { return fmt.Sprintf(format, args...), nil })},
	"len":      {1, 1, func(_ *view, args []any) (any, error) { return length(args[0]) }},
	"index":    {1, -1, func(_ *view, args []any) (any, error) { return index(args[0], args[1:]) }},
	"slice":    {1, 4, func(_ *view, args []any) (any, error) { return slice(args[0], args[1:]) }},
	"eq":       {2, -1, func(_ *view, args []any) (any, error) { return equalsAny(args[0], args[1:]) }},
	"ne":       {2, 2, func(_ *view, args []any) (any, error) { return opposite(equals(args[0], args[1])) }},
	"lt":       {2, 2, func(_ *view, args []any) (any, error) { return less(args[0], args[1]) }},
	"ge":       {2, 2, func(_ *view, args []any) (any, error) { return opposite(less(args[0], args[1])) }},
	"le":       {2, 2, func(_ *view, args []any) (any, error) { return atMost(args[0], args[1]) }},
	"gt":       {2, 2, func(_ *view, args []any) (any, error) { return opposite(atMost(args[0], args[1])) }},

	"toolResult": {1, 1, ofText(func(v *view, name string, _ []any) (any, error) { return v.toolResult(name) })},
	"fromJSON":   {1, 1, ofText(func(_ *view, text string, _ []any) (any, error) { return decode([]byte(text)) })},
	"toJSON":     {1, 1, func(_ *view, args []any) (any, error) { return toJSON(args[0]) }},
}

// ofText is a function whose first argument is text.
func ofText(f func(v *view, text string, more []any) (any, error)) func(*view, []any) (any, error) {
	return func(v *view, args []any) (any, error) {
		text, ok := args[0].(string)
		if !ok {
			return nil, fmt.Errorf("expected string; got %T", args[0])
		}
		return f(v, text, args[1:])
	}
}

func length(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return len(value), nil
	case []any:
		return len(value), nil
	case map[string]any:
		return len(value), nil
	}
	return nil, fmt.Errorf("len of type %T", value)
}

func index(value any, indexes []any) (any, error) {
	if value == nil {
		return nil, errors.New("index of untyped nil")
	}
	for _, i := range indexes {
		switch of := value.(type) {
		case map[string]any:
			key, ok := i.(string)
			if !ok {
				return nil, fmt.Errorf("value has type %T; should be string", i)
			}
			value = of[key]
		case []any:
			at, err := position(i, len(of)-1)
			if err != nil {
				return nil, err
			}
			value = of[at]
		case string:
			at, err := position(i, len(of)-1)
			if err != nil {
				return nil, err
			}
			value = of[at]
		default:
			return nil, fmt.Errorf("can't index item of type %T", value)
		}
	}
	return value, nil
}

// position returns an index that is at most so large.
func position(index any, most int) (int, error) {
	n, ok := whole(index)
	if !ok {
		return 0, fmt.Errorf("cannot index slice/array with type %T", index)
	}
	if n < 0 || n > int64(most) {
		return 0, fmt.Errorf("index out of range: %d", n)
	}
	return int(n), nil
}

func slice(value any, indexes []any) (any, error) {
	text, isText := value.(string)
	list, isList := value.([]any)
	most, to := cap(list), len(list)
	switch {
	case isText && len(indexes) == 3:
		return nil, errors.New("cannot 3-index slice a string")
	case isText:
		most, to = len(text), len(text)
	case !isList:
		return nil, fmt.Errorf("can't slice item of type %T", value)
	}
	at := []int{0, to, most}
	for i, index := range indexes {
		n, err := position(index, most)
		if err != nil {
			return nil, err
		}
		at[i] = n
	}
	if at[0] > at[1] || at[1] > at[2] {
		return nil, fmt.Errorf("invalid slice index: %v", at[:max(2, len(indexes))])
	}
	if isText {
		return text[at[0]:at[1]], nil
	}
	return list[at[0]:at[1]:at[2]], nil
}

// whole returns an integer.
func whole(value any) (n int64, ok bool) {
	switch value := value.(type) {
	case int:
		return int64(value), true
	case int64:
		return value, true
	case uint8: // of a string
		return int64(value), true
	}
	return 0, false
}

func fraction(value any) (f float64, ok bool) {
	switch value := value.(type) {
	case float64:
		return value, true
	case decimal:
		return float64(value), true
	}
	return 0, false
}

func equalsAny(value any, others []any) (bool, error) {
	for _, other := range others {
		if equal, err := equals(value, other); equal || err != nil {
			return equal, err
		}
	}
	return false, nil
}

func equals(a, b any) (bool, error) {
	if n, ok := whole(a); ok {
		if m, ok := whole(b); ok {
			return n == m, nil
		}
	}
	if x, ok := fraction(a); ok {
		if y, ok := fraction(b); ok {
			return x == y, nil
		}
	}
	if a == nil || b == nil {
		return a == nil && b == nil, nil
	}
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return a == b, nil
		}
	case bool:
		if b, ok := b.(bool); ok {
			return a == b, nil
		}
	case complex128:
		if b, ok := b.(complex128); ok {
			return a == b, nil
		}
	case lastMessage:
		if b, ok := b.(lastMessage); ok {
			return a == b, nil
		}
	case *view:
		if b, ok := b.(*view); ok {
			return a == b, nil
		}
	}
	return false, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
}

func less(a, b any) (bool, error) {
	if n, ok := whole(a); ok {
		if m, ok := whole(b); ok {
			return n < m, nil
		}
	}
	if x, ok := fraction(a); ok {
		if y, ok := fraction(b); ok {
			return x < y, nil
		}
	}
	if s, ok := a.(string); ok {
		if t, ok := b.(string); ok {
			return s < t, nil
		}
	}
	return false, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
}

func atMost(a, b any) (bool, error) {
	if is, err := less(a, b); is || err != nil {
		return is, err
	}
	return equals(a, b)
}

func opposite(is bool, err error) (bool, error) { return !is, err }
