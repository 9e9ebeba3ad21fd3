package value_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/sandbox/value"
)

func TestValue(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox values")
}

// anyValue draws any value that can be encoded.
func anyValue(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Just[any](value.Undefined{}), rapid.Bool().AsAny(), rapid.String().AsAny(),
		rapid.Float64().Filter(func(f float64) bool { return f == f }).AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(),
		rapid.Custom(func(t *rapid.T) any { return time.UnixMilli(rapid.Int64Range(-8e15, 8e15).Draw(t, "ms")).UTC() }),
		rapid.Custom(func(t *rapid.T) any {
			n := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "magnitude"))
			if rapid.Bool().Draw(t, "negative") {
				n.Neg(n)
			}
			return n
		}),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	inner := anyValue(depth - 1)
	return rapid.OneOf(append(leaves,
		rapid.SliceOfN(inner, 0, 5).AsAny(),
		rapid.MapOfN(rapid.String(), inner, 0, 5).AsAny(),
		rapid.Custom(func(t *rapid.T) any { return &value.Set{Members: rapid.SliceOfN(inner, 0, 5).Draw(t, "members")} }),
		rapid.Custom(func(t *rapid.T) any {
			m := &value.Map{Entries: make([][2]any, rapid.IntRange(0, 4).Draw(t, "size"))}
			for i := range m.Entries {
				m.Entries[i] = [2]any{inner.Draw(t, "key"), inner.Draw(t, "value")}
			}
			return m
		}),
	)...)
}

var _ = Describe("values", Label("COD-07"), func() {
	It("are the same after a round trip", func() {
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			v := anyValue(3).Draw(t, "value")
			b, err := value.Encode(v)
			if err != nil {
				t.Fatal(err)
			}
			got, err := value.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			again, err := value.Encode(got)
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%#v became %#v", v, got)
			}
		})
	})

	It("that were decoded from damaged bytes can be encoded again", func() {
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			b, err := value.Encode(anyValue(3).Draw(t, "value"))
			if err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				switch i := rapid.IntRange(0, len(b)-1).Draw(t, "at"); rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					b[i] = rapid.Byte().Draw(t, "byte")
				case 1:
					b = append(b[:i:i], b[i+1:]...)
				case 2:
					b = append(b, rapid.Byte().Draw(t, "more"))
				}
				if len(b) == 0 {
					break
				}
			}
			if v, err := value.DecodeWithFuncs(b); err == nil {
				if _, err := value.Encode(v); err != nil {
					t.Fatalf("decoded what cannot be encoded: %v", err)
				}
			}
		})
	})

	DescribeTable("that are hostile are refused", func(b []byte, why string) {
		_, err := value.Decode(b)
		Expect(err).To(MatchError(value.ErrMalformed))
		Expect(err).To(MatchError(ContainSubstring(why)))
	},
		Entry("nothing", []byte{}, "ends early"),
		Entry("an unknown tag", []byte{200}, "unknown tag"),
		Entry("more after the end", []byte{byte(value.TagNull), 0}, "left over"),
		Entry("a count beyond the end", []byte{byte(value.TagArray), 0xFF, 0xFF, 0x7F}, "count beyond the end"),
		Entry("a length beyond the end", []byte{byte(value.TagString), 0x7F, 'x'}, "length beyond the end"),
		Entry("a huge count", append([]byte{byte(value.TagMap)}, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01), "count beyond the end"),
		Entry("an endless integer", append([]byte{byte(value.TagInt)}, bytes.Repeat([]byte{0xFF}, 20)...), "bad integer"),
		Entry("an integer beyond 2^53", []byte{byte(value.TagInt), 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, "out of range"),
		Entry("text that is not UTF-8", []byte{byte(value.TagString), 1, 0xFF}, "not UTF-8"),
		Entry("a date beyond time", []byte{byte(value.TagDate), 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F}, "date out of range"),
		Entry("a bigint that is too long", append([]byte{byte(value.TagBigInt), 0, 0x81, 0x80, 0x04}, make([]byte, 65537)...), "bigint out of bounds"),
		Entry("endless nesting", bytes.Repeat([]byte{byte(value.TagArray), 1}, 1000), "nested deeper than 500"),
		Entry("a function", []byte{byte(value.TagFunc), 1}, "function where none"),
		Entry("too many values", append(append([]byte{byte(value.TagArray)}, 0x81, 0x89, 0x7a), make([]byte, 2_000_001)...), "more than 2000000"),
	)

	DescribeTable("of Go that cannot cross say where and why", func(v any, message string) {
		_, err := value.Encode(v)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("a function", map[string]any{"a": []any{1, func() {}}}, "the value at .a[1] cannot cross the sandbox: a Go function"),
		Entry("a channel", make(chan int), "unsupported type"),
		Entry("an integer that is not exact", []any{int64(1) << 60}, "the value at [0] cannot cross the sandbox: the integer 1152921504606846976 is not exact as a number"),
		Entry("raw JSON that is none", json.RawMessage("{"), "it is not JSON"),
		Entry("nesting", func() any {
			var v any
			for range 600 {
				v = []any{v}
			}
			return v
		}(), "nests deeper than 500 levels"),
		Entry("too many", make([]any, 2_000_001), "more than 2000000 values"),
		Entry("too large", strings.Repeat("x", value.MaxBytes+1), "larger than 32 MiB"),
	)

	It("of other Go types cross as encoding/json would write them", func() {
		type record struct {
			Name string    `json:"name"`
			At   time.Time `json:"at,omitzero"`
			N    *int      `json:"n"`
		}
		n := 3
		b, err := value.Encode([]any{record{Name: "x", N: &n}, int32(-5), uint8(7), float32(0.5), json.RawMessage(`{"a":[1,null]}`), json.Number("12"), map[string]string{"k": "v"}, []string{"s"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(value.Decode(b)).To(Equal([]any{
			map[string]any{"name": "x", "n": 3.0}, -5.0, 7.0, 0.5, map[string]any{"a": []any{1.0, nil}}, 12.0, map[string]any{"k": "v"}, []any{"s"},
		}))
	})

	It("become plain JSON for those who know no more", func() {
		raw, err := value.ToJSON(map[string]any{
			"gone": value.Undefined{}, "list": []any{value.Undefined{}, math.NaN(), big.NewInt(5)}, "at": time.UnixMilli(1500).UTC(), "b": []byte{1, 2},
			"map": &value.Map{Entries: [][2]any{{"k", 1.0}}}, "pairs": &value.Map{Entries: [][2]any{{1.0, 2.0}}}, "set": &value.Set{Members: []any{"m"}},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(raw).To(MatchJSON(`{"list":[null,null,5],"at":"1970-01-01T00:00:01.500Z","b":"AQI=","map":{"k":1},"pairs":[[1,2]],"set":["m"]}`))
		_, err = value.ToJSON([]any{value.FuncRef(1)})
		Expect(err).To(MatchError(ContainSubstring("a function")))
		var into struct{ Map map[string]int }
		Expect(value.Into(map[string]any{"map": &value.Map{Entries: [][2]any{{"k", 1.0}}}}, &into)).To(Succeed())
		Expect(into.Map).To(HaveKeyWithValue("k", 1))
	})
})
