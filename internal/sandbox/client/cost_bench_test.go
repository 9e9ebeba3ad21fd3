//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/hostiletest"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

// BenchmarkExecutionCost measures what whole executions take of a processor, from the start of their child to its end: of the children, of the
// compiler of runs, and of the supervisor with its client. Children start ahead, as in a pod. To measure the children of a pod, name them: SKEIN_TEST_SANDBOX=bin/sandbox.
func BenchmarkExecutionCost(b *testing.B) {
	isolate := func(code string) func(*testing.B, *client.Client) {
		return func(b *testing.B, c *client.Client) {
			i, err := c.OpenIsolate(context.Background(), sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: code}}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := i.Invoke(context.Background(), "1", "t", map[string]any{"n": 1}); err != nil {
				b.Fatal(err)
			}
			_ = i.Close()
		}
	}
	const prefork = 2
	for _, kind := range []struct {
		name    string
		execute func(*testing.B, *client.Client)
	}{
		{"plain", isolate("export default (state, args) => args")},
		{"zod", isolate("import { defineTool } from '@standardagents/builder'; import { z } from 'zod'; export default defineTool({ args: z.object({ n: z.number() }), execute: (state, args) => args.n })")},
		{"runCode", func(b *testing.B, c *client.Client) {
			runOnce(b, c, sandbox.CodeRequest{Source: "export default (): number => 1 + 1"})
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			s := sandboxtest.Start(b, func(o *supervisor.Options) { o.Prefork = prefork })
			c := s.Dial(b, "bench")
			ready := sandboxtest.AtRest(prefork)
			if sandboxtest.Small() && kind.name != "runCode" {
				ready -= prefork - 1 // one child for runs, of which there are none
			}
			atRest := func() {
				NewWithT(b).Eventually(func() int { return len(hostiletest.Children(os.Getpid())) }, time.Minute).Should(Equal(ready))
			}
			for range 8 { // the first ones start before there are images, or for another kind
				kind.execute(b, c)
				atRest()
			}
			var children, own [2]unix.Rusage
			read := func(of int, to *unix.Rusage) {
				if unix.Getrusage(of, to) != nil {
					b.Fatal("getrusage")
				}
			}
			before := used(hostiletest.Children(os.Getpid()))
			read(unix.RUSAGE_CHILDREN, &children[0])
			read(unix.RUSAGE_SELF, &own[0])
			n := 0
			for b.Loop() {
				kind.execute(b, c)
				n++
			}
			read(unix.RUSAGE_SELF, &own[1])
			atRest() // the last child has ended, and counts
			read(unix.RUSAGE_CHILDREN, &children[1])
			var stayed time.Duration
			for pid, now := range used(hostiletest.Children(os.Getpid())) {
				if was, ok := before[pid]; ok {
					stayed += now - was
				}
			}
			spent := func(r [2]unix.Rusage) float64 {
				used := func(u unix.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
				return float64(used(r[1])-used(r[0])) / float64(n) / 1e6
			}
			b.ReportMetric(spent(children), "child-ms")
			b.ReportMetric(float64(stayed.Microseconds())/float64(n)/1e3, "compiler-ms") // a process that stays, if there is one
			b.ReportMetric(spent(own), "supervisor-ms")
			if kind.name == "runCode" {
				b.ReportMetric(3+1, "goal-ms-in-all") // 3 in the sandbox, which is the children and the supervisor, and 1 in the manager
			}
			b.ReportMetric(float64(children[1].Minflt-children[0].Minflt)/float64(n), "faults")
		})
	}
}

// used returns what processes have used of a processor.
func used(pids []int) map[int]time.Duration {
	const scheduled = 2 // CPUCLOCK_SCHED: user and system time of all threads
	out := map[int]time.Duration{}
	for _, pid := range pids {
		var t unix.Timespec
		if unix.ClockGettime(int32(^pid)<<3|scheduled, &t) == nil {
			out[pid] = time.Duration(t.Nano())
		}
	}
	return out
}
