package conformance

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
)

var _ = Describe("The result of code", Label("COD-05", "COD-06"), func() {
	It("says how it ended, in every way there is", func(ctx SpecContext) {
		_, state := coded(ctx)
		run := func(source string, o runtimeclient.CodeOptions) *runtimev1.CodeResult {
			GinkgoHelper()
			r, err := state.RunCode(ctx, source, o).Wait(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(r.DurationMs).To(BeNumerically(">", 0))
			return r
		}
		r := run("console.log('a', { b: 1 }); console.error('c'); report(1); export default () => 'v'", runtimeclient.CodeOptions{})
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess))
		Expect(r.Result).To(MatchJSON(`"v"`))
		Expect(r.Reports).To(HaveExactElements(MatchJSON("1")))
		Expect(r.Logs).To(HaveExactElements(
			And(HaveField("Level", "info"), HaveField("Message", "a { b: 1 }"), HaveField("Time", BeNumerically("~", time.Now().UnixMicro(), 600_000_000))),
			And(HaveField("Level", "error"), HaveField("Message", "c"))))
		Expect(r.MemoryUsedBytes).To(BeNumerically(">", 0))
		Expect(r.Error).To(BeNil())

		r = run(`interface Order {
  amount: number
}

enum Kind { A, B }
export default (o: Order): number => check(o, Kind.B)
function check(o: Order, k: Kind): number {
  try { return JSON.parse('{') } catch (cause) {
    throw new RangeError('no such order' satisfies string, { cause })
  }
}`, runtimeclient.CodeOptions{Filename: "orders.ts", Args: []any{map[string]any{"amount": 1}}})
		Expect(r.Status).To(Equal(runtimev1.CodeErrored))
		Expect(r.Error).To(HaveValue(And(HaveField("Name", "RangeError"), HaveField("Message", "no such order"))))
		Expect(r.Error.Stack).To(And(MatchRegexp(`at check \(orders\.ts:9:\d+\)`), MatchRegexp(`orders\.ts:6:\d+`), MatchRegexp(`(?s)caused by: SyntaxError: .*orders\.ts:8:\d+`)))

		r = run("const x: = 1", runtimeclient.CodeOptions{})
		Expect(r.Status).To(Equal(runtimev1.CodeLinkError))
		Expect(r.Error).To(HaveValue(And(HaveField("Line", 1), HaveField("Column", 10))))
		r = run("import './no'", runtimeclient.CodeOptions{})
		Expect(r).To(And(HaveField("Status", runtimev1.CodeLinkError), HaveField("Error.Specifier", "./no")))

		r = run("const a = []; for (;;) a.push(new Array(1000).fill(1))", runtimeclient.CodeOptions{MemoryLimitBytes: 16 << 20})
		Expect(r.Status).To(Equal(runtimev1.CodeMemory))
		// What the code took beyond what the engine had at its start: V8 has some megabytes free in its heap then.
		Expect(r.MemoryUsedBytes).To(And(BeNumerically(">", 8<<20), BeNumerically("<", 20<<20)))

		for wall := 300 * time.Millisecond; ; wall *= 2 { // up to one in which a busy machine comes to the report
			r = run("report('on'); for (;;);", runtimeclient.CodeOptions{WallTime: wall})
			Expect(r.Status).To(Equal(runtimev1.CodeTerminated))
			Expect(r.Error.Message).To(ContainSubstring(fmt.Sprintf("longer than %s, its limit", wall)))
			Expect(r.DurationMs).To(BeNumerically(">=", wall.Milliseconds()))
			if len(r.Reports) > 0 || wall > 10*time.Second {
				break
			}
		}
		Expect(r.Reports).To(HaveLen(1), "what came before is there")
	}, SpecTimeout(5*time.Minute))

	It("is the same in TypeScript", func(ctx SpecContext) {
		leastUsed := "12 << 20"
		if onV8 {
			leastUsed = "0" // what it had before the allocation that was too much
		}
		Expect(runsIn(ctx, `
const ok = await state.runCode("console.warn('w'); export default () => 1");
const bad = await state.runCode("\n\nthrow new TypeError('no')");
const link = await state.runCode("import 'left-pad'");
const memory = await state.runCode("const a = []; for (;;) a.push(new Array(1000).fill(1))", { memoryLimitBytes: 16 << 20 });
return [
  [ok.status, ok.result, ok.logs.map((l) => [l.level, l.message, l.time instanceof Date]), ok.durationMs > 0, ok.memoryUsedBytes > 0, ok.error === undefined],
  [bad.status, bad.error.name, bad.error.message, /main\.ts:3:\d+/.test(bad.error.stack), bad.result === undefined],
  [link.status, link.error.specifier],
  [memory.status, memory.memoryUsedBytes > `+leastUsed+`],
];`)).To(MatchJSON(`[["success",1,[["warn","w",true]],true,true,true],["error","TypeError","no",true,true],["link_error","left-pad"],["memory",true]]`))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("Values of code", Label("COD-07"), func() {
	It("cross exactly between Go and code, both ways", func(ctx SpecContext) {
		_, state := coded(ctx)
		huge, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
		in := map[string]any{
			"undefined": values.Undefined{}, "null": nil, "bool": true, "number": 1.5, "infinity": math.Inf(1), "text": "h\u00e9\U0001d11e", "big": huge,
			"date": time.UnixMilli(1700000000123).UTC(), "bytes": []byte{0, 1, 255}, "list": []any{[]any{}, map[string]any{}},
			"map": &values.Map{Entries: [][2]any{{map[string]any{"k": 1.0}, &values.Set{Members: []any{"m"}}}}}, "$tag": map[string]any{"$bigint": "no bigint"}, "__proto__": "kept",
		}
		var through, reported any
		run := state.RunCode(ctx, "export default async (v) => { report(v); return [v, await echo(v), given, v.date instanceof Date, v.map instanceof Map, v.bytes instanceof Uint8Array, typeof v.big, 'undefined' in v] }", runtimeclient.CodeOptions{
			Args:        []any{in},
			Globals:     map[string]any{"given": in, "echo": func(_ context.Context, args []any) (any, error) { through = args[0]; return args[0], nil }},
			ReportValue: func(v any) { reported = v },
		})
		r, err := run.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Status).To(Equal(runtimev1.CodeSuccess), "%+v", r.Error)
		Expect(run.Value()).To(Equal([]any{in, in, in, true, true, true, "bigint", true}))
		Expect(through).To(Equal(in))
		Expect(reported).To(Equal(in))
	}, SpecTimeout(5*time.Minute))

	It("cross exactly between code and code", func(ctx SpecContext) {
		Expect(runsIn(ctx, `
const v = { u: undefined, n: [NaN, -0, Infinity], b: 10n ** 30n, d: new Date(5), m: new Map([[new Set([1]), new Uint8Array([7])]]), ['__proto__']: 'kept', sparse: [1, , 3] };
let through: any;
const r = await state.runCode('export default async (v) => (await echo(v))', { execute: { args: [v] }, globals: { echo: (x: any) => { through = x; return x; } } });
const same = (x: any) => ['u' in x, x.u === undefined, Number.isNaN(x.n[0]), Object.is(x.n[1], -0), x.n[2] === Infinity, x.b === 10n ** 30n, x.d.getTime() === 5,
  [...x.m.keys()][0].has(1), [...x.m.values()][0][0] === 7, x.sparse.length === 3 && x.sparse[1] === undefined].every(Boolean);
return [r.status, same(r.result), same(through)];`)).To(MatchJSON(`["success",true,true]`))
	}, SpecTimeout(5*time.Minute))

	It("that cannot cross are refused with an error that names the place", func(ctx SpecContext) {
		_, state := coded(ctx)
		for source, want := range map[string]string{
			"export default () => ({ a: [1, () => 2] })":                          "the value at .a[1] cannot cross the sandbox: a function",
			"export default () => Symbol('s')":                                    "a symbol",
			"export default () => { const o = {}; o.o = o; return o }":            "contains itself",
			"export default () => [new Date(NaN)]":                                "an invalid Date",
			"export default async () => { await echo({ p: Promise.resolve() }) }": ".p cannot cross the sandbox: a promise",
			"report(() => 1)": "a function",
		} {
			r, err := state.RunCode(ctx, source, runtimeclient.CodeOptions{Globals: map[string]any{"echo": func() {}}}).Wait(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(r).To(And(HaveField("Status", runtimev1.CodeErrored), HaveField("Error.Name", "TypeError"), HaveField("Error.Message", ContainSubstring(want))), source)
		}
	}, SpecTimeout(5*time.Minute))
})
