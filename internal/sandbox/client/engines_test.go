//go:build linux && (amd64 || arm64)

package client_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

// The suites of this package run on each engine (sandboxtest.EngineEnv). These functions, and docs/sandboxes.md row
// by row, say what differs between the engines.

// said returns what the engine of this run is expected to report.
func said[T any](quickjs, v8 T) T {
	if sandboxtest.Engine() == sandbox.V8 {
		return v8
	}
	return quickjs
}

var _ = Describe("what code finds", Label("COD-01"), func() {
	It("is the language, a console and report, and nothing of the engine's host", func() {
		ctx := within(2 * patience)
		c := sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
		r := c.RunCode(ctx, sandbox.CodeRequest{Source: `export default () => {
			const own = Reflect.ownKeys(globalThis).map(String);
			const language = /^(Aggregate|Eval|Internal|Range|Reference|Syntax|Type|URI|Suppressed)?Error$|Array$|^(Array|Shared)Array|^ArrayBuffer$|SharedArrayBuffer|^(Atomics|BigInt|Boolean|DataView|Date|AsyncDisposableStack|DisposableStack|FinalizationRegistry|Function|Infinity|Intl|Iterator|JSON|Map|Math|NaN|Number|Object|Promise|Proxy|Reflect|RegExp|Set|String|Symbol|Temporal|WeakMap|WeakRef|WeakSet|decodeURI|decodeURIComponent|encodeURI|encodeURIComponent|escape|eval|globalThis|isFinite|isNaN|parseFloat|parseInt|undefined|unescape)$|^Symbol/;
			return [own.filter((n) => !language.test(n)).sort(), Object.getPrototypeOf(Object.getPrototypeOf(globalThis) ?? {}) === null || Object.getPrototypeOf(globalThis) === Object.prototype, typeof (Function('return this')() as any).Deno, Reflect.ownKeys(import.meta).length];
		}`}).Wait(ctx)
		Expect(r.Error).To(BeNil())
		Expect(r.Value).To(Equal([]any{[]any{"console", "report"}, true, "undefined", 0.0}))
	})
})

var _ = Describe("memory that code gives back", Label("COD-06"), func() {
	run := func(source string) sandbox.Result {
		ctx := within(2 * patience)
		c := sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
		return c.RunCode(ctx, sandbox.CodeRequest{Source: source, MemoryLimitBytes: 16 << 20}).Wait(ctx)
	}

	It("does not count, however much of it comes and goes", func() {
		r := run("export default () => { let n = 0; for (let i = 0; i < 3000; i++) n += new Array(10_000).fill({ i }).length; return n }")
		Expect(r.Error).To(BeNil())
		Expect(r.Value).To(Equal(3e7))
	})

	// V8 ends a process whose heap is full; only buffers are refused with an error.
	It(said("lets code catch that there is none", "ends code that would catch that there is none"), func() {
		r := run("let s=''; let a=[];try{for(;;)a.push(new Array(1000).fill(1))}catch(e){a=[];s=e.message};export default ()=>s")
		Expect(r.Status).To(Equal(said(sandbox.StatusSuccess, sandbox.StatusMemory)))
		if r.Status == sandbox.StatusSuccess {
			Expect(r.Value).To(Equal("out of memory"))
		}
	})
})
