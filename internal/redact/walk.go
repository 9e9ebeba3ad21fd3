package redact

import (
	"encoding/json"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// structural lists fields that contain no free text but names that relate things to each other. Skein or the cluster's
// users chose the names. A short secret that is part of such a name must not break the relation.
var structural = map[string]bool{
	"Namespace": true, "Name": true, "Agent": true, "Effect": true, "Reference": true, "Owner": true, "Digest": true,
	"To": true, "ThreadID": true, "RootID": true, "EnvRoot": true, "ParentID": true, "RunID": true, "MessageID": true, "ToolCallID": true,
	"EffectID": true, "KeyedBy": true, "SpawnGroupID": true, "MimeType": true, "Type": true, "Kind": true, "State": true, "Usage": true,
	"UserID": true, "ThreadName": true, "Parent": true, "Replaced": true, "Reason": true, "TerminatedReason": true,
	"Phase": true, "Language": true,
}

var (
	rawMessage   = reflect.TypeFor[json.RawMessage]()
	rawExtension = reflect.TypeFor[runtime.RawExtension]()
	objectMeta   = reflect.TypeFor[metav1.ObjectMeta]()
	plainString  = reflect.TypeFor[string]()
)

// Value redacts the secrets of a namespace in all texts that p, a pointer, leads to. Strings and maps are replaced and
// never changed in place, so that other holders see no change. Elements of slices and structs behind pointers are
// changed in place. Strings of a named type have one of a fixed set of values and stay.
func (r *Registry) Value(namespace string, p any) {
	if !r.HasSecrets(namespace) {
		return
	}
	if v := reflect.ValueOf(p); v.Kind() == reflect.Pointer && !v.IsNil() {
		r.walk(namespace, v.Elem())
	}
}

func (r *Registry) walk(namespace string, v reflect.Value) {
	switch {
	case !v.CanSet():
		return
	case v.Type() == rawMessage:
		v.SetBytes(r.JSON(namespace, v.Bytes()))
		return
	case v.Type() == rawExtension:
		raw := v.FieldByName("Raw")
		raw.SetBytes(r.JSON(namespace, raw.Bytes()))
		return
	case v.Type() == objectMeta:
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.Type() == plainString {
			v.SetString(r.Text(namespace, v.String()))
		}
	case reflect.Pointer:
		r.walkPointer(namespace, v)
	case reflect.Struct:
		for i := range v.NumField() {
			if !structural[v.Type().Field(i).Name] {
				r.walk(namespace, v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			r.walk(namespace, v.Index(i))
		}
	case reflect.Map:
		r.walkMap(namespace, v)
	case reflect.Interface:
		if !v.IsNil() {
			if clean, changed := r.tree(namespace, v.Interface()); changed {
				v.Set(reflect.ValueOf(clean))
			}
		}
	}
}

func (r *Registry) walkPointer(namespace string, v reflect.Value) {
	if v.IsNil() {
		return
	}
	if v.Type().Elem() == plainString {
		if s := v.Elem().String(); r.Text(namespace, s) != s {
			clean := r.Text(namespace, s)
			v.Set(reflect.ValueOf(&clean))
		}
		return
	}
	r.walk(namespace, v.Elem())
}

func (r *Registry) walkMap(namespace string, v reflect.Value) {
	if v.IsNil() || v.Type().Key().Kind() != reflect.String {
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	for it := v.MapRange(); it.Next(); {
		key := reflect.New(v.Type().Key()).Elem()
		key.Set(it.Key())
		r.walk(namespace, key)
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(it.Value())
		r.walk(namespace, value)
		out.SetMapIndex(key, value)
	}
	v.Set(out)
}
