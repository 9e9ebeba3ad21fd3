//go:build linux && (amd64 || arm64)

package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

// The test binary is the program of its own sandboxes.
func TestMain(m *testing.M) {
	sandboxtest.Main()
	m.Run()
}

// What code costs in a claimed sandbox: a real supervisor, mTLS over loopback, locked down children.
var _ = Describe("Code in a claimed sandbox", Ordered, Label("code"), func() {
	var s *sandboxtest.Supervisor
	var c *client.Client
	BeforeAll(func() {
		s = sandboxtest.Start(GinkgoT(), nil)
		c = s.Dial(GinkgoT(), "bench")
	})

	run := func(ctx context.Context, req sandbox.CodeRequest) time.Duration {
		GinkgoHelper()
		began := time.Now()
		r := c.RunCode(ctx, req).Wait(ctx)
		took := time.Since(began)
		Expect(r.Status).To(Equal(sandbox.StatusSuccess), "%+v", r.Error)
		return took
	}
	// think leaves the sandbox alone for a while, so that the next child can start: real callers do not call in lockstep.
	think := func() { time.Sleep(20*time.Millisecond + rand.N(40*time.Millisecond)) }

	It("gives its first result", func(ctx SpecContext) {
		const n = 300
		config, err := pki.ClientConfig(s.CA.Cert, s.Client, sandboxtest.ServerName)
		Expect(err).NotTo(HaveOccurred())
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		empty := func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Addr+"/nothing", nil)
			Expect(err).NotTo(HaveOccurred())
			resp, err := transport.RoundTrip(req)
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Body.Close()).To(Succeed())
		}
		req := sandbox.CodeRequest{Source: "export default (a: number) => a + 1", Args: []any{1}}
		run(ctx, req)
		empty()
		var took, floor []time.Duration
		for range n {
			think()
			took = append(took, run(ctx, req))
			floor = append(floor, timed(empty))
		}
		figure("runCode, claimed sandbox, loopback", "%s (through the API: goal p50 4 ms, p99 8 ms)", spread(took))
		figure("  floor: an empty request, same supervisor", "%s", spread(floor))
	}, SpecTimeout(5*time.Minute))

	It("calls the host", func(ctx SpecContext) {
		const calls = 1000
		echo := map[string]sandbox.Binding{"echo": {Func: func(_ context.Context, args []any) (any, error) { return args[0], nil }}}
		for name, source := range map[string]string{
			"one at a time": "export default async (n) => { for (let i = 0; i < n; i++) await echo(i) }",
			"100 at once":   "export default async (n) => { for (let k = 0; k < n / 100; k++) await Promise.all(Array.from({ length: 100 }, (_, i) => echo(i))) }",
		} {
			var took []time.Duration
			for range 10 {
				took = append(took, run(ctx, sandbox.CodeRequest{Source: source, Language: sandbox.JavaScript, Args: []any{calls}, Globals: echo})/calls)
			}
			figure("awaited host call, "+name, "p50 %s (n=%d runs of %d)", quantile(took, .5).Round(time.Microsecond), len(took), calls)
		}
	}, SpecTimeout(5*time.Minute))

	It("takes and gives 10 MB", func(ctx SpecContext) {
		text := strings.Repeat("0123456789", 1_000_000)
		for name, v := range map[string]any{"text": text, "bytes": []byte(text)} {
			var in, out []time.Duration
			for range 15 {
				think()
				in = append(in, run(ctx, sandbox.CodeRequest{Source: "export default (v) => v.length", Args: []any{v}}))
				think()
				out = append(out, run(ctx, sandbox.CodeRequest{Source: "export default (v) => v", Args: []any{v}}))
			}
			figure("10 MB of "+name+" in", "p50 %s", round(quantile(in, .5)))
			figure("10 MB of "+name+" in and out", "p50 %s", round(quantile(out, .5)))
		}
	}, SpecTimeout(5*time.Minute))

	It("starts tools that use zod", func(ctx SpecContext) {
		const tool = "import { defineTool } from '@standardagents/builder'; import { z } from 'zod'; export default defineTool({ args: z.object({ n: z.number() }), execute: (state, args) => args.n })"
		var took []time.Duration
		for range 40 {
			think()
			took = append(took, timed(func() {
				i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: tool}}})
				Expect(err).NotTo(HaveOccurred())
				Expect(i.Invoke(ctx, "1", "t", map[string]any{"n": 1})).To(Equal(1.0))
				Expect(i.Close()).To(Succeed())
			}))
		}
		figure("zod tool, open and first call, bytecode", "%s (goal p50 3 ms)", spread(took))
	}, SpecTimeout(5*time.Minute))
})
