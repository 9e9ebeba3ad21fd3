package wire

import (
	"encoding/json"

	"github.com/tidwall/gjson"
)

// The types below decode answers. Servers that are compatible with a provider differ in details: a number where another sends a string,
// null where another sends nothing or an empty list. So a value of the wrong type makes no answer useless. It is converted, or
// counts as absent.

// Text is a string. Of another value it is the JSON, and of null it is empty.
type Text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(data []byte) error {
	*t = Text(gjson.ParseBytes(data).String())
	return nil
}

// Int is a whole number, also one in a string or with a fraction, which is cut off. Of another value it is 0.
type Int int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *Int) UnmarshalJSON(data []byte) error {
	*n = Int(gjson.ParseBytes(data).Int())
	return nil
}

// Object is an object, whose fields have types that decode anything. Another value is no object.
type Object[T any] struct {
	Value T
	// Present says that there is an object.
	Present bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object[T]) UnmarshalJSON(data []byte) error {
	*o = Object[T]{}
	if len(data) == 0 || data[0] != '{' {
		return nil
	}
	if err := json.Unmarshal(data, &o.Value); err != nil {
		return err
	}
	o.Present = true
	return nil
}

// List is a list of objects, whose fields have types that decode anything. Of another value, or with another value in it, it is empty.
type List[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *List[T]) UnmarshalJSON(data []byte) error {
	*l = nil
	var items []T
	if json.Unmarshal(data, &items) == nil {
		*l = items
	}
	return nil
}
