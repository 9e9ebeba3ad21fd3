package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A past run", Label("RUN-12"), func() {
	It("is taken up again from a step with another input, as a fork, and stays as it is", func(ctx SpecContext) {
		ns := namespace(ctx)
		raw := converse(ctx, ns, []string{"builtin:kv"}, []skeinv1.ScriptStep{
			harness.After("get_value", harness.Answer("It is {{ .Last.Content }}.")),
			{Times: ptr.To[int32](0), ToolCalls: []skeinv1.ScriptToolCall{{Name: "get_value", Arguments: harness.Raw(map[string]string{"key": "{{ .Last.Content }}"})}}},
		})
		Expect(raw.SetValue(ctx, "one", `"1"`)).To(Succeed())
		say(ctx, raw, 1, "one")
		before := say(ctx, raw, 2, "another")
		runs, err := raw.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		first, t := runs[1], conversation(raw)
		record, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())

		By("once for a key, however often it is asked")
		names := make(chan string, 20)
		for range cap(names) {
			go func() {
				defer GinkgoRecover()
				fork, err := t.Rerun(ctx, first.ID, runtimev1.NewRerun{Step: 2, Input: ptr.To("42"), IdempotencyKey: "k"})
				Expect(err).NotTo(HaveOccurred())
				names <- fork.Name
			}()
		}
		var name string
		Eventually(ctx, names).Should(Receive(&name))
		for range cap(names) - 1 {
			Eventually(ctx, names).Should(Receive(Equal(name)))
		}
		fork := cluster.Thread(ns, name)
		Expect(texts(settled(ctx, fork, 1))).To(Equal([]string{"user: one", "assistant:", "tool: 42", "assistant: It is 42."}))
		rs, err := fork.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rs).To(ConsistOf(HaveField("Steps", 1)))
		Expect(conversation(fork).Get(ctx)).To(And(HaveField("OriginThreadID", record.ThreadID), HaveField("ForkPointIndex", HaveValue(BeEquivalentTo(2)))))

		By("with kubectl skein, from the first step")
		out, err := cluster.Plugin(ctx, "-n", ns, "rerun", "thread", "--run", first.ID, "--step", "1", "--input", "two", "--name", "second-try")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("thread/second-try takes run " + first.ID + " of thread up again from step 1\n"))
		Expect(texts(settled(ctx, cluster.Thread(ns, "second-try"), 1))).To(Equal([]string{"user: two", "assistant:", "tool: null", "assistant: It is null."}), "a fork has no values")
		out, err = cluster.Plugin(ctx, "-n", ns, "rerun", "thread", "--name", "same")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(runs[0].ID))
		Expect(texts(settled(ctx, cluster.Thread(ns, "same"), 1))).To(HaveLen(8))

		By("leaving the thread as it was")
		after, err := raw.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(after).To(Equal(before))
		Expect(raw.Runs(ctx)).To(Equal(runs))

		By("with clear errors")
		for want, n := range map[string]runtimev1.NewRerun{
			"has 2 steps in the conversation: give one from 1 to 2, not 3": {Step: 3},
			"set it to the step to take up again":                          {},
		} {
			_, err := t.Rerun(ctx, first.ID, n)
			Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(want))))
		}
		_, err = t.Rerun(ctx, "sess_none", runtimev1.NewRerun{Step: 1})
		Expect(err).To(And(Satisfy(apierrors.IsNotFound), MatchError(ContainSubstring("no run"))))
	}, SpecTimeout(3*time.Minute))

	It("can be one that failed, of a thread that has ended, and not one under way", func(ctx SpecContext) {
		ns := namespace(ctx)
		raw := converse(ctx, ns, nil, []skeinv1.ScriptStep{
			harness.On("fail", skeinv1.ScriptStep{Error: "no", Status: 400}),
			harness.On("hold", harness.Slow(time.Hour, harness.Answer("never"))),
			harness.Echo(),
		})
		t := conversation(raw)
		say(ctx, raw, 1, "fail")
		Expect(raw.Say(ctx, "hold")).To(Succeed())
		var runs []runtimev1.Run
		Eventually(ctx, func(g Gomega) {
			var err error
			runs, err = raw.Runs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(runs).To(HaveLen(2))
		}).Should(Succeed())
		_, err := t.Rerun(ctx, runs[0].ID, runtimev1.NewRerun{Step: 1})
		Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("a run is under way"))))
		Expect(raw.Terminate(ctx)).To(Succeed())
		fork, err := t.Rerun(ctx, runs[1].ID, runtimev1.NewRerun{Step: 1, Input: ptr.To("work"), Title: "Better"})
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(settled(ctx, cluster.Thread(ns, fork.Name), 1))).To(Equal([]string{"user: work", "assistant: echo: work"}))
		Expect(fork.Title).To(Equal("Better"))
	}, SpecTimeout(2*time.Minute))
})
