package compile_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

func TestCompile(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Compile")
}

var _ = Describe("compiling", func() {
	It("strips types and lowers what the engine lacks", Label("COD-01"), func() {
		m, failed := compile.Compile("", "enum E { A = 4 }\nexport default (x: number): number => { using r = x as any; return x + E.A }", "")
		Expect(failed).To(BeNil())
		Expect(m.Filename).To(Equal("main.ts"))
		Expect(m.Code).NotTo(SatisfyAny(ContainSubstring(": number"), ContainSubstring("using r")))
		Expect(m.SourceMap).NotTo(BeEmpty())
		Expect(string(m.SourceMap)).NotTo(ContainSubstring("sourcesContent\": [\""))
	})

	DescribeTable("gives the place of a mistake, 1-based", Label("COD-05"), func(file, source string, lang sandbox.Language, line, column int, message string) {
		_, failed := compile.Compile(file, source, lang)
		Expect(failed).NotTo(BeNil())
		Expect([]int{failed.Line, failed.Column}).To(Equal([]int{line, column}))
		Expect(failed.Message).To(ContainSubstring(message))
		Expect(compile.FirstLine(file, failed)).To(HavePrefix(file + ":"))
	},
		Entry("in TypeScript", "tool.ts", "export default () => {\n  const x: = 3\n}", sandbox.TypeScript, 2, 12, "Unexpected"),
		Entry("types in JavaScript", "a.js", "let x: number = 1", sandbox.JavaScript, 1, 6, "Expected"),
		Entry("by the file's own name", "lib.mjs", "let x: number = 1", sandbox.TypeScript, 1, 6, "Expected"),
		Entry("an end that does not come", "t.ts", "\n\nfunction f() {", sandbox.TypeScript, 3, 15, "Unexpected end of file"),
		Entry("a return outside of a function", "t.ts", "const a: number = 1\nif (a) return a", sandbox.TypeScript, 2, 8, "Top-level return cannot be used inside an ECMAScript module: export a function that returns it"),
		Entry("the same in a file of another name", `a "b" c.js`, "return 1", sandbox.TypeScript, 1, 1, "export default () => value"),
		Entry("data", "d.json", "{\n", sandbox.TypeScript, 0, 0, "not JSON"),
	)

	It("refuses an unknown language and says which there are", func() {
		_, failed := compile.Compile("x", "1", "python")
		Expect(failed.Message).To(Equal(`language "python" is not known: use "typescript" or "javascript"`))
	})

	It("still takes what a CommonJS module exports", func() {
		for _, source := range []string{"module.exports = 1; return", "exports.a = 1", "function f() { return 1 }"} {
			_, failed := compile.Compile("a.js", source, "")
			Expect(failed).To(BeNil(), source)
		}
	})

	It("shortens the stack of an endless recursion", Label("COD-05"), func() {
		mapper := compile.NewMapper(nil)
		var deep strings.Builder
		for n := range 700 {
			fmt.Fprintf(&deep, "    at f (a.ts:%d:1)\n", n+1)
		}
		lines := strings.Split(mapper.Stack(deep.String()+"Caused by: Error: x\n    at g (a.ts:1:1)\n"), "\n")
		Expect(lines).To(HaveLen(43))
		Expect(lines[0]).To(Equal("    at f (a.ts:1:1)"))
		Expect(lines[29:32]).To(Equal([]string{"    at f (a.ts:30:1)", "    … 660 more", "    at f (a.ts:691:1)"}))
		Expect(lines[40:]).To(Equal([]string{"    at f (a.ts:700:1)", "Caused by: Error: x", "    at g (a.ts:1:1)"}))
	})

	It("maps stacks back, and leaves our own frames out", Label("COD-05"), func() {
		source := "interface A {\n  x: number\n}\n\nfunction f(a: A) {\n  throw new Error('' + a.x)\n}\nexport default f\n"
		m, failed := compile.Compile("dir/my tool.ts", source, "")
		Expect(failed).To(BeNil())
		line := 1 + strings.Count(m.Code[:strings.Index(m.Code, "throw")], "\n")
		mapper := compile.NewMapper(map[string]sandbox.Module{"tool": m})
		stack := "    at f (tool:" + itoa(line) + ":9)\n    at <anonymous> (skein:definition:3:1)\n    at map (native)\n    at g (other.ts:7:7)\n    at tool:" + itoa(line) + ":9\n"
		Expect(mapper.Stack(stack)).To(Equal("    at f (dir/my tool.ts:6:9)\n    at g (other.ts:7:7)\n    at dir/my tool.ts:6:9"))
	})
})

func itoa(n int) string { return string(rune('0' + n)) }
