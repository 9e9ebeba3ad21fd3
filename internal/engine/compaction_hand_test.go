package engine_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Compaction by hand", Label("MSG-12"), func() {
	var w *enginetest.World
	BeforeEach(func() { w = newWorld() })
	say := func(ctx context.Context, id string, n int) {
		GinkgoHelper()
		send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
	}

	outcome := func(ctx context.Context, id, request string) func(Gomega) map[string]any {
		return func(g Gomega) map[string]any {
			for _, kind := range []string{store.EventContextCompacted, store.EventCompactionFailed} {
				for _, e := range compactionEvents(ctx, w, id, kind) {
					if requests, ok := e["requests"].([]any); ok && fmt.Sprint(requests) != "" && strings.Contains(fmt.Sprint(requests), request) {
						return e
					}
				}
			}
			return nil
		}
	}

	It("sums up without a run, once for twenty requests, and counts what it used", func(ctx SpecContext) {
		w.Definitions.Put("a")
		m := listening(w, remembering)
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		for n := range 4 {
			say(ctx, id, n)
		}
		var requests []string
		for range 20 {
			request, err := e.Compact(ctx, id, "", "")
			Expect(err).NotTo(HaveOccurred())
			requests = append(requests, request)
		}
		for _, r := range requests {
			Eventually(outcome(ctx, id, r)).WithContext(ctx).ShouldNot(BeNil())
		}
		asked, _ := summed(m.requests())
		summaries := summariesOf(ctx, w, id)
		Expect(asked).To(HaveLen(len(summaries)))
		Expect(len(summaries)).To(BeNumerically("<", 5), "a request after a summary finds little to sum up")
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(4))
		usage, err := w.Store.Usage(ctx, store.UsageQuery{ThreadID: id})
		Expect(err).NotTo(HaveOccurred())
		read := int64(0)
		for _, req := range m.requests() {
			read += usageOf(req).InputTokens
		}
		Expect(usage.InputTokens).To(Equal(read))
		say(ctx, id, 5)
		Expect(fmt.Sprint(view(m.requests()[len(m.requests())-1]))).To(And(ContainSubstring("SUMMARY number-0."), Not(ContainSubstring("number-0. x"))))
		again, err := e.Compact(ctx, id, "key", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Compact(ctx, id, "key", "")).To(Equal(again))
	})

	It("says why not", func(ctx SpecContext) {
		w.Definitions.Put("a")
		w.Definitions.Put("never", compacting(1000, func(c *skeinv1.PromptCompaction) { c.Mode = skeinv1.CompactionNever }))
		listening(w, remembering)
		e, _ := start(w)
		id := makeThread(ctx, w, "a")
		request, err := e.Compact(ctx, id, "", "")
		Expect(err).NotTo(HaveOccurred())
		Eventually(outcome(ctx, id, request)).WithContext(ctx).Should(HaveKeyWithValue("reason", "NothingToCompact"))
		_, err = e.Compact(ctx, id, "", "b")
		Expect(err).To(MatchError(ContainSubstring(`the agent a has no side "b"`)))
		_, err = e.Compact(ctx, makeThread(ctx, w, "never"), "", "")
		Expect(err).To(MatchError(ContainSubstring("mode: never: set it to auto or manual")))
		_, err = e.Compact(ctx, "none", "", "")
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	It("sums up within a run that is under way, before its next step", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Builtin(skeinv1.BuiltinKV))
		var e *engine.Engine
		var id, request string
		asked := false
		m := listening(w, func(n int, req model.Request) *model.Response {
			last := req.Messages[len(req.Messages)-1]
			if strings.HasPrefix(req.Messages[0].Content, memory) || !strings.HasPrefix(last.Content, "now") {
				return remembering(n, req)
			}
			defer GinkgoRecover()
			var err error
			if !asked {
				asked = true
				request, err = e.Compact(ctx, id, "", "")
				Expect(err).NotTo(HaveOccurred())
			}
			return toolCall("get_value", `{"key":"k"}`)
		})
		e, _ = start(w)
		id = makeThread(ctx, w, "a")
		for n := range 4 {
			say(ctx, id, n)
		}
		send(ctx, w, id, "now")
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		Expect(outcome(ctx, id, request)(NewGomega(func(string, ...int) {}))).To(HaveKeyWithValue("messages", BeNumerically(">", 3)))
		all := m.requests()
		Expect(fmt.Sprint(view(all[len(all)-1]))).To(And(ContainSubstring("<summary>"), ContainSubstring("user now")))
		Expect(w.Store.Inbox(ctx, id)).To(BeEmpty())
	})
})
