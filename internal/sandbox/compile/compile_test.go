package compile_test

import (
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
})
