package storetest

import (
	"encoding/json"
	"reflect"
)

// Filled returns a value of a struct type in which no exported field is empty. Tests convert or store it, and see with Unset whether
// a field was forgotten on the way.
func Filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes([]byte(`{"filled":1}`))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		element := reflect.New(v.Type().Elem()).Elem()
		fill(element)
		v.SetMapIndex(reflect.ValueOf("filled").Convert(v.Type().Key()), element)
	case reflect.Interface:
		v.Set(reflect.ValueOf("filled"))
	case reflect.String:
		v.SetString("filled")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(7)
	default:
		panic("storetest: no value for a field of type " + v.Type().String())
	}
}

// Unset returns the names of the exported fields of a struct that are empty.
func Unset(s any) (names []string) {
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() {
			names = append(names, f.Name)
		}
	}
	return names
}
