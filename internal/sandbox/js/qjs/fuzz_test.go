//go:build linux && (amd64 || arm64)

package qjs

import (
	"bytes"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

// FuzzValues passes any bytes to both decoders, the manager's and the engine's. They must agree on what is a value,
// and the engine must encode a decoded value as it came in.
func FuzzValues(f *testing.F) {
	huge := new(big.Int).Lsh(big.NewInt(-3), 200)
	for _, v := range []any{
		nil, value.Undefined{}, true, 1.0, -1.5, math.NaN(), math.Copysign(0, -1), "hé\x00", huge, time.UnixMilli(-5).UTC(), []byte{0, 255}, []any{[]any{}, "x"},
		map[string]any{"__proto__": 1.0, "a": map[string]any{}}, &value.Map{Entries: [][2]any{{"k", nil}, {1.0, "v"}}}, &value.Set{Members: []any{1.0, "1"}},
	} {
		b, err := value.Encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(bytes.Repeat([]byte{byte(value.TagArray), 1}, 600))
	f.Add([]byte{byte(value.TagArray), 0xFF, 0xFF, 0xFF, 0xFF, 0x0F})
	f.Fuzz(func(t *testing.T, b []byte) {
		vm, err := New()
		if err != nil {
			t.Fatal(err)
		}
		defer vm.Close()
		want, err := value.Decode(b)
		v, engineErr := vm.Decode(b)
		if len(b) > 0 && (err == nil) != (engineErr == nil) {
			t.Fatalf("the manager says %v, the engine %v", err, engineErr)
		}
		if err != nil || engineErr != nil {
			return
		}
		defer vm.Free(v)
		out, err := vm.Encode(v, nil)
		if err != nil {
			t.Fatalf("%#v does not come back: %v", want, err)
		}
		defer vm.Release(out)
		got, err := value.Decode(out)
		if err != nil {
			t.Fatalf("%#v comes back malformed: %v", want, err)
		}
		if twice(t, got) != twice(t, want) {
			t.Fatalf("%#v comes back as %#v", want, got)
		}
		if _, err := value.ToJSON(got); err != nil {
			t.Fatal(err)
		}
	})
}

// twice returns a value in canonical form: encoding sorts names, and a second time there is nothing left to sort.
func twice(t *testing.T, v any) string {
	t.Helper()
	b, err := value.Encode(merged(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// merged keeps, of equal keys of a Map and of equal members of a Set, what the language keeps. Keys are compared by
// identity, which does not show here, so only the empty form of both is left.
func merged(v any) any {
	switch v := v.(type) {
	case *value.Map:
		return "a Map"
	case *value.Set:
		return "a Set"
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = merged(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name := range v {
			out[name] = merged(v[name])
		}
		return out
	}
	return v
}
