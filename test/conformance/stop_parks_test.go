package conformance

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A stop", func() {
	It("parks what waits until the next user message or a continue, over restarts", Label("MSG-08"), Serial, func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{hang(), harness.Echo()})
		stop := func(runs int) {
			GinkgoHelper()
			Expect(t.Say(ctx, "hang")).To(Succeed())
			running(ctx, t)
			Expect(t.Say(ctx, "w"+fmt.Sprint(runs))).To(Succeed())
			_, err := api().Thread(ns, "thread").Stop(ctx, "enough")
			Expect(err).NotTo(HaveOccurred())
			Expect(t.Runs(ctx)).To(And(HaveLen(runs), HaveEach(Not(HaveField("Status", "running")))), "it is over when the stop has been answered")
		}
		stop(1)
		Expect(api().Thread(ns, "thread").Get(ctx)).To(And(HaveField("Parked", true), HaveField("QueuedCount", int64(1))))
		Eventually(ctx, func(g Gomega) {
			g.Expect(must(t.Object(ctx)).Status.Phase).To(Equal("Parked"))
		}).Should(Succeed())
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		// Longer than the engine takes to find work that was left behind at its start.
		Consistently(ctx, func(g Gomega) {
			runs, err := t.Runs(ctx)
			if err == nil { // the aggregation layer may still be finding the manager
				g.Expect(runs).To(HaveLen(1))
			}
		}, "3s", "100ms").Should(Succeed())
		Eventually(ctx, func() error { _, err := t.Messages(ctx); return err }).Should(Succeed())
		Expect(texts(must(t.Messages(ctx)))).To(Equal([]string{"user: hang", "assistant: (stopped by user)", "user: w1"}))

		By("the next user message")
		Expect(t.Say(ctx, "next")).To(Succeed())
		Expect(texts(settled(ctx, t, 2))).To(Equal([]string{"user: hang", "assistant: (stopped by user)", "user: w1", "user: next", "assistant: echo: next"}))
		Expect(api().Thread(ns, "thread").Get(ctx)).To(HaveField("Parked", false))

		By("an explicit continue")
		stop(3)
		out, err := cluster.Plugin(ctx, "-n", ns, "continue", "thread")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(last(settled(ctx, t, 4))).To(Equal("echo: w3"))
		_, err = api().Thread(ns, "thread").Continue(ctx)
		Expect(err).NotTo(HaveOccurred(), "again does nothing")
	}, SpecTimeout(2*time.Minute))
})
