package engine_test

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A message to a thread whose run waits", Label("MSG-05", "RUN-02"), func() {
	// play sends a message while a run waits for an approval, approves the call, and cuts the engine off its store when it comes to a point
	// for the n-th time. It returns how often each point was come to, and what was said.
	play := func(ctx SpecContext, point string, n int) (points map[string]int, said []string) {
		w := newWorld()
		w.Logger = logr.Discard() // crashes are loud
		waitKinds[1].put(w)
		c := cutAt(w, point, n)
		_, stop := start(w, c.options)
		people, err := engine.New(w.Options()) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		rested := func() bool { r, err := w.Resting(ctx, id); return err == nil && r }
		sent := false
		// talk sends the message once the run waits, and approves its call after that.
		talk := func(until func() bool) {
			for ctx.Err() == nil && !until() {
				if !sent && lastRunOr(ctx, w, id).Status == store.RunWaiting {
					send(ctx, w, id, "one")
					sent = true
				}
				list, _, err := people.Approvals(ctx, id, approval.Page{})
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					Expect(err).NotTo(HaveOccurred())
				}
				for _, a := range list {
					if sent && a.Decision == nil {
						_, err := people.Decide(ctx, id, a.ToolCallID, store.Approval{Approved: true, By: "ada"})
						var gone *definition.UnknownError
						Expect(err == nil || errors.As(err, &gone)).To(BeTrue(), "%v", err)
					}
				}
				pause(ctx, 2*time.Millisecond)
			}
		}
		talk(func() bool { return c.gate.IsCut() || rested() })
		stop()
		Expect(c.gate.Expire(ctx)).To(Succeed())
		_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
		defer stop()
		talk(rested)
		Expect(w.Runs(ctx, id)).To(HaveLen(1))
		return c.reached(), told(ctx, w, id)
	}

	It("is answered once, after the result, over a crash at any point", func(ctx SpecContext) {
		points, want := play(ctx, "", 0)
		Expect(want).To(HaveExactElements("user: go", "assistant ->set_value", HavePrefix("tool set_value success"), "user: one", "assistant: re: one"))
		atEachPoint(points, each, func(point string, n int) {
			_, got := play(ctx, point, n)
			Expect(got).To(Equal(want), "after a crash at %s for the %d. time", point, n)
		})
	}, NodeTimeout(manyPlays))

	It("is answered although the engine that cancelled the run crashed right after its write", Label("RUN-10"), func(ctx SpecContext) {
		w := newWorld()
		waitKinds[1].put(w)
		start(w)
		id := makeThread(ctx, w, "waits")
		send(ctx, w, id, "go")
		Eventually(lastRunOr).WithArguments(ctx, w, id).Should(HaveField("Status", store.RunWaiting))
		send(ctx, w, id, "one")
		Eventually(func(g Gomega) {
			g.Expect(w.Store.Inbox(ctx, id)).To(HaveExactElements(HaveField("DelayedUntil", Not(BeZero()))))
		}).WithContext(ctx).Should(Succeed())
		o := w.Options()
		o.Logger = logr.Discard()
		o.Faults = func(point string) {
			if point == "stop.after" {
				panic("crash")
			}
		}
		dying, err := engine.New(o) // has not started: it takes up nothing
		Expect(err).NotTo(HaveOccurred())
		Expect(func() { _ = dying.CancelRun(ctx, id, lastRun(ctx, w, id).ID, "") }).To(PanicWith("crash"))
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: go", "assistant ->set_value", "assistant: (cancelled by user)", "user: one", "assistant: re: one"}))
	})
})
