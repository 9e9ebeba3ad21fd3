//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// report adds the median and the 95th percentile of the times to a benchmark's line.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
}

func runOnce(b *testing.B, c *client.Client, req sandbox.CodeRequest) time.Duration {
	b.Helper()
	begun := time.Now()
	r := c.RunCode(context.Background(), req).Wait(context.Background())
	if r.Status != sandbox.StatusSuccess {
		b.Fatalf("%+v", r.Error)
	}
	return time.Since(begun)
}

// BenchmarkRunCode measures a runCode call on a claimed sandbox with a ready child: mTLS over loopback, seccomp on.
// Between calls the pool refills, outside the measured time.
func BenchmarkRunCode(b *testing.B) {
	for name, lang := range map[string]sandbox.Language{"typescript": sandbox.TypeScript, "javascript": sandbox.JavaScript} {
		b.Run(name, func(b *testing.B) {
			s := sandboxtest.Start(b, func(o *supervisor.Options) { o.Prefork = 2 })
			c := s.Dial(b, "bench")
			req := sandbox.CodeRequest{Source: "export default () => 1 + 1", Language: lang}
			runOnce(b, c, req)
			var times []time.Duration
			for b.Loop() {
				b.StopTimer()
				time.Sleep(40 * time.Millisecond) // the next child starts
				b.StartTimer()
				times = append(times, runOnce(b, c, req))
			}
			report(b, times)
		})
	}
}

// BenchmarkFirstResult measures the first runCode call in an unclaimed sandbox: everything in a claim except its
// write. When connected ahead, the handshake happens during that write.
func BenchmarkFirstResult(b *testing.B) {
	for name, ahead := range map[string]bool{"dialled-by-the-run": false, "connected-ahead": true} {
		b.Run(name, func(b *testing.B) {
			s := sandboxtest.Start(b, func(o *supervisor.Options) { o.Prefork = 2 })
			var times []time.Duration
			for b.Loop() {
				b.StopTimer()
				c := s.Dial(b, "bench")
				if ahead {
					if err := c.Connect(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				time.Sleep(40 * time.Millisecond) // the next child starts
				b.StartTimer()
				times = append(times, runOnce(b, c, sandbox.CodeRequest{Source: "export default () => 1 + 1"}))
				b.StopTimer()
				_ = c.Close()
				b.StartTimer()
			}
			report(b, times)
			b.ReportMetric(8, "goal-p50-ms-with-claim") // of which the claim's write takes 3.5
		})
	}
}

// BenchmarkColdRun measures the first runCode call of a sandbox from the start of its supervisor on.
func BenchmarkColdRun(b *testing.B) {
	var times []time.Duration
	for b.Loop() {
		begun := time.Now()
		s := sandboxtest.Start(b, nil)
		c := s.Dial(b, "bench")
		runOnce(b, c, sandbox.CodeRequest{Source: "export default (): number => 1 + 1"})
		times = append(times, time.Since(begun))
		_ = c.Close()
		_ = s.Stop()
	}
	report(b, times)
}

// BenchmarkHostCall measures one awaited call of the host.
func BenchmarkHostCall(b *testing.B) {
	for name, source := range map[string]string{
		"sequential":  "export default async (n) => { let s = 0; for (let i = 0; i < n; i++) s += await echo(i); return s }",
		"100-at-once": "export default async (n) => { let s = 0; for (let k = 0; k < n / 100; k++) { const a = []; for (let i = 0; i < 100; i++) a.push(echo(i)); for (const x of await Promise.all(a)) s += x } return s }",
	} {
		b.Run(name, func(b *testing.B) {
			c := sandboxtest.Start(b, nil).Dial(b, "bench")
			const calls = 1000
			req := sandbox.CodeRequest{Source: source, Args: []any{calls}, Globals: map[string]sandbox.Binding{
				"echo": {Func: func(_ context.Context, args []any) (any, error) { return args[0], nil }},
			}}
			var total time.Duration
			n := 0
			for b.Loop() {
				total += runOnce(b, c, req)
				n += calls
			}
			b.ReportMetric(float64(total.Nanoseconds())/float64(n)/1000, "µs/call")
		})
	}
}

// BenchmarkInvoke measures one call of a tool in an open isolate.
func BenchmarkInvoke(b *testing.B) {
	c := sandboxtest.Start(b, nil).Dial(b, "bench")
	i, err := c.OpenIsolate(context.Background(), sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: "export default (state, args) => args.n + 1"}}})
	if err != nil {
		b.Fatal(err)
	}
	defer i.Close()
	for b.Loop() {
		if _, err := i.Invoke(context.Background(), "1", "t", map[string]any{"n": 1}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenIsolate measures opening an isolate and the first call in it, without and with zod.
func BenchmarkOpenIsolate(b *testing.B) {
	for name, code := range map[string]string{
		"plain": "export default (state, args) => args",
		"zod":   "import { defineTool } from '@standardagents/builder'; import { z } from 'zod'; export default defineTool({ args: z.object({ n: z.number() }), execute: (state, args) => args.n })",
	} {
		b.Run(name, func(b *testing.B) {
			c := sandboxtest.Start(b, nil).Dial(b, "bench")
			var times []time.Duration
			for b.Loop() {
				b.StopTimer()
				time.Sleep(40 * time.Millisecond)
				b.StartTimer()
				begun := time.Now()
				i, err := c.OpenIsolate(context.Background(), sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: code}}})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := i.Invoke(context.Background(), "1", "t", map[string]any{"n": 1}); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(begun))
				_ = i.Close()
			}
			report(b, times)
		})
	}
}
