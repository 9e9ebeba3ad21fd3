// Package value is how values cross between code in an isolate and the host (COD-07).
//
// What crosses, and its Go type:
//
//	undefined            Undefined
//	null                 nil
//	boolean              bool
//	number               float64 (Encode also takes every Go integer that a number holds exactly)
//	bigint               *big.Int
//	string               string (a lone surrogate becomes U+FFFD)
//	Date                 time.Time, UTC, in milliseconds
//	Array, typed array   []any
//	plain object         map[string]any
//	Map                  *Map
//	Set                  *Set
//	Uint8Array, buffer   []byte
//	a function           sandbox.FuncRef, only where the receiver can call back
//
// Any other Go value is encoded as encoding/json would write it. Functions, symbols, promises and cyclic
// values are refused with an error that names the place. Numbers that JSON lacks (NaN, the infinities, -0)
// cross unharmed.
//
// On the wire a value is a tag byte followed by its content, so bytes and strings travel as they are. Both
// ends bound what they read: depth, count of values and size.
package value

import (
	"encoding/json"
	"fmt"
	"math/big"
	"time"

	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/jsontype"
	"github.com/skein-dev/skein/internal/sandbox"
)

// These kinds of values have no Go counterpart. They are the same types that other programs see.
type (
	// Undefined is JavaScript's undefined.
	Undefined = values.Undefined
	// Map is a JavaScript Map with its entries in order.
	Map = values.Map
	// Set is a JavaScript Set with its members in order.
	Set = values.Set
)

// FuncRef is a function that lives in an isolate.
type FuncRef = sandbox.FuncRef

// Limits of every value, at both ends.
const (
	MaxDepth = values.MaxDepth // nesting of arrays, objects, maps and sets
	MaxNodes = 2_000_000       // values and property names in one value
	MaxBytes = 32 << 20        // encoded size
	// MaxBigIntBytes is the longest magnitude of a bigint, because converting one to text takes quadratic time.
	MaxBigIntBytes = 64 << 10
)

// Tag says what follows on the wire.
type Tag byte

// The tags. Their numbers are part of the protocol, because supervisor and manager may have different versions.
const (
	TagUndefined Tag = iota
	TagNull
	TagFalse
	TagTrue
	TagInt    // zigzag varint
	TagFloat  // 8 bytes, big endian
	TagString // uvarint length, UTF-8
	TagBigInt // sign byte, uvarint length, magnitude, big endian
	TagDate   // zigzag varint, milliseconds
	TagBytes  // uvarint length, bytes
	TagArray  // uvarint count, values
	TagObject // uvarint count, (uvarint length, name, value)
	TagMap    // uvarint count, (key, value)
	TagSet    // uvarint count, values
	TagFunc   // uvarint
)

// Error means that a value cannot be encoded, and says where in it.
type Error struct {
	Path   string // "" for the value itself, else a path such as .items[3].name
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Path == "" {
		return "this value cannot cross the sandbox: " + e.Reason
	}
	return fmt.Sprintf("the value at %s cannot cross the sandbox: %s", e.Path, e.Reason)
}

// maxSafe is the largest integer up to which a number represents every integer exactly.
const maxSafe = 1<<53 - 1

// DateOf returns the time for a Date's milliseconds.
func DateOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

func bigBytes(n *big.Int) int { return (n.BitLen() + 7) / 8 }

// ToJSON encodes a value as plain JSON, for readers that know only JSON: see values.Plain.
func ToJSON(v any) (json.RawMessage, error) { return values.Plain(v) }

// Into stores a value in dst as json.Unmarshal would store its JSON. Its error is for the author of the value: it says which field to
// give as what.
func Into(v, dst any) error {
	err := values.Into(v, dst)
	if err == nil {
		return nil
	}
	if field, text := jsontype.Wrong(err); field != "" {
		return fmt.Errorf("%s: %s", field, text)
	}
	return err
}
