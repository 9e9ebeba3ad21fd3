// Package jsontype explains JSON values of the wrong type to people who write JSON, not Go.
package jsontype

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Wrong returns the path of the field whose JSON value has the wrong type, "" for the whole value, and what to give instead. The path is
// that of encoding/json, such as "content" or "items.name". For any other error it returns "" and the error's text.
func Wrong(err error) (field, text string) {
	var e *json.UnmarshalTypeError
	if !errors.As(err, &e) || e.Type == nil {
		return "", err.Error()
	}
	want := "another value"
	switch e.Type.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		want = fmt.Sprintf("a whole number of at most %d bits", e.Type.Bits())
	case reflect.Float32, reflect.Float64:
		want = "a number"
	case reflect.String:
		want = "a string"
	case reflect.Slice, reflect.Array:
		want = "an array"
	case reflect.Map, reflect.Struct:
		want = "an object"
	}
	return e.Field, fmt.Sprintf("give %s, not a JSON %s", want, e.Value)
}
