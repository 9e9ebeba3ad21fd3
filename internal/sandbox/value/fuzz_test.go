package value_test

import (
	"bytes"
	"testing"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// FuzzDecode passes any bytes to the decoder. What it takes has a cost that was known before, is written again, and reads the same.
func FuzzDecode(f *testing.F) {
	for _, v := range []any{
		nil, value.Undefined{}, true, -1.5, "hé\x00", []byte{0, 255}, value.DateOf(-5), []any{[]any{}, "x", 1.0}, map[string]any{"__proto__": 1.0, "a": map[string]any{"b": nil}},
		&value.Map{Entries: [][2]any{{"k", nil}, {1.0, "v"}}}, &value.Set{Members: []any{1.0, "1"}}, value.FuncRef(3),
	} {
		b, err := value.Encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(bytes.Repeat([]byte{byte(value.TagArray), 1}, value.MaxDepth+2))
	f.Add([]byte{byte(value.TagObject), 0xFF, 0xFF, 0xFF, 0xFF, 0x0F})
	f.Add([]byte{byte(value.TagMap), 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		cost, costErr := value.Cost(b)
		if costErr == nil && cost < 0 {
			t.Fatalf("a cost of %d", cost)
		}
		v, err := value.DecodeWithFuncs(b)
		if err != nil {
			return
		}
		if costErr != nil {
			t.Fatalf("%#v is decoded, and its cost is unknown: %v", v, costErr)
		}
		once, err := value.Encode(v)
		if err != nil {
			t.Fatalf("%#v is decoded and cannot be encoded: %v", v, err)
		}
		again, err := value.DecodeWithFuncs(once)
		if err != nil {
			t.Fatalf("%#v is encoded as what cannot be decoded: %v", v, err)
		}
		if twice, err := value.Encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%#v became %#v, %v", v, again, err)
		}
	})
}
