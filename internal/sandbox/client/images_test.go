//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// Executions begin with a copy of an engine that has the libraries loaded.
var _ = Describe("executions one after the other", Ordered, Label("COD-01", "STA-08"), func() {
	var c *client.Client
	var ctx context.Context

	BeforeAll(func() {
		// Without children that wait, each begins when the libraries are there.
		c = sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { patiently(o); o.Prefork = 0 }).Dial(GinkgoT(), "thread-1")
	})
	BeforeEach(func() { ctx = within(2 * patience) })

	invoke := func(sources map[string]string, limit int64) any {
		GinkgoHelper()
		req := sandbox.IsolateRequest{Modules: map[string]sandbox.Module{}, MemoryLimitBytes: limit}
		for name, code := range sources {
			req.Modules[name] = sandbox.Module{Code: code}
		}
		i, err := c.OpenIsolate(ctx, req)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = i.Close() }()
		v, err := i.Invoke(ctx, "1", "t", map[string]any{"n": 1})
		Expect(err).NotTo(HaveOccurred())
		return v
	}

	It("see nothing of what an earlier one did to the language and to the libraries", func() {
		const code = `import { z } from 'zod'; import { defineTool } from '@standardagents/builder';
			export default defineTool({ execute: () => {
				const all = [globalThis, Array.prototype, Object.prototype, Promise.prototype, Symbol, z.globalRegistry, z.ZodObject, z.ZodObject.prototype, z.config(), defineTool, console, console.log, TextEncoder.prototype, AbortSignal.prototype, setTimeout];
				const seen = all.filter((o) => Object.hasOwn(o, 'leaked')).length + (z.globalRegistry.has(z.string) ? 1 : 0);
				for (const o of all) Object.defineProperty(o, 'leaked', { value: 1, configurable: true });
				z.config({ customError: () => 'leaked' });
				globalThis.JSON = undefined;
				return [seen, z.string().safeParse(1).error.issues[0].message, typeof JSON];
			} })`
		for range 5 {
			Expect(invoke(map[string]string{"t": code}, 0)).To(Equal([]any{0.0, "leaked", "undefined"}))
		}
		const looks = `import { z } from 'zod'; export default () => [z.string().safeParse(1).error.issues[0].message, typeof JSON, [].leaked === undefined]`
		Expect(invoke(map[string]string{"t": looks}, 0)).To(Equal([]any{"Invalid input: expected string, received number", "object", true}))
	})

	It("have random numbers of their own", func() {
		seen := map[string]bool{}
		for range 4 {
			seen[fmt.Sprint(invoke(map[string]string{"t": "export default () => Math.random()"}, 0))] = true
			seen[fmt.Sprint(invoke(map[string]string{"t": "import 'zod'; export default () => Math.random()"}, 0))] = true
			r := c.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => Math.random()"}).Wait(ctx)
			Expect(r.Error).To(BeNil())
			seen[fmt.Sprint(r.Value)] = true
		}
		Expect(seen).To(HaveLen(12))
	})

	It("have zod only where code names it, and modules of their own under any name", func() {
		const globals = "Object.keys(globalThis).filter((n) => n.startsWith('__')).length"
		Expect(invoke(map[string]string{"t": "export default () => " + globals}, 0)).To(Equal(0.0))
		Expect(invoke(map[string]string{"t": "import * as m from './zod'; export default () => [m.default, " + globals + "]", "zod": "export default 'mine'"}, 0)).To(Equal([]any{"mine", 0.0}))
	})

	It("have the common schemas of zod prepared", func() {
		const code = "import { z } from 'zod'; export default () => [z.ZodObject, z.ZodString, z.ZodNumber, z.ZodOptional, z.ZodArray].filter((c) => Object.hasOwn(c.prototype, 'parse')).length"
		Expect(invoke(map[string]string{"t": code}, 0)).To(Equal(said(5.0, 0.0)), "V8 has no images")
	})

	It("have their whole limit for themselves", func() {
		// On V8 the process counts, and with it the libraries (docs/sandboxes.md).
		limit := said[int64](1<<20, 32<<20)
		code := fmt.Sprintf("import 'zod'; export default () => new Uint8Array(%d).fill(1).length", limit*6/10)
		Expect(invoke(map[string]string{"t": code}, limit)).To(Equal(float64(limit * 6 / 10)))
	})
})

var _ = Describe("a sandbox with a small program for definition code", Label("COD-01", "STA-08"), func() {
	It("runs definition code and runCode, one after the other and at once", func() {
		exe, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		for _, name := range []string{"sandbox", supervisor.SmallProgram} {
			Expect(os.Symlink(exe, filepath.Join(dir, name))).To(Succeed())
		}
		c := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
			patiently(o)
			o.Program, o.Concurrency = filepath.Join(dir, "sandbox"), 8
		}).Dial(GinkgoT(), "thread-1")
		ctx := within(2 * patience)

		both := func(n int) {
			defer GinkgoRecover()
			i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{Modules: map[string]sandbox.Module{
				"t": {Code: "import { z } from 'zod'; export default (state, a) => z.number().parse(a.n) + new URL('http://a/1').pathname"},
			}})
			Expect(err).NotTo(HaveOccurred())
			defer func() { _ = i.Close() }()
			Expect(i.Invoke(ctx, "1", "t", map[string]any{"n": n})).To(Equal(fmt.Sprintf("%d/1", n)))
			r := c.RunCode(ctx, sandbox.CodeRequest{Source: "export default (n: number): number => n + 1", Args: []any{n}}).Wait(ctx)
			Expect(r.Error).To(BeNil())
			Expect(r.Value).To(Equal(float64(n + 1)))
		}
		for n := range 4 {
			both(n)
		}
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() { both(n) })
		}
		all.Wait()
	})
})
