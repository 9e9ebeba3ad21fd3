package engine_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Summaries once the tokens or the cost of the day are used up", Label("K8S-11", "MSG-12"), func() {
	const turns = 10
	var w *enginetest.World
	var quotas *limited
	var e *engine.Engine
	var m *listener
	var id string
	priced := func(n int, req model.Request) *model.Response {
		res := remembering(n, req)
		res.Usage.Cost = 1000
		return res
	}
	manual := func(c *skeinv1.PromptCompaction) { c.Mode = skeinv1.CompactionManual }
	// talk makes a conversation that one summary is too little for.
	talk := func(ctx context.Context, r store.QuotaResource) {
		GinkgoHelper()
		w, quotas = newWorld(), &limited{}
		quotas.set(r, 1<<40)
		w.Store.LimitNamespaces(quotas.of)
		w.Definitions.Put("a", compacting(1100, manual))
		m = listening(w, priced)
		e, _ = start(w, func(o *engine.Options) { o.Quotas = quotas.of })
		id = makeThread(ctx, w, "a")
		for n := range turns {
			send(ctx, w, id, fmt.Sprintf("number-%d. %s", n, strings.Repeat("x", 200)))
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
		}
		Expect(m.requests()).To(HaveLen(turns))
	}
	used := func(ctx context.Context, r store.QuotaResource) int64 {
		GinkgoHelper()
		use, err := w.Store.QuotaUse(ctx, enginetest.Namespace, r)
		Expect(err).NotTo(HaveOccurred())
		Expect(use[r]).To(BeNumerically(">", 0))
		return use[r]
	}
	compact := func(ctx context.Context) {
		GinkgoHelper()
		_, err := e.Compact(ctx, id, "", "")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() ([]store.InboxItem, error) { return w.Store.Inbox(ctx, id) }).WithContext(ctx).Should(BeEmpty())
	}
	failed := func(ctx context.Context) []map[string]any {
		GinkgoHelper()
		return compactionEvents(ctx, w, id, store.EventCompactionFailed)
	}

	for _, r := range []store.QuotaResource{store.QuotaTokens, store.QuotaCost} {
		It(fmt.Sprintf("are not written for requests to a thread at rest, which say so (%s)", r), func(ctx SpecContext) {
			talk(ctx, r)
			quotas.set(r, 1)
			before := used(ctx, r)
			compact(ctx)
			Expect(failed(ctx)).To(ConsistOf(And(HaveKeyWithValue("reason", "QuotaExceeded"), HaveKeyWithValue("requests", HaveLen(1)),
				HaveKeyWithValue("message", And(ContainSubstring(`ThreadQuota "team"`), ContainSubstring("wait until midnight UTC"))))))
			Expect(m.requests()).To(HaveLen(turns), "no model was called")
			Expect(used(ctx, r)).To(Equal(before))

			quotas.set(r, 1<<40)
			compact(ctx)
			Expect(summariesOf(ctx, w, id)).NotTo(BeEmpty())
			Expect(failed(ctx)).To(HaveLen(1))
		})

		It(fmt.Sprintf("end with the one that uses them up (%s)", r), func(ctx SpecContext) {
			talk(ctx, r)
			quotas.set(r, used(ctx, r)+1)
			compact(ctx)
			Expect(summariesOf(ctx, w, id)).To(HaveLen(1))
			Expect(failed(ctx)).To(ConsistOf(HaveKeyWithValue("reason", "QuotaExceeded")))
		})

		It(fmt.Sprintf("end the run that needs more of them (%s)", r), func(ctx SpecContext) {
			talk(ctx, r)
			quotas.set(r, used(ctx, r)+1)
			w.Definitions.Put("a", compacting(1100), func(a *definition.Agent) { a.A.Prompt.Spec.Compaction.Mode = skeinv1.CompactionAuto })
			send(ctx, w, id, "more")
			Expect(rest(ctx, w, id)).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonQuotaExceeded), HaveField("Steps", 0)))
			Expect(summariesOf(ctx, w, id)).To(HaveLen(1))
			Expect(m.requests()).To(HaveLen(turns+1), "only the summary was asked for")
		})
	}
})
