// Package lenient decodes objects of which some fields cannot be decoded.
//
// A schema is looser than a Go type: an API server may keep a value that a client cannot decode, for example in an object
// that is older than the schema. A list with one such object fails as a whole, and so does every cache of its kind. Kinds that
// decode themselves with [Unmarshal] lose only the fields that cannot be decoded, and say which.
package lenient

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// maxProblems bounds how many fields a [Problem] names.
const maxProblems = 5

// Problem names the fields of an object that could not be decoded, each with its path and the reason. It is nil when all
// fields were decoded.
type Problem []string

// String returns the fields as one line: at most maxProblems of them and how many more there are, and "" when there are none.
func (p Problem) String() string {
	shown := p
	if len(shown) > maxProblems {
		shown = append(shown[:maxProblems:maxProblems], fmt.Sprintf("and %d more", len(p)-maxProblems))
	}
	return strings.Join(shown, "; ")
}

// Unmarshal decodes a JSON object into the struct that into points to, as the Kubernetes clients do: names of fields are
// case-sensitive, and unknown fields are ignored. A field that cannot be decoded keeps its zero value and is named in the
// Problem; the fields beside it are decoded. Unmarshal fails only when data is not a JSON object.
func Unmarshal(data []byte, into any) (Problem, error) {
	if !longExponent(data) && kjson.UnmarshalCaseSensitivePreserveInts(data, into) == nil {
		return nil, nil
	}
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("decode into %T: want a pointer to a struct", into)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	v.Elem().SetZero() // the first attempt may have left something
	d := decoder{}
	d.object(fields, v.Elem(), "")
	return d.problem, nil
}

// decoder collects what could not be decoded.
type decoder struct{ problem Problem }

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// value decodes raw into v as far as possible and reports whether anything of it was decoded.
func (d *decoder) value(raw json.RawMessage, v reflect.Value, path string) bool {
	err := errSlow
	if !longExponent(raw) || quick(v.Type()) {
		if err = kjson.UnmarshalCaseSensitivePreserveInts(raw, v.Addr().Interface()); err == nil {
			return true
		}
		v.SetZero()
	}
	if v.Kind() == reflect.Pointer {
		elem := reflect.New(v.Type().Elem())
		if !d.value(raw, elem.Elem(), path) {
			return false
		}
		v.Set(elem)
		return true
	}
	if !v.Addr().Type().Implements(unmarshaler) {
		switch v.Kind() {
		case reflect.Struct:
			var fields map[string]json.RawMessage
			if json.Unmarshal(raw, &fields) == nil {
				d.object(fields, v, path)
				return true
			}
		case reflect.Slice:
			var items []json.RawMessage
			if json.Unmarshal(raw, &items) == nil {
				v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
				for i, item := range items {
					d.value(item, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
				}
				return true
			}
		case reflect.Map:
			var items map[string]json.RawMessage
			if v.Type().Key().Kind() == reflect.String && json.Unmarshal(raw, &items) == nil {
				d.mapping(items, v, path)
				return true
			}
		}
	}
	d.problem = append(d.problem, path+": "+explain(v.Type(), err))
	return false
}

// object decodes the fields of a struct, those of embedded structs included.
func (d *decoder) object(fields map[string]json.RawMessage, v reflect.Value, path string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || (!f.IsExported() && !f.Anonymous) {
			continue
		}
		if f.Anonymous && name == "" {
			if f.Type.Kind() == reflect.Struct {
				d.object(fields, v.Field(i), path)
			}
			continue
		}
		if name == "" {
			name = f.Name
		}
		if raw, ok := fields[name]; ok {
			d.value(raw, v.Field(i), strings.TrimPrefix(path+"."+name, "."))
		}
	}
}

// mapping decodes the values of a map. Values of which nothing could be decoded are left out.
func (d *decoder) mapping(items map[string]json.RawMessage, v reflect.Value, path string) {
	v.Set(reflect.MakeMapWithSize(v.Type(), len(items)))
	for key, raw := range items {
		item := reflect.New(v.Type().Elem()).Elem()
		if d.value(raw, item, path+"."+key) {
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
		}
	}
}

// explain says what a field of a type takes, and why the value is not that where the type does not say it all.
func explain(t reflect.Type, err error) string {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "use a duration such as 10s, 5m or 1h30m"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "use a time such as 2027-01-31T09:00:00Z"
	case reflect.TypeFor[resource.Quantity]():
		return "use a quantity such as 500Mi, 2 or 0.5"
	}
	switch t.Kind() {
	case reflect.Int32:
		return "use a whole number from -2147483648 to 2147483647"
	case reflect.Int, reflect.Int64:
		return "use a whole number from -9223372036854775808 to 9223372036854775807"
	case reflect.String:
		return "use a string; put quotes around it"
	case reflect.Bool:
		return "use true or false"
	case reflect.Slice:
		return "use a list"
	case reflect.Map, reflect.Struct:
		if !reflect.PointerTo(t).Implements(unmarshaler) {
			return "use an object"
		}
	}
	var typed interface{ Unwrap() error }
	if errors.As(err, &typed) {
		err = typed.Unwrap()
	}
	return err.Error()
}

// errSlow stands for the error of a value that is not decoded because that could take hours.
var errSlow = errors.New("its exponent has too many digits")

// quick reports whether values of a type are decoded in a time that does not depend on their exponent. Quantities are not:
// 1e-999999999 takes hours, and so would a list that holds it. Containers may hold one.
func quick(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer:
		return t != reflect.TypeFor[resource.Quantity]() && reflect.PointerTo(t).Implements(unmarshaler)
	}
	return true
}

// longExponent reports whether data holds what looks like a number with an exponent of four digits or more, such as
// 1e-999999999. Parts of other texts may look so too.
func longExponent(data []byte) bool {
	for i := 1; i+4 < len(data); i++ {
		if data[i] != 'e' && data[i] != 'E' {
			continue
		}
		if before := data[i-1]; before != '.' && !digit(before) {
			continue
		}
		rest := data[i+1:]
		if rest[0] == '-' || rest[0] == '+' {
			rest = rest[1:]
		}
		if len(rest) >= 4 && digit(rest[0]) && digit(rest[1]) && digit(rest[2]) && digit(rest[3]) {
			return true
		}
	}
	return false
}

func digit(b byte) bool { return '0' <= b && b <= '9' }
