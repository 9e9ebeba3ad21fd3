//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"errors"
	"math"
	"math/big"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// within returns a context for one test.
func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	DeferCleanup(cancel)
	return ctx
}

// prepareCode connects to a sandbox before each spec. run runs code there, and result returns the value of code that succeeds.
func prepareCode(ctx *context.Context, c **client.Client) (run func(sandbox.CodeRequest) sandbox.Result, result func(sandbox.CodeRequest) any) {
	BeforeEach(func() {
		*ctx, *c = within(2*patience), sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
	})
	run = func(req sandbox.CodeRequest) sandbox.Result {
		GinkgoHelper()
		return (*c).RunCode(*ctx, req).Wait(*ctx)
	}
	return run, func(req sandbox.CodeRequest) any {
		GinkgoHelper()
		r := run(req)
		Expect(r.Error).To(BeNil())
		Expect(r.Status).To(Equal(sandbox.StatusSuccess))
		return r.Value
	}
}

var _ = Describe("runCode", func() {
	var c *client.Client
	var ctx context.Context
	run, result := prepareCode(&ctx, &c)

	Describe("what it runs", Label("COD-01"), func() {
		It("runs TypeScript by default", func() {
			r := run(sandbox.CodeRequest{Source: "interface A { n: number }\nexport default (a: A): number => a.n * 2", Args: []any{map[string]any{"n": 21}}})
			Expect(r.Error).To(BeNil())
			Expect(r.Status).To(Equal(sandbox.StatusSuccess))
			Expect(r.Value).To(Equal(42.0))
			Expect(r.MemoryUsedBytes).To(And(BeNumerically(">", said(100_000, 0)), BeNumerically("<", 5<<20)))
			Expect(r.Duration).To(BeNumerically(">", 0))
			Expect(r.Retriable).To(BeFalse())
		})

		It("runs JavaScript, which TypeScript's syntax is a mistake in", func() {
			Expect(result(sandbox.CodeRequest{Source: "export default (n) => n + 1", Language: sandbox.JavaScript, Args: []any{1}})).To(Equal(2.0))
			r := run(sandbox.CodeRequest{Source: "export default (n: number) => n + 1", Language: sandbox.JavaScript})
			Expect(r.Status).To(Equal(sandbox.StatusLinkError))
			Expect(r.Error.Stack).To(ContainSubstring("main.js:1:18"))
		})

		It("starts each run in a fresh isolate", func() {
			Expect(result(sandbox.CodeRequest{Source: "globalThis.left = 1; Array.prototype.left = 2; export default () => 1"})).To(Equal(1.0))
			Expect(result(sandbox.CodeRequest{Source: "export default () => [typeof left, [].left === undefined]"})).To(Equal([]any{"undefined", true}))
		})

		It("finds no thread state, files, network, timers or host globals", func() {
			names := []string{"state", "process", "require", "fetch", "setTimeout", "setInterval", "WebSocket", "XMLHttpRequest", "Deno", "Bun", "std", "os", "print", "navigator", "performance", "crypto", "TextDecoder", "__hostcall"}
			v := result(sandbox.CodeRequest{Source: "export default (names: string[]) => names.filter((n) => n in globalThis || (() => { try { return eval('typeof ' + n) !== 'undefined' } catch { return true } })())", Args: []any{names}})
			Expect(v).To(BeEmpty())
			for _, bare := range []string{"fs", "node:fs", "os", "std", "zod", "@standardagents/builder", "skein:host", "skein:entry", "https://example.com/x.js", "/etc/passwd"} {
				r := run(sandbox.CodeRequest{Source: "import x from '" + bare + "'; export default () => x"})
				Expect(r.Status).To(Equal(sandbox.StatusLinkError), bare)
				Expect(r.Error.Specifier).To(Equal(bare))
			}
		})

		It("has the language of today", func() {
			Expect(result(sandbox.CodeRequest{Source: `
				enum Color { Red = 1, Green }
				abstract class Base<T> { constructor(protected readonly v: T) {} abstract go(): T }
				class D extends Base<number> { #secret = 1; go() { using r = { [Symbol.dispose]() { report('disposed') } }; return this.v + this.#secret } }
				async function* gen() { yield 1; yield 2 }
				let sum = 0; for await (const n of gen()) sum += n;
				export default () => [new D(4).go(), Color.Green satisfies number, sum, Object.groupBy([1, 2, 3], (n) => n % 2 ? 'odd' : 'even'), [...new Set([1, 2]).union(new Set([3]))], /(?<y>\d{4})/.exec('in 1999')?.groups?.y]
			`})).To(Equal([]any{5.0, 2.0, 3.0, map[string]any{"odd": []any{1.0, 3.0}, "even": []any{2.0}}, []any{1.0, 2.0, 3.0}, "1999"}))
		})

		It("gives undefined for code without a default export, and the value of one that is no function", func() {
			Expect(result(sandbox.CodeRequest{Source: "1 + 1"})).To(Equal(value.Undefined{}))
			Expect(result(sandbox.CodeRequest{Source: "export default { a: [1] }"})).To(Equal(map[string]any{"a": []any{1.0}}))
			Expect(result(sandbox.CodeRequest{Source: "export const limit = 7", Fn: "limit"})).To(Equal(7.0))
		})
	})

	Describe("what it is given", Label("COD-02", "COD-03"), func() {
		It("calls the export asked for, with its arguments", func() {
			Expect(result(sandbox.CodeRequest{Source: "export function f(a: string, b: number[]) { return a + b.join() }", Fn: "f", Args: []any{"x", []any{1, 2}}})).To(Equal("x1,2"))
			r := run(sandbox.CodeRequest{Source: "export function f() {}", Fn: "g"})
			Expect(r.Status).To(Equal(sandbox.StatusLinkError))
			Expect(r.Error.Message).To(Equal(`the code exports no "g": it exports f`))
		})

		It("bridges exactly the given functions and values", func() {
			add := sandbox.Binding{Func: func(_ context.Context, args []any) (any, error) { return args[0].(float64) + args[1].(float64), nil }}
			v := result(sandbox.CodeRequest{
				Source: `import { add, table } from 'tools'; import other from 'other';
					const early = await plus(1, 2);
					export default async () => [early, await add(2, 3), table.x, other, limit, await Promise.all([plus(1, 1), add(2, 2)])]`,
				Globals: map[string]sandbox.Binding{"plus": add, "limit": {Value: big.NewInt(9)}},
				Imports: map[string]map[string]sandbox.Binding{"tools": {"add": add, "table": {Value: map[string]any{"x": true}}}, "other": {"default": {Value: nil}}},
			})
			Expect(v).To(Equal([]any{3.0, 5.0, true, nil, big.NewInt(9), []any{2.0, 4.0}}))
		})

		It("passes errors of the host to the code, with the place of the call", func() {
			r := run(sandbox.CodeRequest{
				Source: "export default async () => {\n  await fail()\n}",
				Globals: map[string]sandbox.Binding{"fail": {Func: func(context.Context, []any) (any, error) {
					return nil, &sandbox.Error{Name: "RangeError", Message: "too far"}
				}}},
			})
			Expect(r.Status).To(Equal(sandbox.StatusError))
			Expect(*r.Error).To(MatchFields(IgnoreExtras, Fields{"Name": Equal("RangeError"), "Message": Equal("too far"), "Stack": ContainSubstring("main.ts:2:")}))
			v := result(sandbox.CodeRequest{
				Source: "export default async () => { try { await fail() } catch (e) { return [e instanceof RangeError, e instanceof Error, e.name, e.message] } }",
				Globals: map[string]sandbox.Binding{"fail": {Func: func(context.Context, []any) (any, error) {
					return nil, &sandbox.Error{Name: "NotFound", Message: "no such file"}
				}}},
			})
			Expect(v).To(Equal([]any{false, true, "NotFound", "no such file"}))
		})

		It("streams what is reported, in order", func() {
			var seen []any
			r := run(sandbox.CodeRequest{
				Source: "report(1); await 0; report({ two: 2 }); report(); export default () => { report([3]) }",
				Report: func(v any) { seen = append(seen, v) },
			})
			want := []any{1.0, map[string]any{"two": 2.0}, value.Undefined{}, []any{3.0}}
			Expect(r.Reports).To(Equal(want))
			Expect(seen).To(Equal(want))
		})

		It("ends code whose reports would take too much of the host's memory", func() {
			r := run(sandbox.CodeRequest{Source: "export default () => { for (let i = 0; i < 5; i++) report(Array(150000).fill({ a: null })) }"})
			Expect(r.Status).To(Equal(sandbox.StatusTerminated))
			Expect(r.Error.Message).To(Equal("too much was reported: decoded, the reports take more than 128 MiB of memory"))
			Expect(len(r.Reports)).To(BeNumerically("<", 5))

			r = run(sandbox.CodeRequest{Source: "report(Array(600000).fill({ a: null })); export default () => 1"})
			Expect(r.Status).To(Equal(sandbox.StatusTerminated))
			Expect(r.Error.Message).To(Equal("decoded, the value would take more than 64 MiB of memory: send less at once"))
			Expect(r.Reports).To(BeEmpty())
		})

		It("refuses a result and arguments that would take too much of the host's memory", func() {
			r := run(sandbox.CodeRequest{Source: "export default () => Array(600000).fill({ a: null })"})
			Expect(r.Status).To(Equal(sandbox.StatusError))
			Expect(r.Error.Name).To(Equal("RangeError"))
			Expect(r.Error.Message).To(ContainSubstring("would take more than 64 MiB of memory: send less at once"))
			called := false
			v := result(sandbox.CodeRequest{
				Source:  "export default async () => { try { await take(Array(600000).fill({ a: null })) } catch (e) { return [e.name, e.message] } }",
				Globals: map[string]sandbox.Binding{"take": {Func: func(context.Context, []any) (any, error) { called = true; return nil, nil }}},
			})
			Expect(v).To(Equal([]any{"RangeError", "decoded, the value would take more than 64 MiB of memory: send less at once"}))
			Expect(called).To(BeFalse())
		})

		It("resolves relative modules in either language, data, and loops", func() {
			v := result(sandbox.CodeRequest{
				Source: `import { a } from './lib/a'; import data from './data.json'; import { b } from './lib/b.js';
					export const here = 'main';
					export default async () => [a, data.x, b(), (await import('./late.ts')).default]`,
				Modules: map[string]string{
					"./lib/a.ts": "import { b } from './b.ts'; export const a: string = 'a' + typeof b", "./lib/b.ts": "import { a } from './a.ts'; export function b(): string { return 'b' + a }",
					"./data.json": `{"x": 7}`, "./late.ts": "export default await Promise.resolve('late')",
				},
			})
			Expect(v).To(Equal([]any{"afunction", 7.0, "bafunction", "late"}))
		})

		DescribeTable("refuses what cannot be linked", func(req sandbox.CodeRequest, message, specifier string) {
			r := run(req)
			Expect(r.Status).To(Equal(sandbox.StatusLinkError))
			Expect(r.Error.Message).To(ContainSubstring(message))
			Expect(r.Error.Specifier).To(Equal(specifier))
			Expect(r.Retriable).To(BeFalse())
		},
			Entry("a bare import", sandbox.CodeRequest{Source: "import 'zod'"}, `cannot find module "zod" (imported by main.ts): nothing can be imported by name here`, "zod"),
			Entry("a missing module", sandbox.CodeRequest{Source: "import './zz.ts'"}, `cannot find module "./zz.ts"`, "./zz.ts"),
			Entry("a missing export", sandbox.CodeRequest{Source: "import { q } from './b.ts'; export default () => q", Modules: map[string]string{"./b.ts": "export default 1"}}, "q", "b.ts"),
			Entry("a module that does not compile", sandbox.CodeRequest{Source: "import './b.ts'", Modules: map[string]string{"./b.ts": "let x = ;"}}, "Unexpected", "./b.ts"),
			Entry("data that is not JSON", sandbox.CodeRequest{Source: "import './b.json'", Modules: map[string]string{"./b.json": "{"}}, "not JSON", "./b.json"),
			Entry("a module outside", sandbox.CodeRequest{Source: "1", Modules: map[string]string{"../x.ts": "1"}}, "outside of the folder", "../x.ts"),
			Entry("a module with a bare name", sandbox.CodeRequest{Source: "1", Modules: map[string]string{"x": "1"}}, "must start with ./", "x"),
			Entry("an import with a relative name", sandbox.CodeRequest{Source: "1", Imports: map[string]map[string]sandbox.Binding{"./x": {}}}, "is not bare", "./x"),
			Entry("an unknown language", sandbox.CodeRequest{Source: "1", Language: "python"}, `the language "python" is not known`, ""),
			Entry("a value that cannot cross", sandbox.CodeRequest{Source: "1", Globals: map[string]sandbox.Binding{"x": {Value: []any{func() {}}}}}, `the value of "x": the value at [0]`, ""),
			Entry("a source that is too long", sandbox.CodeRequest{Source: strings.Repeat(" ", 1<<20+1)}, "at most 1048576 are compiled", ""),
		)
	})

	Describe("the handle", Label("COD-04"), func() {
		It("shows reports while the code runs, and ends it by terminate", func() {
			reported := make(chan struct{}, 1)
			e := c.RunCode(ctx, sandbox.CodeRequest{Source: "report('on'); export default () => new Promise(() => hold())", Globals: map[string]sandbox.Binding{"hold": {Func: func(ctx context.Context, _ []any) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}}, Report: func(any) { reported <- struct{}{} }})
			Eventually(reported, patience).Should(Receive())
			Expect(e.Reports()).To(Equal([]any{"on"}))
			Expect(e.Done()).NotTo(BeClosed())
			e.Terminate("enough")
			e.Terminate("again")
			r := e.Wait(ctx)
			Expect(r.Status).To(Equal(sandbox.StatusTerminated))
			Expect(r.Error.Message).To(Equal("enough"))
			Expect(r.Reports).To(Equal([]any{"on"}))
			Expect(e.Done()).To(BeClosed())
			e.Terminate("late")
			Expect(e.Wait(ctx)).To(Equal(r))
		})

		It("ends busy code that catches every error", func() {
			started := make(chan struct{}, 1)
			e := c.RunCode(ctx, sandbox.CodeRequest{Source: "report(1); for (;;) { try { for (;;); } catch {} finally {} }", Report: func(any) { started <- struct{}{} }})
			Eventually(started, patience).Should(Receive())
			begun := time.Now()
			e.Terminate("stop it")
			r := e.Wait(ctx)
			Expect(r.Error.Message).To(Equal("stop it"))
			Expect(time.Since(begun)).To(BeNumerically("<", patience), "not when its time is up")
		})

		It("ends with its context", func() {
			callCtx, cancel := context.WithCancelCause(ctx)
			started := make(chan struct{}, 1)
			e := c.RunCode(callCtx, sandbox.CodeRequest{Source: "report(1); for (;;);", Report: func(any) { started <- struct{}{} }})
			Eventually(started, patience).Should(Receive())
			cancel(errors.New("the thread was aborted"))
			r := e.Wait(ctx)
			Expect(r.Status).To(Equal(sandbox.StatusTerminated))
			Expect(r.Error.Message).To(Equal("the thread was aborted"))
		})

		It("ends when the context of Wait ends", func() {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			r := c.RunCode(ctx, sandbox.CodeRequest{Source: "for (;;);"}).Wait(short)
			Expect(r.Status).To(Equal(sandbox.StatusTerminated))
			Expect(r.Error.Message).To(Equal("the call's time was up"))
		})

		It("keeps the result of code that settled first", func() {
			e := c.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => 1"})
			Eventually(e.Done(), patience).Should(BeClosed())
			e.Terminate("too late")
			Expect(e.Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
		})
	})

	Describe("values", Label("COD-07"), func() {
		It("cross both ways unharmed", func() {
			huge, _ := new(big.Int).SetString("-1234567890123456789012345678901234567890", 10)
			in := map[string]any{
				"undefined": value.Undefined{}, "null": nil, "bool": true, "int": -3.0, "float": 1.5, "text": "hé𝄞\x00", "big": huge,
				"date": time.UnixMilli(1700000000123).UTC(), "bytes": []byte{0, 1, 255}, "list": []any{[]any{}, map[string]any{}},
				"map": &value.Map{Entries: [][2]any{{map[string]any{"k": 1.0}, "v"}, {2.0, &value.Set{Members: []any{"m"}}}}}, "__proto__": "kept",
			}
			var through []any
			v := result(sandbox.CodeRequest{
				Source: "export default async (v) => { report(v); return [v, await echo(v), given, v.date instanceof Date, v.map instanceof Map, v.bytes instanceof Uint8Array, typeof v.big, 'undefined' in v] }",
				Args:   []any{in},
				Globals: map[string]sandbox.Binding{"given": {Value: in}, "echo": {Func: func(_ context.Context, args []any) (any, error) {
					through = args
					return args[0], nil
				}}},
				Report: func(v any) { Expect(v).To(Equal(in)) },
			})
			Expect(v).To(Equal([]any{in, in, in, true, true, true, "bigint", true}))
			Expect(through).To(Equal([]any{in}))
		})

		It("carries ten megabytes", func() {
			text := strings.Repeat("0123456789", 1_000_000)
			v := result(sandbox.CodeRequest{Source: "export default (s, b) => [s.length, b.length, s.slice(1) + 'x', b]", Args: []any{text, []byte(text)}})
			Expect(v).To(Equal([]any{1e7, 1e7, text[1:] + "x", []byte(text)}))
		})

		It("are refused with a clear error otherwise", func() {
			v := result(sandbox.CodeRequest{
				Source:  "export default async () => { try { await echo({ a: [1, () => 2] }) } catch (e) { return e.name + ': ' + e.message } }",
				Globals: map[string]sandbox.Binding{"echo": {Func: func(context.Context, []any) (any, error) { return nil, nil }}},
			})
			Expect(v).To(Equal("TypeError: the value at [0].a[1] cannot cross the sandbox: a function"))
		})

		DescribeTable("are exact, or become what the guide says", func(expression string, want OmegaMatcher) {
			r := run(sandbox.CodeRequest{Source: "class P { constructor() { this.x = 1; this.y = undefined } get z() { return 3 } }\nexport default () => (" + expression + ")"})
			Expect(r.Status).To(Equal(sandbox.StatusSuccess), "%v", r.Error)
			Expect(r.Value).To(want)
		},
			Entry("minus zero", "[-0].map((n) => n)", WithTransform(func(v any) bool { return math.Signbit(v.([]any)[0].(float64)) }, BeTrue())),
			Entry("NaN", "NaN", WithTransform(func(v any) bool { return math.IsNaN(v.(float64)) }, BeTrue())),
			Entry("infinities", "[Infinity, -Infinity]", Equal([]any{math.Inf(1), math.Inf(-1)})),
			Entry("a sparse array", "[1, , 3]", Equal([]any{1.0, value.Undefined{}, 3.0})),
			Entry("a map of maps", "new Map([[new Map(), new Set([1n])]])", Equal(&value.Map{Entries: [][2]any{{&value.Map{Entries: [][2]any{}}, &value.Set{Members: []any{big.NewInt(1)}}}}})),
			Entry("a huge map", "new Map(Array.from({ length: 200_000 }, (_, i) => [i, i])).size", Equal(200_000.0)),
			Entry("an ArrayBuffer", "new Uint8Array([1, 2, 3]).buffer", Equal([]byte{1, 2, 3})),
			Entry("a part of a buffer", "new Uint8Array([1, 2, 3]).subarray(1)", Equal([]byte{2, 3})),
			Entry("another typed array", "new Float64Array([1.5, 2])", Equal([]any{1.5, 2.0})),
			Entry("an object of a class", "new P()", Equal(map[string]any{"x": 1.0, "y": value.Undefined{}})),
			Entry("one that says how it is written", "({ toJSON: () => [1] })", Equal([]any{1.0})),
			Entry("a lone surrogate", "'a\\ud800b'", Equal("a\ufffdb")),
			Entry("a name that is a trap", "JSON.parse('{\"__proto__\": {\"x\": 1}}')", Equal(map[string]any{"__proto__": map[string]any{"x": 1.0}})),
			Entry("the same object twice", "(() => { const o = { a: 1 }; return [o, o] })()", Equal([]any{map[string]any{"a": 1.0}, map[string]any{"a": 1.0}})),
			Entry("an Error", "Object.keys(new Error('x'))", Equal([]any{})),
		)

		DescribeTable("are refused, with the place", func(expression, message string) {
			r := run(sandbox.CodeRequest{Source: "export default () => (" + expression + ")"})
			Expect(r.Status).To(Equal(sandbox.StatusError))
			Expect(r.Error.Name).To(Equal("TypeError"))
			Expect(r.Error.Message).To(ContainSubstring(message))
		},
			Entry("a symbol", "({ a: [Symbol('s')] })", "the value at .a[0] cannot cross the sandbox: a symbol"),
			Entry("a promise in a value", "({ p: Promise.resolve(1) })", ".p cannot cross the sandbox: a promise"),
			Entry("an invalid date", "[new Date(NaN)]", "[0] cannot cross the sandbox: an invalid Date"),
			Entry("a cycle", "(() => { const o = { a: {} }; o.a.b = o; return o })()", "contains itself"),
			Entry("a cycle through a map", "(() => { const m = new Map(); m.set('m', m); return m })()", "contains itself"),
			Entry("a function in a set", "new Set([() => 1])", "a function"),
			Entry("a value that is too large", "'x'.repeat(33 << 20)", "32 MiB"),
		)

		It("are checked where they come from the host, too", func() {
			deep := any(1.0)
			for range 600 {
				deep = []any{deep}
			}
			r := run(sandbox.CodeRequest{Source: "export default async () => { try { await bad() } catch (e) { return e.name + ': ' + e.message } }",
				Globals: map[string]sandbox.Binding{"bad": {Func: func(context.Context, []any) (any, error) { return deep, nil }}}})
			Expect(r.Value).To(ContainSubstring("TypeError: "), "%v", r.Error)
			Expect(r.Value).To(ContainSubstring("nests deeper than 500 levels"))
		})
	})
})
