package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/tool"
)

func TestTool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Tools")
}

const schema = `{"type":"object","required":["path"],"additionalProperties":false,"properties":{
	"path":{"type":"string","minLength":1},"n":{"type":"integer","minimum":0},"kind":{"enum":["a","b"]},"list":{"type":"array","items":{"type":"number"}}}}`

var _ = Describe("Arguments", Label("TOL-02"), func() {
	DescribeTable("are validated against the schema", func(arguments, want string) {
		s, err := tool.CompileSchema(json.RawMessage(schema))
		Expect(err).NotTo(HaveOccurred())
		got, err := s.Check(arguments)
		if want == "" {
			Expect(err).NotTo(HaveOccurred())
			Expect(got).To(MatchJSON(arguments))
			return
		}
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("valid", `{"path":"/a","n":3,"kind":"b","list":[1,2.5]}`, ""),
		Entry("missing", `{"n":1}`, "the object: missing property 'path'"),
		Entry("wrong type", `{"path":1}`, "/path: got number, want string"),
		Entry("too small", `{"path":"x","n":-1}`, "/n: minimum: got -1, want 0"),
		Entry("not in the list", `{"path":"x","kind":"c"}`, "/kind: value must be one of 'a', 'b'"),
		Entry("unknown property", `{"path":"x","more":1}`, "additional properties 'more' not allowed"),
		Entry("nested", `{"path":"x","list":[1,"two"]}`, "/list/1: got string, want number"),
		Entry("several", `{"path":1,"n":"x"}`, "/path: got number, want string"),
		Entry("truncated", `{"path":"x`, "not valid JSON"),
		Entry("two values", `{"path":"x"} {}`, "not valid JSON"),
		Entry("a list", `[]`, "not a JSON object"),
		Entry("too large", `{"path":"`+strings.Repeat("x", 2<<20)+`"}`, "put large data into a file"),
	)

	It("may be left out where nothing is needed", func() {
		s, err := tool.CompileSchema(nil)
		Expect(err).NotTo(HaveOccurred())
		for _, none := range []string{"", " ", "null", "{}"} {
			got, err := s.Check(none)
			Expect(err).NotTo(HaveOccurred())
			Expect(got).To(MatchJSON(`{}`))
		}
	})

	It("are not checked by anything outside of the schema", func() {
		for _, ref := range []string{"file:///etc/passwd", "http://127.0.0.1/schema", "other.json"} {
			_, err := tool.CompileSchema(json.RawMessage(`{"$ref":"` + ref + `"}`))
			Expect(err).To(MatchError(ContainSubstring("must stay within the schema")))
		}
		_, err := tool.CompileSchema(json.RawMessage(`{"$defs":{"p":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/p"}}}`))
		Expect(err).NotTo(HaveOccurred())
	})
})

type fake struct {
	name   string
	hidden bool
	calls  []tool.Call
}

func (f *fake) Definition() tool.Definition {
	return tool.Definition{Name: f.name, Hidden: f.hidden, Parameters: json.RawMessage(`{"type":"object"}`)}
}

func (f *fake) Call(_ context.Context, c tool.Call) tool.Result {
	f.calls = append(f.calls, c)
	return tool.Success("called")
}

var _ = Describe("A set of tools", func() {
	It("lists no hidden tool, but can call it", func() {
		shown, hidden := &fake{name: "shown"}, &fake{name: "hidden", hidden: true}
		s, err := tool.NewSet(shown, hidden)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Definitions()).To(HaveExactElements(HaveField("Name", "shown")))
		Expect(s.Call(context.Background(), tool.Call{ID: "1", Name: "hidden", Repeat: true})).To(Equal(tool.Success("called")))
		Expect(hidden.calls).To(Equal([]tool.Call{{ID: "1", Name: "hidden", Repeat: true, Arguments: json.RawMessage("{}")}}))
		Expect(s.Call(context.Background(), tool.Call{Name: "none"}).Content).To(Equal(`there is no tool "none": call one of shown`))
	})
	It("suggests names like one that does not exist", func() {
		list := []tool.Tool{&fake{name: "order_totals"}, &fake{name: "read_file"}, &fake{name: "read_files"}, &fake{name: "x"}}
		s, err := tool.NewSet(list...)
		Expect(err).NotTo(HaveOccurred())
		for wrong, right := range map[string]string{
			"orderTotals": "did you mean order_totals?", "order-total": "did you mean order_totals?", "readfile": "did you mean read_file or read_files?",
			"functions.read_file": "did you mean read_file", "totals": "did you mean order_totals?", "weather": "call one of order_totals, read_file",
		} {
			Expect(s.Call(context.Background(), tool.Call{Name: wrong}).Content).To(ContainSubstring(right), wrong)
		}
		s.Note("more later")
		Expect(s.NamesFor("none")).To(HaveSuffix("read_files, x. more later"))
		for i := range 200 {
			list = append(list, &fake{name: fmt.Sprint("many_", i)})
		}
		s, err = tool.NewSet(list...)
		Expect(err).NotTo(HaveOccurred())
		Expect(len(s.NamesFor("none"))).To(BeNumerically("<", 1000))
		Expect(s.NamesFor(strings.Repeat("none", 1<<16))).To(ContainSubstring("and 154 more"))
	})
	DescribeTable("gives up checks that a schema makes endless", func(level, value string) {
		defs := `"d0":{"type":["string","number"]}`
		for i := 1; i <= 40; i++ {
			defs += fmt.Sprintf(`,"d%d":%s`, i, strings.ReplaceAll(level, "BELOW", fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i-1)))
		}
		s, err := tool.CompileSchema(json.RawMessage(`{"$defs":{` + defs + `},"properties":{"a":{"$ref":"#/$defs/d40"}}}`))
		Expect(err).NotTo(HaveOccurred())
		_, err = s.Check(`{"a":` + value + `}`)
		Expect(err).To(MatchError(ContainSubstring("the check took too many steps and was given up: make the schema simpler")))
		Expect(s.Valid(json.RawMessage(`{"a":` + value + `}`))).To(MatchError(ContainSubstring("given up")))
		Expect(s.Validate(`{"a":` + value + `}`)).To(MatchError(ContainSubstring("given up")))
		_, err = s.Check(`{"b":1}`)
		Expect(err).NotTo(HaveOccurred(), "the next check has steps of its own")
	},
		Entry("allOf", `{"allOf":[BELOW,BELOW]}`, `"x"`),
		Entry("allOf that does not fit", `{"allOf":[BELOW,BELOW]}`, `true`),
		Entry("anyOf", `{"anyOf":[{"not":BELOW},BELOW]}`, `"x"`),
		Entry("oneOf", `{"oneOf":[BELOW,BELOW]}`, `1`),
		Entry("if and else", `{"if":{"not":BELOW},"else":BELOW}`, `"x"`),
	)

	It("counts what constants cost, and refuses numbers that take long to calculate with", func() {
		list := strings.TrimSuffix(strings.Repeat(`"x",`, 5000), ",")
		s, err := tool.CompileSchema(json.RawMessage(`{"properties":{"a":{"items":{"enum":[1,` + list + `]}},"b":{"const":{"c":[2]}}}}`))
		Expect(err).NotTo(HaveOccurred())
		_, err = s.Check(`{"a":[` + strings.ReplaceAll(list, "x", "y") + `]}`)
		Expect(err).To(MatchError(ContainSubstring("given up")))
		_, err = s.Check(`{"a":["x",1],"b":{"c":[2]}}`)
		Expect(err).NotTo(HaveOccurred())
		_, err = s.Check(`{"a":["z"],"b":{"c":[3]}}`)
		Expect(err).To(MatchError(And(ContainSubstring("/a/0: value must be one of"), ContainSubstring("/b: "))))
		for _, number := range []string{"1e999999", "-1E-999999", strings.Repeat("9", 401), "1e99999999999999999999"} {
			_, err = s.Check(`{"a":[` + number + `]}`)
			Expect(err).To(MatchError(ContainSubstring("a number in it is too long")))
			_, err = tool.CompileSchema(json.RawMessage(`{"maximum":` + number + `}`))
			Expect(err).To(MatchError(ContainSubstring("a number in it is too long")))
		}
	})

	It("refuses two tools of one name and invalid schemas", func() {
		_, err := tool.NewSet(&fake{name: "a"}, &fake{name: "a"})
		Expect(err).To(MatchError(ContainSubstring("rename one of them")))
		_, err = tool.CompileSchema(json.RawMessage(`{"type":"nonsense"}`))
		Expect(err).To(HaveOccurred())
	})
	It("turns object names into names that models accept", func() {
		Expect(tool.Name("order-totals.v2")).To(Equal("order_totals_v2"))
	})
})
