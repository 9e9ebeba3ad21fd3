// Package values is how values cross between a Go program and code in a sandbox (COD-07): JSON, and what
// JavaScript has beyond it.
//
//	undefined            Undefined
//	null                 nil
//	boolean              bool
//	number               float64 (every Go integer that a number holds exactly is taken too)
//	bigint               *big.Int
//	string               string
//	Date                 time.Time, UTC, in milliseconds
//	Array                []any
//	plain object         map[string]any
//	Map                  *Map
//	Set                  *Set
//	Uint8Array, buffer   []byte
//
// Any other Go value is taken as encoding/json writes it. Over the wire of the runtime API a value is JSON in which
// what JSON lacks is an object of one name that begins with "$":
//
//	{"$undefined": true}          undefined
//	{"$number": "NaN"}            NaN, Infinity, -Infinity and -0
//	{"$bigint": "123"}
//	{"$date": 1700000000123}      milliseconds since 1970
//	{"$bytes": "aGVsbG8="}        base64
//	{"$map": [["key", "value"]]}
//	{"$set": ["member"]}
//	{"$object": {"$bigint": 1}}   a plain object that would be taken for one of these
package values

import (
	"fmt"
	"time"
)

// Undefined is JavaScript's undefined. It marshals to null, and Plain omits properties that have it.
type Undefined struct{}

// MarshalJSON implements json.Marshaler.
func (Undefined) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// Map is a JavaScript Map with its entries in order.
type Map struct{ Entries [][2]any }

// Set is a JavaScript Set with its members in order.
type Set struct{ Members []any }

// MaxDepth is the maximum depth of nested arrays, objects, maps and sets.
const MaxDepth = 500

// maxSafe is the largest integer up to which a number represents every integer exactly.
const maxSafe = 1<<53 - 1

// maxDate is the largest Date either way, in milliseconds (ECMA-262).
const maxDate = 8_640_000_000_000_000

// The tags for values that JSON lacks.
const (
	tagUndefined = "$undefined"
	tagNumber    = "$number"
	tagBigInt    = "$bigint"
	tagDate      = "$date"
	tagBytes     = "$bytes"
	tagMap       = "$map"
	tagSet       = "$set"
	tagObject    = "$object"
)

// tagged reports whether an object would be mistaken for one of our tagged values.
func tagged[V any](object map[string]V) bool {
	if len(object) != 1 {
		return false
	}
	for name := range object {
		return len(name) > 0 && name[0] == '$'
	}
	return false
}

func tooDeep() error {
	return fmt.Errorf("it nests deeper than %d levels, or contains itself", MaxDepth)
}

func dateOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
