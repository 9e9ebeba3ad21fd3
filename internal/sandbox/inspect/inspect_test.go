package inspect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
	"github.com/skein-dev/skein/internal/sandbox/js/lib"
)

func TestInspect(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Inspect")
}

const head = "import { defineTool } from '@standardagents/builder';\nimport { z } from 'zod';\n"

func problems(u inspect.Use, source string) []string {
	GinkgoHelper()
	m, failed := compile.Transform("t.ts", source, sandbox.TypeScript)
	Expect(failed).To(BeNil())
	facts := inspect.Module(m.Code)
	Expect(facts).NotTo(BeNil(), "the code cannot be read:\n%s", m.Code)
	texts := []string{}
	for _, p := range u.Problems(facts) {
		texts = append(texts, p.Message)
		if p.Near != nil {
			Expect(source).To(MatchRegexp(p.Near.String()), p.Message)
		}
	}
	return texts
}

var _ = Describe("Definition code", Label("TOL-02"), func() {
	DescribeTable("that could not run is refused", func(use inspect.Use, source string, says ...string) {
		texts := problems(use, source)
		Expect(texts).To(HaveLen(1))
		for _, s := range says {
			Expect(texts[0]).To(ContainSubstring(s))
		}
	},
		Entry("a relative import", inspect.Tool, head+"import { read } from '../lib/files';\nexport default defineTool({ args: { p: z.string() }, execute: async () => read() });", "../lib/files", "npx esbuild"),
		Entry("a package", inspect.Tool, head+"import { nanoid } from 'nanoid';\nexport default defineTool({ args: z.object({}), execute: async () => nanoid() });", "nanoid is not available in sandboxes", "zod", "npx esbuild"),
		Entry("a package imported for what it does", inspect.Tool, "import 'side-effect';\nexport default () => 1", "side-effect"),
		Entry("a re-export of a package", inspect.Tool, "export * from 'lodash';\nexport default () => 1", "lodash"),
		Entry("a module of Node.js", inspect.Tool, "import fs from 'node:fs';\nexport default () => fs.readFileSync('/x')", "node:fs", "state"),
		Entry("one of Node.js without its prefix", inspect.Tool, "import { join } from 'path';\nexport default () => join('a')", "path", "Node.js"),
		Entry("a URL", inspect.Tool, "import x from 'https://esm.sh/x';\nexport default () => x()", "fetch nothing"),
		Entry("a name that a module does not have", inspect.Tool, "import { defineTol } from '@standardagents/builder';\nexport default defineTol({ execute() {} })", "defineTol"),
		Entry("a name that zod does not have", inspect.Tool, head+"import { strnig } from 'zod';\nexport default defineTool({ args: { a: strnig() }, execute() {} })", "strnig"),
		Entry("a default import of the builder", inspect.Tool, "import defineTool from '@standardagents/builder';\nexport default defineTool({ execute() {} })", "in braces"),
		Entry("no default export", inspect.Tool, head+"export const tool = defineTool({ args: { a: z.string() }, execute: async () => 1 });", "no default export", "export default defineTool"),
		Entry("an empty module", inspect.Effect, "", "export default defineEffect"),
		Entry("a text as default export", inspect.Tool, "export default 'word-count'", "neither a function nor a definition"),
		Entry("a variable with a number", inspect.Hook, "const x = 4; export default x", "defineHook"),
		Entry("defineTool not imported", inspect.Tool, "export default defineTool({ execute: async () => 1 });", "add import { defineTool } from '@standardagents/builder'"),
		Entry("z not imported", inspect.Tool, "import { defineTool } from '@standardagents/builder';\nexport default defineTool({ args: z.object({ a: z.string() }), execute: async () => 1 });", "add import { z } from 'zod'"),
		Entry("createAgent not imported", inspect.Handler, "export default createAgent('a', { handler: async () => 'x' });", "@agentuity/runtime"),
		Entry("an undeclared variable", inspect.Tool, "const limits = { most: MAX };\nexport default () => limits.most", "MAX is not defined"),
		Entry("the environment of a process", inspect.Tool, "const key = process.env.KEY;\nexport default () => key", "process is not available"),
		Entry("an effect in a Tool", inspect.Tool, "import { defineEffect } from '@standardagents/builder';\nexport default defineEffect({ execute: async () => {} })", "an effect (defineEffect)", "a Tool"),
		Entry("an effect in a Tool, by another name", inspect.Tool, "import { defineEffect as d } from '@standardagents/builder';\nconst e = d({ execute: async () => {} });\nexport { e as default }", "an effect"),
		Entry("an effect in a Tool, by a namespace", inspect.Tool, "import * as b from '@standardagents/builder';\nexport default b.defineEffect({ execute: async () => {} })", "an effect"),
		Entry("a tool in an Effect", inspect.Effect, head+"export default defineTool({ args: { a: z.string() }, execute: async () => 1 })", "a tool (defineTool)", "an Effect"),
		Entry("a tool as a hook", inspect.Hook, head+"export default defineTool({ args: { a: z.string() }, execute: async () => 1 })", "a hook"),
		Entry("ids without the module that sets them", inspect.ThreadIDs, "export default () => 'thrd_1'", "setThreadIDProvider"),
		Entry("a tool as an endpoint", inspect.Endpoint, head+"export default defineTool({ args: { a: z.string() }, execute: async () => 1 })", "a ThreadEndpoint"),
		Entry("a tool as a handler", inspect.Handler, head+"export default defineTool({ args: { a: z.string() }, execute: async () => 1 })", "a handler"),
		Entry("a definition without a function", inspect.Tool, head+"export default defineTool({ description: 'x', args: { a: z.string() } })", "no function to call"),
		Entry("an object without a function", inspect.Tool, "export default { description: 'x' }", "no function to call"),
	)

	DescribeTable("that runs, or of which it cannot be told, is not refused", func(use inspect.Use, source string) {
		Expect(problems(use, source)).To(BeEmpty())
	},
		Entry("a tool", inspect.Tool, head+"export default defineTool({ args: z.object({ p: z.string() }), execute: async (state, args) => args.p });"),
		Entry("a plain function", inspect.Tool, "export default async function run(state) { return 1 }"),
		Entry("a plain function exported later", inspect.Tool, "function run() { return 1 }\nexport { run as default }"),
		Entry("a plain object", inspect.Effect, "export default { async execute() {} }"),
		Entry("an object with what another one has", inspect.Tool, "const base = { execute() {} };\nexport default { ...base }"),
		Entry("a type that only TypeScript knows", inspect.Tool, "import { defineTool, type ThreadState } from '@standardagents/builder';\nimport type { Row } from './rows';\nexport default defineTool({ execute: async (s: ThreadState, a: Row) => 1 })"),
		Entry("a type imported as a value", inspect.Tool, "import { defineTool, ThreadState } from '@standardagents/builder';\nexport default defineTool({ execute: async (s: ThreadState) => 1 })"),
		Entry("an import when it is needed", inspect.Tool, "export default async () => { try { return await import('nanoid') } catch { return 1 } }"),
		Entry("a name that may be there", inspect.Tool, "const f = typeof fetch === 'function' ? fetch : undefined;\nexport default () => f"),
		Entry("a name behind a condition", inspect.Tool, "if (typeof process !== 'undefined') process.exit();\nconst a = typeof Buffer !== 'undefined' && Buffer.from('');\nexport default () => a"),
		Entry("a name that is tried", inspect.Tool, "let p; try { p = process } catch { }\nexport default () => p"),
		Entry("a name within a function", inspect.Tool, "export default () => fetch('https://x')"),
		Entry("a global that the code makes", inspect.Tool, "globalThis.limits = 4;\nexport default () => limits\nconst x = limits"),
		Entry("what is declared later", inspect.Tool, "export default make();\nfunction make() { return { execute() {} } }"),
		Entry("a class", inspect.Tool, "class A extends Error {}\nexport default () => new A()"),
		Entry("a factory of the code's own", inspect.Tool, head+"const tool = (d) => defineTool(d);\nexport default tool({ args: { a: z.string() }, execute() {} })"),
		Entry("a variable that changes", inspect.Tool, "let x = 1;\nx = () => 2;\nexport default x"),
		Entry("a hook by its name", inspect.Hook, "import { defineHook } from '@standardagents/builder';\nexport default defineHook('before_send', async () => {})"),
		Entry("an endpoint for each method", inspect.Endpoint, "import { defineThreadEndpoint } from '@standardagents/builder';\nexport default defineThreadEndpoint({ GET() { return new Response('x') } })"),
		Entry("ids", inspect.ThreadIDs, "import { getThreadProvider } from '@agentuity/runtime';\ngetThreadProvider().setThreadIDProvider({ getThreadId: () => 'thrd_1' })"),
		Entry("a handler", inspect.Handler, "import { createAgent } from '@agentuity/runtime';\nimport { s } from '@agentuity/schema';\nimport { generateText } from 'ai';\nimport { openai } from '@ai-sdk/openai';\nimport * as v from 'valibot';\nexport default createAgent('A', { schema: { input: s.string() }, handler: async () => (await generateText({ model: openai('x') })).text })"),
		Entry("all of zod", inspect.Tool, "import zod, * as z from 'zod';\nimport { z as z4 } from 'zod/v4';\nexport default { args: z.object({}), execute: () => zod && z4 }"),
		Entry("decorated, disposed and private things", inspect.Tool, "class A { #x = 1; static { A.y = 2 } get x() { return this.#x } static y: number }\nexport default async () => { using r = { [Symbol.dispose]() {} }; for await (const x of []) {} return new A().x ?? A.y }"),
		Entry("an await at the top", inspect.Tool, "const x = await Promise.resolve(1);\nexport default () => x"),
		Entry("a regular expression with sets", inspect.Tool, "const r = /[\\p{L}--[a-z]]/v;\nexport default () => r.test('x')"),
	)

	It("is not refused once it is bundled as the message says", func() {
		dir := GinkgoT().TempDir()
		write := func(name, text string) {
			GinkgoHelper()
			file := filepath.Join(dir, name)
			Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
			Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		}
		write("node_modules/nanoid/package.json", `{"name":"nanoid","type":"module","main":"index.js"}`)
		write("node_modules/nanoid/index.js", "export const nanoid = () => crypto.randomUUID();")
		write("node_modules/old/package.json", `{"name":"old","main":"index.js"}`)
		write("node_modules/old/index.js", "const env = typeof process !== 'undefined' ? process.env : {};\nmodule.exports = function old() { return env.X };")
		write("lib/files.ts", "export const read = (path: string) => path;")
		source := head + "import { nanoid } from 'nanoid';\nimport old from 'old';\nimport { read } from './lib/files';\n" +
			"export default defineTool({ args: { p: z.string() }, execute: async (_, a) => read(a.p) + nanoid() + old() });"
		write("tool.ts", source)
		m, failed := compile.Transform("tool.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		Expect(inspect.Tool.Problems(inspect.Module(m.Code))).To(HaveLen(3))
		out := api.Build(api.BuildOptions{AbsWorkingDir: dir, EntryPoints: []string{"tool.ts"}, Bundle: true, Format: api.FormatESModule, External: []string{"@standardagents/builder", "zod"}})
		Expect(out.Errors).To(BeEmpty())
		Expect(problems(inspect.Tool, string(out.OutputFiles[0].Contents))).To(BeEmpty())
	})

	It("is not refused where it is a fixture of other tests", func() {
		for folder, use := range map[string]inspect.Use{
			"tools": inspect.Tool, "effects": inspect.Effect, "hooks": inspect.Hook, "endpoints": inspect.Endpoint, "handlers": inspect.Handler,
		} {
			files, err := filepath.Glob("../../../test/fixtures/" + folder + "/*.ts")
			Expect(err).NotTo(HaveOccurred())
			Expect(files).NotTo(BeEmpty())
			for _, f := range files {
				source, err := os.ReadFile(f)
				Expect(err).NotTo(HaveOccurred())
				Expect(problems(use, string(source))).To(BeEmpty(), f)
			}
		}
	})

	It("can read every module that sandboxes have", func() {
		for _, m := range lib.Modules {
			Expect(inspect.Module(m.Code())).NotTo(BeNil(), m.Name)
		}
	})

	It("gives up on code that is nested too deeply, and on what it cannot read", func() {
		Expect(inspect.Module("export default () => " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000))).To(BeNil())
		Expect(inspect.Module("export default {{{")).To(BeNil())
		Expect(inspect.Tool.Problems(nil)).To(BeEmpty())
	})
})
