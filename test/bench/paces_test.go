package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// paces measures code in a claimed sandbox over the runtime API, back to back and with pauses, in turns. In a pause the sandbox makes the
// next child ready, so that without one the start of a child is part of what is measured.
func (b *sandboxBench) paces(ctx SpecContext, rounds, each int) {
	b.pool(ctx, 1)
	t := b.thread(ctx, "paces")
	b.run(ctx, t) // claims the sandbox
	pid := (&effectBench{cluster: b.cluster}).process(ctx, Default)
	var took [2][]time.Duration
	used := [2]processorTimes{{}, {}}
	for range rounds {
		for spaced, pause := range []func(){func() {}, func() { shortPause(ctx) }} {
			before := timesOf(pid)
			for range each {
				pause()
				took[spaced] = append(took[spaced], b.run(ctx, t))
			}
			for name, d := range timesOf(pid) {
				used[spaced][name] += d - before[name]
			}
		}
	}
	Expect(t.Delete(ctx)).To(Succeed())
	b.pool(ctx, 0)
	p50, spaced := quantile(took[0], .5), quantile(took[1], .5)
	figure("runCode over the API, back to back", "%s; p50 %.2f times that of spaced ones (goal 1)", spread(took[0]), float64(p50)/float64(spaced))
	figure("  spaced by 40 to 120 ms", "%s (goal p50 4 ms, p99 8 ms)", spread(took[1]))
	for i, name := range []string{"back to back", "spaced"} {
		figure("  processor time of each, "+name, "%s (goal: sandbox 3 ms, manager 1 ms)", ofSandboxes(used[i], rounds*each))
	}
}

// shortPause leaves a sandbox alone for longer than it takes to make a child ready.
func shortPause(ctx context.Context) {
	select {
	case <-time.After(40*time.Millisecond + rand.N(80*time.Millisecond)):
	case <-ctx.Done():
	}
}

// ofSandboxes prints the processor time of sandboxes and of the manager, for each of n units.
func ofSandboxes(t processorTimes, n int) string {
	var sandboxes time.Duration
	for name, d := range t {
		if strings.HasPrefix(name, "sandbox") {
			sandboxes += d
		}
	}
	return fmt.Sprintf("sandbox %s, manager %s", round(sandboxes/time.Duration(n)), round(t["manager"]/time.Duration(n)))
}
