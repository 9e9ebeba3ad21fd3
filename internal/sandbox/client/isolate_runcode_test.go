//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

var _ = Describe("an isolate of definition code", func() {
	var c *client.Client
	var ctx context.Context
	var h *host
	open := prepareIsolates(&ctx, &c, &h)

	Describe("state.runCode", Label("COD-02", "COD-03", "COD-04"), func() {
		var i sandbox.Isolate
		serve := func(source string) {
			GinkgoHelper()
			h.answers["runCode"] = func(ctx context.Context, args []any) (any, error) { return client.ServeRunCode(ctx, c, i, args) }
			h.answers["readFile"] = func(context.Context, []any) (any, error) { return []byte("some text in a file"), nil }
			i = open(map[string]string{"t": source})
		}

		It("runs the documented example: functions cross back, reports stream", func() {
			serve("export default async (state) => {\n" + `
				const seen = [];
				const run = state.runCode(
				  ` + "`" + `
				    const text = await readText('/notes.txt');
				    report({ length: text.length });
				    export function summarize(limit: number) {
				      return text.slice(0, limit);
				    }
				  ` + "`" + `,
				  {
				    execute: { fn: 'summarize', args: [9] },
				    globals: {
				      readText: async (path: string) => {
				        const data = await state.readFile(path);
				        return data ? new TextDecoder().decode(data) : '';
				      },
				    },
				    report: (value) => seen.push(value),
				  },
				);
				const before = run.running;
				const result = await run;
				return { ...result, seen, before, after: run.running, live: run.reports };
			}`)
			v, err := i.Invoke(ctx, "1", "t", nil)
			Expect(err).NotTo(HaveOccurred())
			length := []any{map[string]any{"length": 19.0}}
			Expect(v).To(MatchAllKeys(Keys{
				"status": Equal("success"), "result": Equal("some text"), "reports": Equal(length), "seen": Equal(length), "live": Equal(length), "logs": BeEmpty(),
				"before": BeTrue(), "after": BeFalse(), "durationMs": BeNumerically(">", 0), "memoryUsedBytes": BeNumerically(">", 100_000),
			}))
		})

		It("terminates, at once or while the code runs", func() {
			serve(`export default async (state) => {
				const early = state.runCode('for (;;);'); early.terminate('never mind');
				let started; const on = new Promise((r) => { started = r });
				const late = state.runCode('report(1); for (;;);', { report: started });
				await on; late.terminate('that will do');
				return [await early, await late].map((r) => [r.status, r.error.message]);
			}`)
			Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal([]any{[]any{"terminated", "never mind"}, []any{"terminated", "that will do"}}))
		})

		It("nests: code runs code through a function that it was given, to a depth", Label("COD-03"), func() {
			serve(`export default async (state) => {
				const run = (source) => state.runCode(source, { globals: { run }, imports: { nested: { run } }, report: (v) => depths.push(v) });
				const depths = [];
				const nest = (n) => n === 0 ? 'report(0); export default () => 7' :
					'report(' + n + '); import { run as other } from "nested"; const r = await ' + (n % 2 ? 'run' : 'other') + '(' + JSON.stringify(nest(n - 1)) + '); if (r.error) throw new Error(r.status + ": " + r.error.message); export default () => r.result';
				const out = await run(nest(3));
				const over = await run(nest(4));
				const after = await run('export default () => 8');
				return [out.result, out.error?.message, depths.slice(0, 4), over.status, over.error.message, after.result];
			}`)
			v, err := i.Invoke(ctx, "1", "t", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(v).To(HaveExactElements(Equal(7.0), Equal(value.Undefined{}), Equal([]any{3.0, 2.0, 1.0, 0.0}), Equal("error"),
				ContainSubstring("link_error: this run would be the 5th of runs that wait for each other: 4 are the most"), Equal(8.0)))
		})

		It("gives mistakes in the options as link_error", func() {
			serve(`export default async (state) => {
				const out = [];
				for (const o of [{ timeout: 5 }, { execute: { function: 'x' } }, { execute: 'x' }, { globals: 1 }, { imports: { a: 1 } }, { modules: { './x': 1 } }, { language: 'perl' }, { memoryLimitBytes: -1 }, { report: 5 }, 'x', { filename: 1 }]) {
					const r = await state.runCode('export default () => 1', o); out.push(r.status + ' ' + r.error.message);
				}
				out.push((await state.runCode(5)).error.message, (await state.runCode('export default () => 1', { language: undefined })).result);
				return out;
			}`)
			v, err := i.Invoke(ctx, "1", "t", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(v).To(HaveExactElements(
				`link_error runCode has no option "timeout": it has execute, filename, globals, imports, language, memoryLimitBytes, modules and report`,
				`link_error options.execute has no property "function": it has fn and args`, HavePrefix("link_error options.execute must be"), HavePrefix("link_error options.globals must be"),
				HavePrefix(`link_error options.imports["a"] must be`), HavePrefix(`link_error options.modules["./x"] must be`), HavePrefix(`link_error the language "perl" is not known`),
				HavePrefix("link_error options.memoryLimitBytes"), HavePrefix("link_error options.report must be a function"), HavePrefix("link_error the options of runCode must be an object"), HavePrefix("link_error options.filename"),
				"runCode takes the source as a string", Equal(1.0),
			))
		})

		It("ends the code when the invocation is cancelled", func() {
			serve("export default async (state) => { await state.runCode('for (;;);') }")
			callCtx, cancel := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { _, err := i.Invoke(callCtx, "1", "t", nil); done <- err }()
			Eventually(h.seen, patience).Should(HaveLen(1))
			cancel()
			Eventually(done, patience).Should(Receive(MatchError(context.Canceled)))
			// The slot is free again, so the code has ended.
			Expect(c.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => 1"}).Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
		})
	})
})
