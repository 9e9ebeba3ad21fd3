package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Messages that wait for a handler", Label("AGT-09", "MSG-05"), func() {
	var w *enginetest.World
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
	})
	const echo = `export default createAgent('Echo', {
  handler: async (ctx, input) => {
    if (input === 'bad') throw new RangeError('not this one');
    if (input === 'reset') await ctx.thread.destroy();
    await ctx.thread.state.push('seen', input);
    return 'echo ' + input;
  },
});`
	statuses := func(ctx context.Context, w *enginetest.World, id string) (out []store.RunStatus) {
		GinkgoHelper()
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range runs {
			out = append(out, r.Status)
		}
		return out
	}

	It("are answered one by one, in order, each by a run of its own", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(echo, nil))
		id := makeThread(ctx, w, "a")
		var want []string
		for i := range 5 {
			send(ctx, w, id, fmt.Sprint(i))
			want = append(want, fmt.Sprintf("user: %d", i), fmt.Sprintf("assistant: echo %d", i))
		}
		start(w)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal(want))
		Expect(statuses(ctx, w, id)).To(HaveLen(5))
		page, err := w.Store.State(ctx, id, store.StateQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Entries).To(ConsistOf(HaveField("Value", MatchJSON(`["0","1","2","3","4"]`))))
	})

	It("are each answered once over a crash at any point of the handler's runs", Label("RUN-02"), func(ctx SpecContext) {
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		play := func(point string, n int) (points map[string]int) {
			w := newWorld()
			w.Logger, w.Sandboxes = logr.Discard(), sandboxes
			w.Definitions.Put("a", handler(echo, nil))
			c := cutAt(w, point, n)
			id := makeThread(ctx, w, "a")
			for i := range 3 {
				send(ctx, w, id, fmt.Sprint(i))
			}
			_, stop := start(w, c.options)
			Eventually(func() bool {
				rested, err := w.Resting(ctx, id)
				return c.gate.IsCut() || err == nil && rested
			}).Should(BeTrue())
			stop()
			Expect(c.gate.Expire(ctx)).To(Succeed())
			_, stop = start(w, func(o *engine.Options) { o.SweepInterval = 20 * time.Millisecond })
			defer stop()
			rest(ctx, w, id)
			at := fmt.Sprintf("after a crash at %s for the %d. time", point, n)
			Expect(told(ctx, w, id)).To(Equal([]string{"user: 0", "assistant: echo 0", "user: 1", "assistant: echo 1", "user: 2", "assistant: echo 2"}), at)
			Expect(statuses(ctx, w, id)).To(Equal([]store.RunStatus{store.RunSucceeded, store.RunSucceeded, store.RunSucceeded}), at)
			page, err := w.Store.State(ctx, id, store.StateQuery{})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Entries).To(ConsistOf(HaveField("Value", MatchJSON(`["0","1","2"]`))), at)
			return c.reached()
		}
		atEachPoint(play("", 0), each, func(point string, n int) { play(point, n) })
	}, NodeTimeout(manyPlays))

	It("outlive a failure, and a conversation that the handler clears", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(echo, nil))
		id := makeThread(ctx, w, "a")
		for _, text := range []string{"one", "bad", "reset", "two"} {
			send(ctx, w, id, text)
		}
		start(w)
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"assistant: echo reset", "user: two", "assistant: echo two"}))
		Expect(statuses(ctx, w, id)).To(Equal([]store.RunStatus{store.RunSucceeded, store.RunFailed, store.RunSucceeded, store.RunSucceeded}))
	})

	It("stay in order while the run of the first waits for a variable", Label("ENV-06"), func(ctx SpecContext) {
		ring := &envkeys.Keyring{}
		keyset, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(keyset)).To(BeTrue())
		w.Threads.ServeEnv(thread.EnvOptions{Cipher: ring, Layers: &required{names: []string{"WORD"}}})
		w.Definitions.Put("a", handler(`export default createAgent('Env', { handler: async (ctx, input) => input + ' ' + (await ctx.skein.env('WORD')).length });`, nil))
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "0")
		start(w)
		Eventually(func() store.RunStatus { return lastRunOr(ctx, w, id).Status }).Should(Equal(store.RunWaiting))
		for i := 1; i < 4; i++ {
			send(ctx, w, id, fmt.Sprint(i))
		}
		held := func() (n int) {
			items, err := w.Store.Inbox(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			for _, item := range items {
				if item.DelayedUntil > time.Now().UnixMicro() {
					n++
				}
			}
			return n
		}
		Eventually(held).Should(Equal(3), "they do not keep waking a run that waits")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(st.SetEnv(ctx, "WORD", "value", "")).To(Succeed())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: 0", "assistant: 0 5", "user: 1", "assistant: 1 5", "user: 2", "assistant: 2 5", "user: 3", "assistant: 3 5"}))
		Expect(statuses(ctx, w, id)).To(HaveLen(4))
	})

	It("are not answered again when a tool call is queued", Label("TOL-01"), func(ctx SpecContext) {
		w.Definitions.Put("a", handler(echo, nil))
		id := makeThread(ctx, w, "a")
		start(w)
		send(ctx, w, id, "one")
		rest(ctx, w, id)
		Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Payload: enginetest.JSON(store.QueuedTool{Name: "none", Arguments: []byte("{}")})}})).To(Succeed())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveExactElements("user: one", "assistant: echo one", "assistant ->none", HavePrefix("tool none error")))
	})

	It("are answered also when they are silent", func(ctx SpecContext) {
		w.Definitions.Put("a", handler(`export default createAgent('Silent', { handler: async (ctx, input) => 'echo ' + input + ' ' + Boolean(ctx.message.silent) });`, nil))
		id := makeThread(ctx, w, "a")
		start(w)
		send(ctx, w, id, "aloud")
		rest(ctx, w, id)
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		text := "quietly"
		_, err = st.Queue(ctx, thread.NewMessage{Content: &text, Silent: true})
		Expect(err).NotTo(HaveOccurred())
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(Equal([]string{"user: aloud", "assistant: echo aloud false", "user: quietly", "assistant: echo quietly true"}))
	})

	It("wait for the end of a session between a handler and a handler", Label("AGT-02"), func(ctx SpecContext) {
		side := func(word string) string {
			return `export default createAgent('Side', { handler: async (ctx, input) => input + ` + "'" + word + "'" + ` });`
		}
		w.Definitions.Put("a", handler(side("a"), nil), turnsAtMost(3), enginetest.Dual(handler(side("b"), nil), func(a *definition.Agent) { a.A.Name = "b" }))
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "1")
		send(ctx, w, id, "2")
		start(w)
		rest(ctx, w, id)
		Expect(sided(ctx, w, id)).To(Equal([]string{
			"user: 1", "a assistant: 1a", "b assistant: 1ab", "a assistant: 1aba",
			"user: 2", "a assistant: 2a", "b assistant: 2ab", "a assistant: 2aba"}))
	})
})
