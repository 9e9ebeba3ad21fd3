package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

var _ = Describe("patches", Label("EVT-02"), func() {
	It("turn any value into any other", func() {
		rapid.Check(GinkgoTB(), func(t *rapid.T) {
			from, to := values(t, "from"), values(t, "to")
			changes, err := difference(from, to)
			if err != nil {
				t.Fatal(err)
			}
			parts := []string{"list", "a~/b"}
			var before, after struct{ Value json.RawMessage }
			must(t, json.Unmarshal(from.encode(parts), &before))
			must(t, json.Unmarshal(to.encode(parts), &after))
			got := []byte(before.Value)
			if body := patch(1, parts, changes); body != nil {
				var u struct{ Patch json.RawMessage }
				must(t, json.Unmarshal(body, &u))
				p, err := jsonpatch.DecodePatch(u.Patch)
				must(t, err)
				if got, err = p.Apply(got); err != nil {
					t.Fatalf("%v: %s to %s", err, u.Patch, before.Value)
				}
			}
			if !reflect.DeepEqual(decoded(t, got), decoded(t, after.Value)) {
				t.Fatalf("%s became %s, not %s", before.Value, got, after.Value)
			}
		})
	})

	It("name no member whose name is empty, which clients would not find", func() {
		part := func(json string) *Value { return &Value{Parts: map[string]Part{"a": {JSON: []byte(json)}}} }
		changes, err := difference(part(`{"b":{"":{"c":1}}}`), part(`{"b":{"":{"c":2}}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(patch(1, []string{"a"}, changes))).To(Equal(`{"v":1,"patch":[{"op":"replace","path":"/a","value":{"b":{"":{"c":2}}}}]}`))
	})

	It("name one removal where the window of a list moves", func() {
		list := func(ids ...int) *Value {
			p := Part{List: true}
			for _, id := range ids {
				p.Items = append(p.Items, Item{ID: fmt.Sprint(id), JSON: fmt.Appendf(nil, `{"id":%d,"text":"long"}`, id)})
			}
			return &Value{Parts: map[string]Part{"m": p}}
		}
		changes, err := difference(list(1, 2, 3, 4), list(3, 4, 5))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(patch(1, []string{"m"}, changes))).To(Equal(
			`{"v":1,"patch":[{"op":"remove","path":"/m/1"},{"op":"remove","path":"/m/0"},{"op":"add","path":"/m/2","value":{"id":5,"text":"long"}}]}`))
	})
})

func decoded(t *rapid.T, body []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	must(t, d.Decode(&v))
	return v
}

func must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// values draws a value with a list and a part whose name has to be escaped.
func values(t *rapid.T, name string) *Value {
	ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 6), 0, 6, rapid.ID[int]).Draw(t, name)
	list := Part{List: true}
	for _, id := range ids {
		list.Items = append(list.Items, Item{ID: fmt.Sprint(id), JSON: fmt.Appendf(nil, `{"id":%d,"x":%s}`, id, document(1).Draw(t, "item"))})
	}
	return &Value{Parts: map[string]Part{"list": list, "a~/b": {JSON: json.RawMessage(document(3).Draw(t, name))}}}
}

// document generates JSON with members that need escapes, nulls and empty parts.
func document(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		most := 6
		if depth == 0 {
			most = 4
		}
		switch rapid.IntRange(0, most).Draw(t, "kind") {
		case 0:
			return "null"
		case 1:
			return rapid.SampledFrom([]string{"true", "false", `""`, "0"}).Draw(t, "plain")
		case 2:
			return rapid.SampledFrom([]string{"1", "1795416901000001", "-2.5", "1e400"}).Draw(t, "number")
		case 3, 4:
			return rapid.SampledFrom([]string{`"x"`, `"ä/~\n"`, `"y"`}).Draw(t, "text")
		case 5:
			out := "["
			for i := range rapid.IntRange(0, 3).Draw(t, "length") {
				if i > 0 {
					out += ","
				}
				out += document(depth-1).Draw(t, "element")
			}
			return out + "]"
		}
		out := "{"
		for i, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "a", "b~1", "c/d", "0"}), 0, 4, rapid.ID[string]).Draw(t, "keys") {
			if i > 0 {
				out += ","
			}
			out += fmt.Sprintf("%q:%s", key, document(depth-1).Draw(t, "member"))
		}
		return out + "}"
	})
}
