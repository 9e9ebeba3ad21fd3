package main

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// The expressions are in RE2, for strings in CEL. They limit the number of digits: a duration that matches fits into
// the 292 years of a time.Duration, and a quantity with an exponent of many digits takes hours to decode.
const (
	durationPattern = `^(0|([0-9]{1,5}(\.[0-9]{1,9})?h|[0-9]{1,7}(\.[0-9]{1,9})?m|[0-9]{1,9}(\.[0-9]{1,9})?(s|ms|us|µs|ns)){1,4})$`
	quantityPattern = `^[+-]?[0-9.]{1,30}([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`
	// listedQuantityRule is for the values of a list of limits, where quantityPattern would exceed the cost that older API servers
	// allow: they take each value for the longest one that a request can hold. So its expression is short: no resource of a pod may
	// be negative, and an exponent has one digit.
	listedQuantityRule = `!string(self).matches('-|[eE]..') && isQuantity(string(self))`
	dayPattern         = `((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))`
	timePattern        = `^[0-9]{4}-` + dayPattern + `T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	leapRule           = `!self.matches('^[0-9]{4}-02-29T') || (int(self.substring(0, 4)) % 4 == 0 && (int(self.substring(0, 4)) % 100 != 0 || int(self.substring(0, 4)) % 400 == 0))`

	durationMessage = "use a duration such as 10s, 5m or 1h30m; hours are the largest unit, so 30 days are 720h"
	quantityMessage = "use a quantity such as 500Mi, 2 or 0.5"
	listedMessage   = "use a quantity such as 500m or 1Gi; an exponent has one digit, and a minus is not allowed"
	timeMessage     = "use a time such as 2027-01-31T09:00:00Z"
	leapMessage     = "February has no 29th day in that year: " + timeMessage
)

// maxLength is the maximum length of strings with a rule, and maxListed the maximum number of values in a list of limits, because
// API servers estimate the cost of a rule from them.
const (
	maxLength = 64
	maxListed = 6
)

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// narrow makes a schema refuse what its Go type cannot decode.
func narrow(schema map[string]any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		matching(schema, matches("self", durationPattern), durationMessage)
		return
	case reflect.TypeFor[skeinv1.Timestamp]():
		matching(schema, matches("self", timePattern), timeMessage)
		guard(schema, matches("self", timePattern), leapRule, leapMessage)
		return
	case reflect.TypeFor[resource.Quantity]():
		delete(schema, "pattern")
		matching(schema, matches("string(self)", quantityPattern)+" && isQuantity(string(self))", quantityMessage)
		return
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return
	}
	switch t.Kind() {
	case reflect.Int32:
		bound(schema, math.MinInt32, math.MaxInt32)
	case reflect.Int, reflect.Int64:
		// JSON numbers are exact up to 2^53.
		bound(schema, -(1<<53 - 1), 1<<53-1)
	case reflect.Slice:
		if items := object(schema, "items"); items != nil {
			narrow(items, t.Elem())
		}
	case reflect.Map:
		values := object(schema, "additionalProperties")
		switch {
		case values == nil:
		case t.Elem() == reflect.TypeFor[resource.Quantity]():
			schema["maxProperties"] = int64(maxListed)
			delete(values, "pattern")
			matching(values, listedQuantityRule, listedMessage)
		default:
			narrow(values, t.Elem())
		}
	case reflect.Struct:
		boundOfKubernetes(schema, t)
		for name, property := range object(schema, "properties") {
			if f, ok := fieldOf(t, name); ok {
				narrow(property.(map[string]any), f)
			}
		}
	}
}

func matches(what, pattern string) string {
	return what + ".matches('" + strings.ReplaceAll(pattern, `\`, `\\`) + "')"
}

// matching adds a rule before the others of a schema, which then need not handle the values that it refuses.
func matching(schema map[string]any, rule, message string) {
	if _, ok := schema["maxLength"]; !ok {
		schema["maxLength"] = int64(maxLength)
	}
	list := []any{map[string]any{"rule": rule, "message": message}}
	old, _ := schema["x-kubernetes-validations"].([]any)
	for _, o := range old {
		r := o.(map[string]any)
		r["rule"] = "!(" + rule + ") || (" + r["rule"].(string) + ")"
		list = append(list, r)
	}
	schema["x-kubernetes-validations"] = list
}

// guard adds a rule for the values that the rule first accepts.
func guard(schema map[string]any, first, rule, message string) {
	list := schema["x-kubernetes-validations"].([]any)
	schema["x-kubernetes-validations"] = append(list, map[string]any{"rule": "!(" + first + ") || (" + rule + ")", "message": message})
}

// bound sets the limits that a schema lacks.
func bound(schema map[string]any, lowest, highest int64) {
	if _, ok := schema["minimum"]; !ok {
		schema["minimum"] = lowest
	}
	if _, ok := schema["maximum"]; !ok {
		schema["maximum"] = highest
	}
}

// ofKubernetes has the bounds of integers in types of Kubernetes, which their Go types do not name. The API server would accept
// another value in a SandboxPool, and refuse each of its pods.
var ofKubernetes = map[reflect.Type]map[string][2]int64{
	reflect.TypeFor[corev1.PreferredSchedulingTerm]():  {"weight": {1, 100}},
	reflect.TypeFor[corev1.WeightedPodAffinityTerm]():  {"weight": {1, 100}},
	reflect.TypeFor[corev1.TopologySpreadConstraint](): {"maxSkew": {1, math.MaxInt32}, "minDomains": {1, math.MaxInt32}},
}

// boundOfKubernetes sets the bounds of a type of Kubernetes.
func boundOfKubernetes(schema map[string]any, t reflect.Type) {
	for name, limits := range ofKubernetes[t] {
		if property := object(schema, "properties", name); property != nil {
			bound(property, limits[0], limits[1])
		}
	}
}

// fieldOf returns the type of the struct field with a JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type, true
		}
		if f.Anonymous && tag == "" && (options == "inline" || options == "") && f.Type.Kind() == reflect.Struct {
			if found, ok := fieldOf(f.Type, name); ok {
				return found, true
			}
		}
	}
	return nil, false
}
