package build_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/build"
)

func TestBuild(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "build")
}

// project is a folder with files.
type project string

func newProject(files map[string]string) project {
	GinkgoHelper()
	p := project(filepath.Join(GinkgoT().TempDir(), "shop"))
	for name, text := range files {
		p.write(name, text)
	}
	return p
}

func (p project) write(name, text string) {
	GinkgoHelper()
	path := filepath.Join(string(p), name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	Expect(os.WriteFile(path, []byte(text), 0o644)).To(Succeed())
}

// build returns the objects by KIND/NAME.
func (p project) build() (map[string]build.Object, []string) {
	GinkgoHelper()
	res, err := build.Build(string(p))
	Expect(err).NotTo(HaveOccurred())
	out := map[string]build.Object{}
	for _, o := range res.Objects {
		out[o.String()] = o
	}
	return out, res.Notes
}

func (p project) printed() string {
	GinkgoHelper()
	res, err := build.Build(string(p))
	Expect(err).NotTo(HaveOccurred())
	var b bytes.Buffer
	Expect(res.Print(&b)).To(Succeed())
	return b.String()
}

func (p project) mistake() string {
	GinkgoHelper()
	_, err := build.Build(string(p))
	Expect(err).To(HaveOccurred())
	return err.Error()
}

func spec(o build.Object) map[string]any { return o.Fields["spec"].(map[string]any) }

func code(of map[string]any) string { return of["code"].(map[string]any)["inline"].(string) }

const tool = "import { defineTool } from '@standardagents/builder';\n"

var _ = Describe("A folder of TypeScript", func() {
	It("becomes objects by the places of its files", func() {
		p := newProject(map[string]string{
			"lib/money.ts":                 "export const euros = (cents: number): string => (cents / 100).toFixed(2);\n",
			"tools/orderTotals.ts":         tool + "import { z } from 'zod';\nimport { euros } from '../lib/money';\nexport default defineTool({ description: 'Adds up ' + `orders`, args: z.object({ n: z.number() }), execute: async (_s, a) => euros(a.n) });\n",
			"tools/orderTotals.test.ts":    "throw new Error('a test')",
			"tools/_shared.ts":             "export {}",
			"tools/report/index.ts":        tool + "import { title } from './title';\nexport default defineTool({ description: title, execute: async () => title });\n",
			"tools/report/title.ts":        "export const title = 'A report.';\n",
			"effects/remind_me.ts":         "import { defineEffect } from '@standardagents/builder';\nexport default defineEffect({ description: 'Reminds.', handler: async (state) => { await state.queueMessage({ role: 'user', content: 'now' }); } });\n",
			"endpoints/orders/[region].ts": "import { defineThreadEndpoint } from '@standardagents/builder';\nconst GET = async () => new Response('x');\nexport default defineThreadEndpoint({ GET, POST: async () => new Response('y') });\n",
			"endpoints/files/[...path].ts": "import { defineThreadEndpoint } from '@standardagents/builder';\nexport default defineThreadEndpoint(async () => new Response('x'));\n",
			"agents/reception.ts":          "import { createAgent } from '@agentuity/runtime';\nexport default createAgent('Reception', { handler: async (ctx, input) => 'hello' });\n",
		})
		made, notes := p.build()
		Expect(notes).To(BeEmpty())
		Expect(made).To(HaveLen(6))

		totals := spec(made["tool/order-totals"])
		Expect(totals["description"]).To(Equal("Adds up orders"))
		Expect(totals["code"]).To(HaveKeyWithValue("language", "javascript"))
		Expect(code(totals)).To(And(ContainSubstring(`from "zod"`), ContainSubstring(`from "@standardagents/builder"`), ContainSubstring("toFixed(2)"), Not(ContainSubstring("../lib"))))
		Expect(spec(made["tool/report"])["description"]).To(Equal("A report."), "a text of another file")
		Expect(spec(made["effect/remind-me"])["description"]).To(Equal("Reminds."))

		Expect(spec(made["threadendpoint/orders-region"])).To(And(HaveKeyWithValue("path", "/orders/[region]"), HaveKeyWithValue("methods", []any{"GET", "POST"})))
		Expect(spec(made["threadendpoint/files-path"])).To(And(HaveKeyWithValue("path", "/files/[*]"), Not(HaveKey("methods"))))
		side := spec(made["agent/reception"])["sideA"].(map[string]any)
		Expect(code(side["handler"].(map[string]any))).To(ContainSubstring("Reception"))
	})

	It("fills in the code of manifests, and what the code says of itself", func() {
		p := newProject(map[string]string{
			"hooks/mask.ts":       "import { defineHook } from '@standardagents/builder';\nexport default defineHook('before_create_message', async (_s, m) => m);\n",
			"hooks/unused.ts":     "export default 1",
			"tools/count.ts":      tool + "export default defineTool({ description: 'From the code.', execute: async () => 1 });\n",
			"objects/agent.yaml":  "apiVersion: skein.dev/v1alpha1\nkind: Agent\nmetadata: {name: analyst}\nspec:\n  sideA: {promptRef: {name: analyst}}\n  hooks:\n  - code: {file: ../hooks/mask.ts}\n---\napiVersion: skein.dev/v1alpha1\nkind: SandboxPool\nmetadata: {name: default}\nspec: {warm: 1}\n",
			"objects/tool.yaml":   "apiVersion: skein.dev/v1alpha1\nkind: Tool\nmetadata: {name: counter}\nspec:\n  timeout: 5s\n  requiresApproval: true\n  code: {file: ../tools/count.ts}\n",
			"objects/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {code: untouched}\n",
		})
		made, notes := p.build()
		Expect(made).To(HaveLen(4), "a file that a manifest names makes no object of its own")
		hook := spec(made["agent/analyst"])["hooks"].([]any)[0].(map[string]any)
		Expect(hook).To(HaveKeyWithValue("hook", "before_create_message"))
		Expect(code(hook)).To(ContainSubstring("before_create_message"))
		Expect(spec(made["tool/counter"])).To(And(HaveKeyWithValue("timeout", "5s"), HaveKeyWithValue("requiresApproval", true), HaveKeyWithValue("description", "From the code.")))
		Expect(notes).To(ConsistOf(ContainSubstring("hooks/unused.ts is not used by any object")))
	})

	It("bundles packages of npm, in the variant for browsers where there is one", func() {
		p := newProject(map[string]string{
			"package.json":                          `{"dependencies":{"both":"1","old":"1"}}`,
			"node_modules/both/package.json":        `{"name":"both","exports":{"node":"./node.js","browser":"./browser.js"}}`,
			"node_modules/both/node.js":             "import fs from 'node:fs'; export const where = 'node';",
			"node_modules/both/browser.js":          "export const where = 'browser';",
			"node_modules/old/package.json":         `{"name":"old","main":"index.js","browser":{"fs":false}}`,
			"node_modules/old/index.js":             "var fs = require('fs'); var z = process.env.NODE_ENV; module.exports = function () { return 'old ' + z; };",
			"node_modules/@scope/deep/package.json": `{"name":"@scope/deep","exports":{"./part":"./part.js"}}`,
			"node_modules/@scope/deep/part.js":      "export { where } from 'both';",
			"tools/t.ts":                            tool + "import { where } from '@scope/deep/part';\nimport old from 'old';\nimport text from './text.md';\nexport default defineTool({ description: 'x', execute: async () => where + old() + text });\n",
			"tools/text.md":                         "a text",
			"tools/text.d.ts":                       "declare module '*.md';",
		})
		made, _ := p.build()
		Expect(code(spec(made["tool/t"]))).To(And(ContainSubstring(`"browser"`), ContainSubstring("old "), ContainSubstring(`"production"`), ContainSubstring("a text"), Not(ContainSubstring("node:fs"))))
	})

	DescribeTable("says what is wrong", func(files map[string]string, says ...string) {
		said := newProject(files).mistake()
		for _, s := range says {
			Expect(said).To(ContainSubstring(s))
		}
	},
		Entry("nothing to build", map[string]string{"readme.md": "x"}, "has nothing to build", "tools/"),
		Entry("a package that is not installed", map[string]string{"package.json": `{"dependencies":{"ms":"2"}}`, "tools/t.ts": tool + "import ms from 'ms';\nexport default defineTool({ description: 'x', execute: async () => ms('1d') });"},
			"tools/t.ts:2:16: the package ms is not installed: run `npm install` in shop"),
		Entry("a package that is not declared", map[string]string{"tools/t.ts": tool + "import ms from '@a/ms/b';\nexport default defineTool({ description: 'x', execute: async () => ms('1d') });"},
			"there is no package @a/ms in node_modules: run `npm install @a/ms` in shop"),
		Entry("modules of Node.js, all of them", map[string]string{"tools/t.ts": tool + "import fs from 'node:fs';\nimport { join } from 'path';\nexport default defineTool({ description: 'x', execute: async () => fs.readFileSync(join('a')) });"},
			"tools/t.ts:2:16: node:fs is not available in sandboxes", "tools/t.ts:3:22: path is not available in sandboxes"),
		Entry("a file that is not there", map[string]string{"tools/t.ts": tool + "import { a } from './a';\nexport default defineTool({ description: 'x', execute: async () => a });"}, "tools/t.ts:2:19", `"./a"`),
		Entry("an address", map[string]string{"tools/t.ts": "import a from 'https://x.example/a.js';\nexport default a;"}, "sandboxes have no network"),
		Entry("syntax, in every file", map[string]string{"tools/a.ts": "let x = ;", "tools/b.ts": "const = 1;"}, "tools/a.ts:1:9", "tools/b.ts:1:7"),
		Entry("no default export", map[string]string{"tools/t.ts": "export const a = 1;"}, "tools/t.ts: the module has no default export: add export default defineTool"),
		Entry("another kind", map[string]string{"effects/t.ts": tool + "export default defineTool({ description: 'x', execute: async () => 1 });"}, "but this is the code of an Effect"),
		Entry("a tool that a model cannot know", map[string]string{"tools/t.ts": tool + "export default defineTool({ execute: async () => 1 });"}, "tools/t.ts: the tool has no description"),
		Entry("a name that sandboxes lack", map[string]string{"tools/t.ts": tool + "const home = process.env.HOME;\nexport default defineTool({ description: 'x', execute: async () => home });"}, "process is not available in sandboxes"),
		Entry("two files of one name", map[string]string{"tools/a_b.ts": "x", "tools/aB.ts": "y"}, "would both be Tool a-b"),
		Entry("an object twice", map[string]string{"tools/t.ts": tool + "export default defineTool({ description: 'x', execute: async () => 1 });", "objects/t.yaml": "apiVersion: skein.dev/v1alpha1\nkind: Tool\nmetadata: {name: t}\nspec: {mcp: {url: 'https://x.example'}}\n"},
			"both make tool/t"),
		Entry("a name that no object may have", map[string]string{"tools/ü.ts": "x"}, "rename the file"),
		Entry("a file that a manifest misses", map[string]string{"objects/t.yaml": "apiVersion: skein.dev/v1alpha1\nkind: Tool\nmetadata: {name: t}\nspec: {code: {file: tools/t.ts}}\n"}, "there is no file objects/tools/t.ts", "relative to the folder of the manifest"),
		Entry("code and file", map[string]string{"objects/t.yaml": "apiVersion: skein.dev/v1alpha1\nkind: Tool\nmetadata: {name: t}\nspec: {code: {file: t.ts, inline: x}}\n"}, "without other fields"),
		Entry("YAML", map[string]string{"objects/t.yaml": "a: b: c"}, "objects/t.yaml"),
		Entry("a manifest without a name", map[string]string{"objects/t.yaml": "kind: Tool"}, "needs apiVersion, kind and metadata.name"),
		Entry("settings that do not exist", map[string]string{"skein.yaml": "tool: x", "tools/t.ts": "x"}, "skein.yaml", `"tool"`, "minify: true"),
		Entry("a folder that does not exist", map[string]string{"skein.yaml": "tools: src"}, "there is no folder src"),
		Entry("a folder elsewhere", map[string]string{"skein.yaml": "tools: ../x"}, "is not a folder below"),
		Entry("a hook that does not say which", map[string]string{"hooks/h.ts": "export default { execute: async () => 1 };", "objects/a.yaml": "apiVersion: skein.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\nspec: {hooks: [{code: {file: ../hooks/h.ts}}]}\n"}, "which hook it is"),
	)

	It("refuses a path that is not a folder", func() {
		_, err := build.Build("nowhere")
		Expect(err).To(MatchError(ContainSubstring("nowhere")))
		_, err = build.Build("build_test.go")
		Expect(err).To(MatchError(ContainSubstring("is not a folder")))
	})

	It("reads other folders and minifies code as skein.yaml says", func() {
		text := tool + "const aLongName = (n: number) => n + 1;\nexport default defineTool({ description: 'x', execute: async (_s, a: { n: number }) => aLongName(aLongName(a.n)) });"
		p := newProject(map[string]string{"src/tools/t.ts": text, "skein.yaml": "tools: src/tools\n"})
		made, _ := p.build()
		before := len(code(spec(made["tool/t"])))
		p.write("skein.yaml", "tools: src/tools\nminify: true\n")
		made, _ = p.build()
		Expect(len(code(spec(made["tool/t"])))).To(BeNumerically("<", before))
		Expect(spec(made["tool/t"])["description"]).To(Equal("x"))
	})

	It("puts long code into a ConfigMap, and names what makes it too long", func() {
		data := func(n int) string { return fmt.Sprintf("export const data = %q;\n", strings.Repeat("x", n)) }
		p := newProject(map[string]string{
			"lib/data.ts":  data(300_000),
			"lib/small.ts": "export const small = 1;\n",
			"tools/t.ts":   tool + "import { data } from '../lib/data';\nimport { small } from '../lib/small';\nexport default defineTool({ description: 'x', execute: async () => data + small });",
		})
		made, notes := p.build()
		Expect(spec(made["tool/t"])["code"]).To(Equal(map[string]any{"configMapKeyRef": map[string]any{"name": "tool-t-code", "key": "code.js"}}))
		Expect(made["configmap/tool-t-code"].Fields["data"]).To(HaveKeyWithValue("code.js", ContainSubstring("xxxx")))
		Expect(notes).To(ConsistOf(And(HavePrefix("configmap/tool-t-code has 3"), ContainSubstring("--server-side"))))
		p.write("lib/data.ts", data(1_100_000))
		Expect(p.mistake()).To(MatchRegexp(`tools/t.ts: .* the code has 11\d{5} bytes, and the limit is 1000000; the largest files:\n +11\d{5}  lib/data.ts\n +\d+  tools/t.ts\n +\d+  lib/small.ts\n  .*minify: true`))
	})

	It("builds the same output from the same input, in any folder and in parallel", func() {
		files := map[string]string{"node_modules/p/package.json": `{"name":"p","main":"i.js"}`, "node_modules/p/i.js": "module.exports = 1;"}
		for i := range 12 {
			files[fmt.Sprintf("tools/t%d.ts", i)] = tool + "import p from 'p';\nexport default defineTool({ description: 'x', execute: async () => p });"
		}
		want := newProject(files).printed()
		other := newProject(files)
		link := filepath.Join(GinkgoT().TempDir(), "link")
		Expect(os.Symlink(string(other), link)).To(Succeed())
		var wait sync.WaitGroup
		for range 20 {
			wait.Go(func() {
				defer GinkgoRecover()
				Expect(other.printed()).To(Equal(want))
				Expect(project(link).printed()).To(Equal(want))
			})
		}
		wait.Wait()
	})
})

var _ = Describe("The folder of manifests", func() {
	var p project
	var out string
	write := func() build.Changes {
		GinkgoHelper()
		res, err := build.Build(string(p))
		Expect(err).NotTo(HaveOccurred())
		c, err := res.Write(out)
		Expect(err).NotTo(HaveOccurred())
		return c
	}

	BeforeEach(func() {
		p = newProject(map[string]string{
			"tools/a.ts": tool + "export default defineTool({ description: 'x', execute: async () => 1 });",
			"tools/b.ts": tool + "export default defineTool({ description: 'x', execute: async () => 2 });",
		})
		out = filepath.Join(string(p), "manifests")
	})

	It("follows the sources, and keeps what it has not made", func() {
		Expect(write().Written).To(Equal([]string{"tool-a.yaml", "tool-b.yaml"}))
		p.write("manifests/mine.yaml", "kind: Other\n")
		Expect(write()).To(Equal(build.Changes{Same: []string{"tool-a.yaml", "tool-b.yaml"}}))
		Expect(os.Remove(filepath.Join(string(p), "tools/a.ts"))).To(Succeed())
		Expect(write()).To(Equal(build.Changes{Same: []string{"tool-b.yaml"}, Removed: []string{"tool-a.yaml"}}))
		Expect(filepath.Join(out, "mine.yaml")).To(BeAnExistingFile())
	})

	It("does not write over what it has not made", func() {
		p.write("manifests/tool-a.yaml", "kind: Tool\n")
		res, err := build.Build(string(p))
		Expect(err).NotTo(HaveOccurred())
		_, err = res.Write(out)
		Expect(err).To(MatchError(ContainSubstring("tool-a.yaml was not made by this command")))
		Expect(filepath.Join(out, "tool-b.yaml")).NotTo(BeAnExistingFile())
	})

	It("is whole when many write it at once", func() {
		var wait sync.WaitGroup
		for range 20 {
			wait.Go(func() {
				defer GinkgoRecover()
				write()
			})
		}
		wait.Wait()
		files, err := os.ReadDir(out)
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(2))
		Expect(write().Written).To(BeEmpty())
	})

	It("is told of changes of the sources, and not of its own", func(ctx SpecContext) {
		watching, stop := context.WithCancel(ctx)
		changes, ended := make(chan string, 100), make(chan error, 1)
		go func() {
			ended <- build.Watch(watching, string(p), out, func() {
				res, err := build.Build(string(p))
				if err != nil { // it goes on
					changes <- err.Error()
					return
				}
				_, err = res.Write(out)
				var b bytes.Buffer
				changes <- fmt.Sprint(res.Print(&b), err, b.String())
			})
		}()
		Eventually(ctx, changes).Should(Receive(HavePrefix("<nil> <nil>")))
		for _, name := range []string{"tools/a.ts", "tools/new/index.ts", "tools/new/index.ts"} {
			mark := fmt.Sprint(rand.Int())
			p.write(name, tool+"export default defineTool({ description: 'x', execute: async () => '"+mark+"' });")
			Eventually(ctx, changes).Should(Receive(ContainSubstring(mark)), name)
		}
		p.write("tools/a.ts", tool+"import p from 'p';\nexport default defineTool({ description: 'x', execute: async () => p });")
		Eventually(ctx, changes).Should(Receive(ContainSubstring("npm install p")))
		p.write("node_modules/p/index.js", "export default 'of the package';")
		Eventually(ctx, changes).Should(Receive(ContainSubstring("of the package")), "a package is installed")
		stop()
		Eventually(ctx, ended).Should(Receive(MatchError(context.Canceled)))
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("The check of types", func() {
	It("reports a missing compiler, and fails if the check is required", func(ctx SpecContext) {
		GinkgoT().Setenv("PATH", GinkgoT().TempDir())
		p := newProject(map[string]string{"tools/a.ts": "x"})
		skipped, err := build.CheckTypes(ctx, string(p), build.CheckAuto, []string{"tools/a.ts"})
		Expect(err).NotTo(HaveOccurred())
		Expect(skipped).To(Equal("there is no TypeScript compiler: run `npm install --save-dev typescript zod`; types are not checked"))
		_, err = build.CheckTypes(ctx, string(p), build.CheckAlways, []string{"tools/a.ts"})
		Expect(err).To(MatchError(ContainSubstring("npm install --save-dev typescript zod")))
		Expect(build.CheckTypes(ctx, string(p), build.CheckNever, []string{"tools/a.ts"})).To(BeEmpty())
		p.write("node_modules/.bin/tsc", "")
		Expect(build.CheckTypes(ctx, string(p), build.CheckAuto, []string{"tools/a.ts"})).To(ContainSubstring("need the package zod"))
	})

	It("runs the compiler of the project with the types of this version, and leaves nothing behind", func(ctx SpecContext) {
		p := newProject(map[string]string{
			"tools/a.ts": "x", "node_modules/zod/package.json": "{}",
			"node_modules/.bin/tsc": "#!/bin/sh\nfor last; do :; done\nd=$(dirname \"$last\")\nls \"$d\"\ncat \"$last\"\necho 'tools/a.ts(1,1): error TS2304'\nexit 2\n",
		})
		Expect(os.Chmod(filepath.Join(string(p), "node_modules/.bin/tsc"), 0o755)).To(Succeed())
		_, err := build.CheckTypes(ctx, string(p), build.CheckAuto, []string{"tools/a.ts"})
		Expect(err).To(MatchError(build.ErrTypes))
		Expect(err.Error()).To(And(ContainSubstring("skein.d.ts"), ContainSubstring("handlers.d.ts"), ContainSubstring("/tools/a.ts"), ContainSubstring("error TS2304")))
		Expect(filepath.Glob(filepath.Join(string(p), "node_modules", ".skein*"))).To(BeEmpty())
		p.write("types/ms.d.ts", "declare module 'ms';")
		p.write("skein.d.ts", "")
		_, err = build.CheckTypes(ctx, string(p), build.CheckAuto, []string{"tools/a.ts"})
		Expect(strings.Count(err.Error(), "skein.d.ts")).To(Equal(1), "its own in place of this version's: %s", err)
		Expect(err.Error()).To(ContainSubstring("/types/ms.d.ts"))
		Expect(os.Remove(filepath.Join(string(p), "skein.d.ts"))).To(Succeed())
		p.write("tsconfig.json", "{}")
		_, err = build.CheckTypes(ctx, string(p), build.CheckAuto, []string{"tools/a.ts"})
		Expect(err).To(MatchError(And(ContainSubstring("error TS2304"), Not(ContainSubstring("skein.d.ts")))), "the project's own settings")
		p.write("node_modules/.bin/tsc", "#!/bin/sh\nexit 0\n")
		Expect(build.CheckTypes(ctx, string(p), build.CheckAlways, []string{"tools/a.ts"})).To(BeEmpty())
	})
})
