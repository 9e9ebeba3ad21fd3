package compile_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
)

var _ = Describe("Code that reads the runtime context", Label("TOL-04"), func() {
	DescribeTable("is told from code that does not", func(source string, reads bool) {
		m, failed := compile.Transform("t.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		Expect(m.ReadsRuntimeContext).To(Equal(reads), m.Code)
		if reads {
			Expect(m.Code).To(And(ContainSubstring("_notPackableRuntimeContext"), HaveSuffix("export const $skeinReadsRuntimeContext = true;\n")))
		}
	},
		Entry("by a property", `export default (state) => state._notPackableRuntimeContext?.env`, true),
		Entry("by a text as its name", `export default (state) => state['_notPackableRuntimeContext']`, true),
		Entry("by taking it apart", `export default ({ _notPackableRuntimeContext: platform }) => platform`, true),
		Entry("by a name in TypeScript", `interface S { x?: number } export default (state: any) => (state as any)!._notPackableRuntimeContext as S`, true),
		Entry("in a comment", `// state._notPackableRuntimeContext
export default () => 1`, false),
		Entry("in a text", `export default () => 'see _notPackableRuntimeContext'`, false),
		Entry("in a type alone", `interface S { _notPackableRuntimeContext: number } export default (s: S) => 1`, false),
		Entry("not at all", `export default () => 1`, false),
	)
})
