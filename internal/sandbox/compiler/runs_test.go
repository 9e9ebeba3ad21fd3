//go:build linux && (amd64 || arm64)

package compiler_test

import (
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/compiler"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

var _ = Describe("the compiler of runs", Label("COD-01", "COD-05"), func() {
	var c *compiler.Runs
	BeforeEach(func() {
		c = compiler.NewRuns(compiler.Options{})
		DeferCleanup(c.Close)
		c.Warm()
	})
	typescript := func(source string) []protocol.Module {
		return []protocol.Module{{Name: "main.ts", Form: protocol.FormTypeScript, Source: source}}
	}

	It("compiles all modules of a run as the child of the run does", func() {
		modules := []protocol.Module{
			{Name: "main.ts", Form: protocol.FormTypeScript, Source: "interface A { n: number }\nexport default (a: A): number => a.n"},
			{Name: "lib/b.js", Form: protocol.FormJavaScript, Source: "export const b = '<é>'"},
			{Name: "data.json", Form: protocol.FormJSON, Source: `{"a": [1]}`},
			{Name: "made.js", Form: protocol.FormCompiled, Source: "export default 1 "},
		}
		got, ok := c.Compile(modules)
		Expect(ok).To(BeTrue())
		Expect(got).To(HaveLen(len(modules)))
		for i, m := range modules {
			want, failed := compile.Module(m)
			Expect(failed).To(BeNil())
			Expect(got[i]).To(Equal(protocol.Module{Name: m.Name, Form: protocol.FormCompiled, Source: want.Code, Map: want.SourceMap}))
		}
	})

	DescribeTable("leaves to the child", func(source string) {
		_, ok := c.Compile(typescript(source))
		Expect(ok).To(BeFalse())
		_, ok = c.Compile(typescript("export default 1"))
		Expect(ok).To(BeTrue(), "the next run is compiled")
	},
		Entry("a mistake", "export default () => {\n let x = ;\n}"),
		Entry("a source that is long", strings.Repeat(" ", compiler.MaxRun+1)),
		Entry("a source that takes forever", forever),
		Entry("nesting beyond its stack", strings.Repeat("(", compiler.MaxRun)),
	)

	It("counts the modules of a run together, and compiles none without one", func() {
		half := protocol.Module{Name: "a.js", Form: protocol.FormJavaScript, Source: strings.Repeat(" ", compiler.MaxRun/2)}
		_, ok := c.Compile([]protocol.Module{half, half})
		Expect(ok).To(BeTrue())
		_, ok = c.Compile([]protocol.Module{half, half, {Name: "b.js", Form: protocol.FormJavaScript, Source: ";"}})
		Expect(ok).To(BeFalse())
		_, ok = c.Compile(nil)
		Expect(ok).To(BeFalse())
	})

	It("compiles twenty at once", func() {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				name := string(rune('a' + i))
				got, ok := c.Compile(typescript("export const " + name + ": number = 1"))
				Expect(ok).To(BeTrue())
				Expect(got[0].Source).To(ContainSubstring("const " + name + " = 1"))
			})
		}
		all.Wait()
	})

	It("compiles nothing any more once closed", func() {
		c.Close()
		_, ok := c.Compile(typescript("export default 1"))
		Expect(ok).To(BeFalse())
	})
})
