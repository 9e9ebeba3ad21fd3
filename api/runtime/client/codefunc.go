package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
)

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// codeFunc turns any Go function into one that code can call.
func codeFunc(v any) (CodeFunc, error) {
	if f, ok := v.(CodeFunc); ok && f != nil {
		return f, nil
	}
	f := reflect.ValueOf(v)
	t := f.Type()
	if f.IsNil() {
		return nil, errors.New("it is a nil function")
	}
	if n := t.NumOut(); n > 2 || n == 2 && t.Out(1) != errorType {
		return nil, fmt.Errorf("it is a %s: a function for code must return nothing, a value, an error, or a value and an error", t)
	}
	return func(ctx context.Context, args []any) (any, error) {
		in, err := arguments(ctx, t, args)
		if err != nil {
			return nil, err
		}
		return results(t, f.Call(in))
	}, nil
}

// arguments converts the arguments of a call to the parameter types of the function. A missing argument is the zero
// value, as undefined is.
func arguments(ctx context.Context, t reflect.Type, args []any) ([]reflect.Value, error) {
	var in []reflect.Value
	next := 0
	if t.NumIn() > 0 && t.In(0) == contextType {
		in, next = append(in, reflect.ValueOf(ctx)), 1
	}
	fixed := t.NumIn()
	if t.IsVariadic() {
		fixed--
	}
	for i := 0; ; i++ {
		var want reflect.Type
		switch {
		case next < fixed:
			want = t.In(next)
			next++
		case t.IsVariadic() && i < len(args):
			want = t.In(t.NumIn() - 1).Elem()
		default:
			return in, nil
		}
		v := reflect.New(want)
		if i < len(args) {
			if err := into(args[i], v); err != nil {
				return nil, &runtimev1.CodeError{Name: "TypeError", Message: fmt.Sprintf("argument %d: %v", i, err)}
			}
		}
		in = append(in, v.Elem())
	}
}

// into stores an argument: directly if its type fits, else as its JSON would be decoded.
func into(arg any, dst reflect.Value) error {
	if (arg == values.Undefined{}) && dst.Elem().Kind() != reflect.Interface {
		return nil
	}
	if v := reflect.ValueOf(arg); v.IsValid() && v.Type().AssignableTo(dst.Elem().Type()) {
		dst.Elem().Set(v)
		return nil
	}
	return values.Into(arg, dst.Interface())
}

func results(t reflect.Type, out []reflect.Value) (any, error) {
	if len(out) == 0 {
		return values.Undefined{}, nil
	}
	if t.Out(len(out)-1) == errorType {
		if err, _ := out[len(out)-1].Interface().(error); err != nil {
			return nil, err
		}
		out = out[:len(out)-1]
	}
	if len(out) == 0 {
		return values.Undefined{}, nil
	}
	return out[0].Interface(), nil
}
