package engine_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
)

var _ = Describe("A crash of a compaction", Label("RUN-02", "MSG-12"), func() {
	// play holds a conversation that is summed up near the end of the window and once by hand, cutting the engine off when
	// it comes to a point for the n-th time. It gives how often each point was come to, and what was said.
	play := func(ctx SpecContext, point string, n int) (points map[string]int, transcript []string) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		w.Definitions.Put("a", compacting(1100))
		m := listening(w, remembering)
		c := cutAt(w, point, n)
		e, stop := start(w, c.options)
		id := makeThread(ctx, w, "a")
		again := func() {
			if !c.gate.IsCut() {
				return
			}
			stop()
			Expect(c.gate.Expire(ctx)).To(Succeed())
			e, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		}
		restOrCut := func() {
			for ctx.Err() == nil && !c.gate.IsCut() {
				if rested, err := w.Resting(ctx, id); err == nil && rested {
					break
				}
				pause(ctx, 2*time.Millisecond)
			}
		}
		recovered := false
		for n := range 8 {
			send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
			if restOrCut(); c.gate.IsCut() && !recovered {
				again()
				recovered = true
			}
			rest(ctx, w, id)
		}
		_, err := e.Compact(ctx, id, "by hand", "")
		Expect(err).NotTo(HaveOccurred())
		for ctx.Err() == nil && (!c.gate.IsCut() || recovered) {
			if items, err := w.Store.Inbox(ctx, id); err == nil && len(items) == 0 {
				break
			}
			pause(ctx, 2*time.Millisecond)
		}
		if c.gate.IsCut() && !recovered {
			again()
		}
		defer func() { stop() }()
		Eventually(w.Store.Inbox).WithArguments(ctx, id).WithContext(ctx).Should(BeEmpty())
		asked, _ := summed(m.requests())
		summaries := summariesOf(ctx, w, id)
		Expect(len(asked)).To(BeNumerically("<=", len(summaries)+1), "a crash repeats one call at most")
		for _, s := range summaries {
			transcript = append(transcript, *s.Content)
		}
		return c.reached(), append(transcript, told(ctx, w, id)...)
	}

	It("at any point loses no summary, and writes none twice", func(ctx SpecContext) {
		points, want := play(ctx, "", 0)
		Expect(want[0]).To(HavePrefix("SUMMARY number-0."))
		Expect(points["compact.after"]).To(BeNumerically(">", 1))
		reaches("compaction", points)
		atEachPoint(points, firstMiddleLast, func(point string, n int) {
			_, got := play(ctx, point, n)
			Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))
})
