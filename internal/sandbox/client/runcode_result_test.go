//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
)

var _ = Describe("runCode", func() {
	var c *client.Client
	var ctx context.Context
	run, result := prepareCode(&ctx, &c)

	Describe("the result", Label("COD-05"), func() {
		It("maps the positions of an error to the TypeScript source", func() {
			r := run(sandbox.CodeRequest{Filename: "calc/sum.ts", Source: `interface Opt {
  limit: number
  tag?: string
}
enum Color { Red, Green }

export function check(o: Opt): number {
  if (o.tag === 'boom') {
    throw new TypeError('bad tag' satisfies string)
  }
  return o.limit
}
export default (o: Opt): number => check(o!)
`, Args: []any{map[string]any{"limit": 1, "tag": "boom"}}})
			Expect(r.Status).To(Equal(sandbox.StatusError))
			Expect(r.Error.Name).To(Equal("TypeError"))
			Expect(r.Error.Message).To(Equal("bad tag"))
			lines := strings.Split(r.Error.Stack, "\n")
			Expect(lines[0]).To(Equal("TypeError: bad tag"))
			Expect(lines[1]).To(MatchRegexp(`^\s+at check \(calc/sum\.ts:9:\d+\)$`))
			Expect(lines[2]).To(MatchRegexp(`^\s+at .*\(?calc/sum\.ts:13:\d+\)?$`))
			Expect(r.Error.Stack).NotTo(ContainSubstring("skein:"))
		})

		It("maps the positions of what caused an error, and of its modules", func() {
			r := run(sandbox.CodeRequest{Filename: "main.ts", Source: `import { inner } from './lib/inner'
interface Unused { a: string }
export default async (): Promise<void> => {
  try { await inner() } catch (cause) {
    throw new Error('outer', { cause })
  }
}`, Modules: map[string]string{"./lib/inner.ts": `type T = string
export async function inner(): Promise<T> {
  await 0
  throw new RangeError('inner' as T)
}`}})
			Expect(r.Error.Message).To(Equal("outer"))
			Expect(r.Error.Stack).To(MatchRegexp(`(?s)^Error: outer\n.*main\.ts:5:\d+.*\ncaused by: RangeError: inner\n.*lib/inner\.ts:4:\d+`))
		})

		It("bounds the causes of an error in its stack", func() {
			for _, source := range []string{
				"const e = new Error('x'); e.cause = e; throw e", "throw new Error('x', { get cause() { throw 1 } })", "throw new Error('x', { cause: 'text' })",
				"throw Object.defineProperty(new Error('x'), 'cause', { get() { throw new Error('trap') } })",
			} {
				r := run(sandbox.CodeRequest{Source: source})
				Expect(r.Status).To(Equal(sandbox.StatusError))
				Expect(strings.Count(r.Error.Stack, "caused by")).To(BeNumerically("<=", 5))
			}
			r := run(sandbox.CodeRequest{Source: "let e = new Error('x'.repeat(1 << 20)); for (let i = 0; i < 100; i++) e = new Error('y'.repeat(1 << 14), { cause: e }); throw e"})
			Expect(len(r.Error.Stack)).To(BeNumerically("<", 70_000))
		})

		It("gives line and column of a syntax error", func() {
			r := run(sandbox.CodeRequest{Source: "export default () => {\n  const x: = 3\n}"})
			Expect(r.Status).To(Equal(sandbox.StatusLinkError))
			Expect(r.Error).To(HaveField("Line", 2))
			Expect(r.Error).To(HaveField("Column", 12))
			Expect(r.Error.Stack).To(ContainSubstring("main.ts:2:12"))
		})

		DescribeTable("says what was thrown", func(source, name, message string) {
			r := run(sandbox.CodeRequest{Source: source})
			Expect(r.Status).To(Equal(sandbox.StatusError))
			Expect(*r.Error).To(MatchFields(IgnoreExtras, Fields{"Name": Equal(name), "Message": Equal(message)}))
		},
			Entry("at the top level", "throw new Error('a')", "Error", "a"),
			Entry("at the top level, later", "await 0; throw new RangeError('b')", "RangeError", "b"),
			Entry("in the export", "export default async () => { await 0; null.x }", "TypeError", said("cannot read property 'x' of null", "Cannot read properties of null (reading 'x')")),
			Entry("a string", "throw 'just text'", "Error", "just text"),
			Entry("an object", "throw { code: 7 }", "Error", "{ code: 7 }"),
			Entry("nothing", "export default () => Promise.reject()", "Error", "undefined"),
			Entry("an error with a hostile name", "throw Object.defineProperty(new Error('x'), 'name', { get() { throw 1 } })", "Error", "x"),
			Entry("a result that cannot cross", "export default () => ({ f() {} })", "TypeError", "the value at .f cannot cross the sandbox: a function"),
			Entry("a getter that throws in the result", "export default () => ({ get a() { throw new Error('in getter') } })", "Error", "in getter"),
			Entry("endless recursion", "const f = () => f() + 1; f()", said("InternalError", "RangeError"), said("stack overflow", "Maximum call stack size exceeded")),
			Entry("a report that cannot cross", "report(Symbol('s'))", "TypeError", "this value cannot cross the sandbox: a symbol"),
		)

		It("fails at once when the code awaits a promise that nothing settles", func() {
			begun := time.Now()
			r := run(sandbox.CodeRequest{Source: "await new Promise(() => {})"})
			Expect(r.Status).To(Equal(sandbox.StatusError))
			Expect(r.Error.Message).To(ContainSubstring("awaits a promise that nothing settles"))
			Expect(time.Since(begun)).To(BeNumerically("<", patience), "not when its time is up")
		})

		It("gives each call of the console as it comes", func() {
			logs := make(chan sandbox.Log, 2)
			e := c.RunCode(ctx, sandbox.CodeRequest{
				Source: "console.warn('first'); await hold(); console.log('second')", Log: func(l sandbox.Log) { logs <- l },
				Globals: map[string]sandbox.Binding{"hold": {Func: func(context.Context, []any) (any, error) {
					Eventually(logs, patience).Should(Receive(And(HaveField("Level", "warn"), HaveField("Message", "first"))))
					return nil, nil
				}}},
			})
			Expect(e.Wait(ctx).Logs).To(HaveLen(2))
			Expect(logs).To(Receive(HaveField("Message", "second")))
		})

		It("collects the console, with level and time", func() {
			before := time.Now().Add(-time.Second)
			r := run(sandbox.CodeRequest{Source: `console.log('a', 1, { b: [true, null] }); console.warn('%s is %d', 'x', 3, 'rest'); console.error(new TypeError('bad')); console.debug(new Map([[1, 'x']])); Promise.reject(new Error('nobody listens'))`})
			Expect(r.Status).To(Equal(sandbox.StatusSuccess))
			Expect(r.Logs).To(HaveLen(5))
			Expect(r.Logs[0].Level + " " + r.Logs[0].Message).To(Equal(`info a 1 { b: [true, null] }`))
			Expect(r.Logs[1].Level + " " + r.Logs[1].Message).To(Equal(`warn x is 3 rest`))
			Expect(r.Logs[2].Level + " " + r.Logs[2].Message).To(HavePrefix(`error TypeError: bad`))
			Expect(r.Logs[3].Level + " " + r.Logs[3].Message).To(Equal(`debug Map(1) { 1 => "x" }`))
			Expect(r.Logs[4].Level + " " + r.Logs[4].Message).To(HavePrefix(`error unhandled rejection: Error: nobody listens`))
			Expect(r.Logs[0].Time).To(BeTemporally("~", before, patience))
		})
	})

	Describe("its limits", Label("COD-06"), func() {
		DescribeTable("memory", func(source string) {
			r := run(sandbox.CodeRequest{Source: source, MemoryLimitBytes: 16 << 20})
			Expect(r.Status).To(Equal(sandbox.StatusMemory), "%v", r.Error)
			Expect(r.Error.Message).To(ContainSubstring("out of memory"))
			Expect(r.MemoryUsedBytes).To(And(BeNumerically(">", 100_000), BeNumerically("<", said(18<<20, 2*16<<20+20<<20))))
		},
			Entry("arrays", "const a=[];for(;;)a.push(new Array(1000).fill(1))"),
			Entry("a buffer", "export default ()=>new ArrayBuffer(2**30).byteLength"),
			Entry("typed arrays", "const a=[];for(;;)a.push(new Uint8Array(1<<20).fill(7))"),
			Entry("a string", "export default ()=>'x'.repeat(2**29-30)[7]"),
			Entry("a map", "const m=new Map();let i=0;for(;;)m.set('k'+(i++),{i})"),
			Entry("closures", "let f=()=>1;const a=[];for(;;){const g=f;a.push(()=>g()+1)}"),
			Entry("in async code", "async function f(){const a=[];for(;;){a.push(new Array(1000).fill(1));await 0}} export default ()=>f()"),
		)

		It("never exceed the pool's cap", func() {
			r := run(sandbox.CodeRequest{Source: "export default ()=>new Uint8Array(100<<20).fill(1).byteLength", MemoryLimitBytes: 1 << 40})
			Expect(r.Status).To(Equal(sandbox.StatusMemory))
		})

		DescribeTable("wall time", func(source string) {
			begun := time.Now()
			r := run(sandbox.CodeRequest{Source: source, WallTime: 300 * time.Millisecond})
			Expect(r.Status).To(Equal(sandbox.StatusTerminated), "%v", r.Error)
			Expect(r.Error.Message).To(Equal("the code ran for longer than 300ms, its limit"))
			Expect(time.Since(begun)).To(BeNumerically(">=", 300*time.Millisecond))
		},
			Entry("an endless loop", "for(;;);"),
			Entry("in the export", "export default () => { for(;;); }"),
			Entry("microtasks", "async function f(){for(;;)await null} await f()"),
			Entry("a regular expression", "export default ()=>/^(a+)+$/.test('a'.repeat(34)+'b')"),
			Entry("a getter of the result", "export default () => ({ get a() { for(;;); } })"),
			Entry("a long built-in, which only a kill ends", "const u=new Uint8Array(2e7);export default ()=>{for(;;)u.fill(1)}"),
			Entry("a bigint", "const x=3n**(2n**16n);export default ()=>{for(;;)x*x}"),
			Entry("a source that takes the compiler forever", "export default "+strings.Repeat("x=>", 1000)+"1"),
		)
	})

	It("survives source that nests beyond the compiler's stack", func() {
		for _, source := range []string{strings.Repeat("(", 500_000), strings.Repeat("!", 500_000) + "1", strings.Repeat("[", 500_000)} {
			r := run(sandbox.CodeRequest{Source: source, WallTime: patience})
			Expect(r.Status).To(BeElementOf(sandbox.StatusTerminated, sandbox.StatusMemory, sandbox.StatusLinkError))
			Expect(r.Error.Message).To(SatisfyAny(ContainSubstring("nests too deeply"), ContainSubstring("out of memory"), ContainSubstring("Unexpected")))
		}
		Expect(result(sandbox.CodeRequest{Source: "export default () => 1"})).To(Equal(1.0))
	})
})
