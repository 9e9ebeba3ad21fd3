package values_test

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/api/runtime/values"
)

func TestValues(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Values of code")
}

var _ = Describe("Values over the wire", Label("COD-07"), func() {
	huge, _ := new(big.Int).SetString("-1234567890123456789012345678901234567890", 10)

	DescribeTable("are exact", func(v any, wire string) {
		raw, err := values.Marshal(v)
		Expect(err).NotTo(HaveOccurred())
		Expect(raw).To(MatchJSON(wire))
		back, err := values.Unmarshal(raw)
		Expect(err).NotTo(HaveOccurred())
		if v == nil {
			Expect(back).To(BeNil())
			return
		}
		Expect(back).To(Equal(v))
	},
		Entry("null", nil, `null`),
		Entry("text", "a<b>\u2028", `"a<b>\u2028"`),
		Entry("a number", 1.5, `1.5`),
		Entry("infinity", math.Inf(-1), `{"$number":"-Infinity"}`),
		Entry("undefined", values.Undefined{}, `{"$undefined":true}`),
		Entry("a bigint", huge, `{"$bigint":"-1234567890123456789012345678901234567890"}`),
		Entry("a Date", time.UnixMilli(1700000000123).UTC(), `{"$date":1700000000123}`),
		Entry("bytes", []byte("hello"), `{"$bytes":"aGVsbG8="}`),
		Entry("a Map", &values.Map{Entries: [][2]any{{"k", 1.0}, {[]any{}, values.Undefined{}}}}, `{"$map":[["k",1],[[],{"$undefined":true}]]}`),
		Entry("a Set", &values.Set{Members: []any{big.NewInt(1), "x"}}, `{"$set":[{"$bigint":"1"},"x"]}`),
		Entry("nested", map[string]any{"a": []any{map[string]any{"$x": 1.0, "y": nil}}}, `{"a":[{"$x":1,"y":null}]}`),
		Entry("what looks like one of ours", map[string]any{"$bigint": "7"}, `{"$object":{"$bigint":"7"}}`),
		Entry("what looks like that", map[string]any{"$object": map[string]any{"$map": 1.0}}, `{"$object":{"$object":{"$object":{"$map":1}}}}`),
	)

	It("tell NaN and the two zeros apart", func() {
		raw, err := values.Marshal([]any{math.NaN(), math.Copysign(0, -1), 0.0})
		Expect(err).NotTo(HaveOccurred())
		back, err := values.Unmarshal(raw)
		Expect(err).NotTo(HaveOccurred())
		list := back.([]any)
		Expect(math.IsNaN(list[0].(float64))).To(BeTrue())
		Expect(math.Signbit(list[1].(float64))).To(BeTrue())
		Expect(math.Signbit(list[2].(float64))).To(BeFalse())
	})

	It("take other Go values as JSON has them", func() {
		type row struct {
			N int64           `json:"n"`
			T json.RawMessage `json:"t"`
		}
		Expect(values.Marshal([]any{row{7, json.RawMessage(`{"$x":1}`)}, int8(3), float32(0.5), json.RawMessage(`[1]`), []int{1}})).To(
			MatchJSON(`[{"n":7,"t":{"$object":{"$x":1}}},3,0.5,[1],[1]]`))
	})

	DescribeTable("are refused where they cannot cross", func(v any, message string) {
		_, err := values.Marshal(v)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("an integer that no number holds", int64(1<<60), "use *big.Int"),
		Entry("an unsigned one", uint64(1<<60), "use *big.Int"),
		Entry("a function", func() {}, "a function cannot be a value"),
		Entry("a channel", make(chan int), "unsupported type"),
	)

	It("are refused when they contain themselves", func() {
		cycle := []any{nil}
		cycle[0] = cycle
		_, err := values.Marshal(cycle)
		Expect(err).To(MatchError(ContainSubstring("contains itself")))
	})

	DescribeTable("are refused where they are malformed", func(wire, message string) {
		_, err := values.Unmarshal([]byte(wire))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("no JSON", `{`, "not a JSON value"),
		Entry("an unknown tag", `{"$weird":1}`, `{"$object": {…}}`),
		Entry("a bigint", `{"$bigint":7}`, "digits"),
		Entry("a bigint that is none", `{"$bigint":"0x7"}`, "digits"),
		Entry("a number", `{"$number":"1"}`, `"NaN"`),
		Entry("a date", `{"$date":"2026"}`, "milliseconds"),
		Entry("a date beyond", `{"$date":1e17}`, "milliseconds"),
		Entry("bytes", `{"$bytes":"%"}`, "base64"),
		Entry("a map", `{"$map":[[1]]}`, "[key, value]"),
		Entry("a set", `{"$set":1}`, "an array"),
		Entry("an object", `{"$object":1}`, "an object"),
		Entry("too deep", nested(600), "nests deeper"),
	)
})

func nested(n int) string {
	out := ""
	for range n {
		out += "["
	}
	for range n {
		out += "]"
	}
	return out
}

func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{`null`, `{"$map":[[{"$set":[{"$bigint":"7"}]},{"$bytes":""}]]}`, `{"$object":{"$number":"-0"}}`, `[{"$date":0},{"$undefined":true}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := values.Unmarshal(data)
		if err != nil {
			return
		}
		once, err := values.Marshal(v)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := values.Unmarshal(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if twice, _ := values.Marshal(again); string(once) != string(twice) {
			t.Fatalf("%s became %s", once, twice)
		}
	})
}

var _ = Describe("Values that have to be JSON", Label("KVS-01", "STA-05"), func() {
	DescribeTable("are written as they are, or refused with the reason", func(v any, exact, serialized string) {
		for i, write := range []func(any) (json.RawMessage, error){values.JSON, values.Serialized} {
			raw, err := write(v)
			if want := []string{exact, serialized}[i]; want[0] != '!' {
				Expect(err).NotTo(HaveOccurred())
				Expect(raw).To(MatchJSON(want))
			} else {
				Expect(err).To(BeAssignableToTypeOf(&values.NotJSONError{}))
				Expect(err).To(MatchError(want[1:]))
			}
		}
	},
		Entry("JSON", map[string]any{"a": []any{1.5, "x", nil, true}, "gone": values.Undefined{}}, `{"a":[1.5,"x",null,true]}`, `{"a":[1.5,"x",null,true]}`),
		Entry("a Date", time.UnixMilli(0).UTC(), `"1970-01-01T00:00:00.000Z"`, `"1970-01-01T00:00:00.000Z"`),
		Entry("NaN", map[string]any{"a": []any{math.NaN()}}, `!the number NaN: give null or a text instead, at .a[0]`, `{"a":[null]}`),
		Entry("an infinity", math.Inf(-1), `!the number -Infinity: give null or a text instead`, `null`),
		Entry("a bigint", map[string]any{"n": big.NewInt(10)}, `!a bigint: give a number or a text instead, at .n`, `!a bigint: give a number or a text instead, at .n`),
		Entry("a bigint in a Map", &values.Map{Entries: [][2]any{{"a", big.NewInt(1)}}}, `!a Map: give Object.fromEntries(map) instead`, `!a bigint: give a number or a text instead, at (entry)`),
		Entry("a Set", &values.Set{Members: []any{1.0}}, `!a Set: give an array, [...set], instead`, `[1]`),
		Entry("bytes", []byte{1}, `!bytes: keep them in a file, or as a base64 text`, `"AQ=="`),
		Entry("undefined in a list", []any{values.Undefined{}}, `!undefined in a list: give null instead, at [0]`, `[null]`),
	)

	It("have a bound to their depth", func() {
		var deep any = 1.0
		for range 2 * values.MaxDepth {
			deep = []any{deep}
		}
		_, err := values.JSON(deep)
		Expect(err).To(MatchError(ContainSubstring("nests deeper than 500 levels")))
	})
})
