package inspect_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

var _ = DescribeTable("What a definition declares", Label("TOL-01"), func(code, key, text string, keys ...string) {
	d := inspect.DeclaredBy(code)
	if text == "" {
		Expect(d.Texts).NotTo(HaveKey(key))
	} else {
		Expect(d.Texts).To(HaveKeyWithValue(key, text))
	}
	if len(keys) > 0 {
		Expect(d.Keys).To(Equal(keys))
	}
},
	Entry("a text", `import { defineTool } from '@standardagents/builder'; export default defineTool({ description: 'Adds "it" up.', execute() {} });`, "description", `Adds "it" up.`, "description", "execute"),
	Entry("through variables, as a bundle has them", `import { defineTool as t } from '@standardagents/builder'; var a = "x", b = t({ description: a + ' y' }); export { b as default };`, "description", "x y"),
	Entry("a template of several lines", "export default { description: `one\n\"two\" \\` \\n` };", "description", "one\n\"two\" ` \n"),
	Entry("escapes of JSON", `export default { description: 'a\'b\\c\u00e9' };`, "description", `a'b\cé`),
	Entry("a moment", `import { defineHook } from '@standardagents/builder'; export default defineHook('filter_messages', async () => []);`, "hook", "filter_messages"),
	Entry("methods in short", `import { defineThreadEndpoint } from '@standardagents/builder'; const GET = () => 1; export default defineThreadEndpoint({ GET, async POST() {} });`, "GET", "", "GET", "POST"),
	Entry("not what is computed", `const n = Math.random(); export default { description: 'a' + n };`, "description", ""),
	Entry("not a template with values", "const n = 1; export default { description: `a${n}` };", "description", ""),
	Entry("not a variable that changes", `let d = 'a'; d = 'b'; export default { description: d };`, "description", ""),
	Entry("not another function's", `const f = (x) => x; export default f({ description: 'a' });`, "description", ""),
	Entry("not of a circle", `const a = b; const b = a; export default { description: a };`, "description", ""),
	Entry("nothing of what is no code", `export default {`, "description", ""),
)
