package conformance

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The cost of firings whose runs do not end", Label("EFF-03", "EFF-08"), func() {
	// dear returns a schedule whose firings make one call of a model for 0.60 dollars, and then wait for the next one for an hour.
	dear := func(ctx SpecContext, schedules []string) *skeinv1.ScheduledEffect {
		GinkgoHelper()
		ns := namespace(ctx)
		paid := harness.On("hang", harness.Calls("get_value", map[string]any{"key": "k"}))
		paid.Usage = &skeinv1.ScriptUsage{InputTokens: 600}
		model := harness.Scripted(ns, "model", paid, harness.After("get_value", harness.Slow(time.Hour, harness.Answer("never"))))
		model.Spec.Pricing = &skeinv1.ModelPricing{Input: "1000"}
		create(ctx, model, harness.Prompt(ns, "prompt", "model", "builtin:kv"), harness.Agent(ns, "agent", "prompt"))
		o := scheduled(ns, "dear", skeinv1.ScheduledEffectSpec{
			ThreadTemplate: &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}, Message: "hang"}},
			Schedules:      schedules, ConcurrencyPolicy: skeinv1.ConcurrencyReplace,
			TimeZone:   fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12), // where it is noon, so that the day does not end meanwhile
			DailyLimit: &skeinv1.DailyLimit{Cost: ptr.To("1.50")}})
		create(ctx, o)
		return o
	}

	It("counts for the limit of the day when later firings replace them", Label("EFF-07"), func(ctx SpecContext) {
		o := dear(ctx, []string{"@every 3s"})
		Eventually(ctx, func() string { return effectStatus(ctx, o).Phase }).WithTimeout(2 * patience).Should(Equal("LimitReached"))
		Eventually(ctx, func() *skeinv1.EffectSkip { return effectStatus(ctx, o).LastSkip }).Should(HaveValue(HaveField("Reason", "LimitReached")))
		list := firingsOf(ctx, Default, o)
		Expect(list.Skipped).To(ContainElement(HaveField("Detail", MatchRegexp(`^the cost of [0-9-]+ has reached the limit of 1\.50$`))))
		Expect(list.Firings[0]).To(HaveField("Status", "running"))
		replaced, paid := list.Firings[1:], 0
		Expect(replaced).To(HaveEach(HaveField("Status", "canceled")))
		for _, f := range replaced {
			if f.Cost > 0 { // otherwise it was replaced before it had called the model
				Expect(f.Cost).To(BeNumerically("~", 0.6, 1e-9))
				paid++
			}
		}
		Expect(paid).To(Or(Equal(2), Equal(3)), "what the third costs reaches the limit, also if that is known only when it is replaced")
	}, SpecTimeout(4*patience))

	It("is shown when a person cancels them, or deletes or terminates their Threads", Label("EFF-06"), func(ctx SpecContext) {
		o := dear(ctx, never)
		for what, end := range map[string]func(f runtimev1.Firing) error{
			"cancel": func(f runtimev1.Firing) error {
				_, err := api().CancelFiring(ctx, o.Namespace, o.Name, runtimev1.CancelFiring{Due: f.Due})
				return err
			},
			"delete": func(f runtimev1.Firing) error {
				return cluster.Client.Delete(ctx, harness.NewThread(o.Namespace, f.Thread, "agent"))
			},
			"terminate": func(f runtimev1.Firing) error { return api().Thread(o.Namespace, f.Thread).Terminate(ctx) },
		} {
			By(what)
			out, err := cluster.Plugin(ctx, "-n", o.Namespace, "effect", "run", o.Name)
			Expect(err).NotTo(HaveOccurred(), out)
			var running runtimev1.Firing
			Eventually(ctx, func(g Gomega) {
				list := firingsOf(ctx, g, o).Firings
				at := slices.IndexFunc(list, func(f runtimev1.Firing) bool { return f.Status == "running" })
				g.Expect(at).To(BeNumerically(">=", 0))
				running = list[at]
				ms, err := cluster.Thread(o.Namespace, running.Thread).Messages(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(ms).To(ContainElement(HaveField("Role", runtimev1.RoleTool)), "the call is paid for")
			}).Should(Succeed())
			Expect(end(running)).To(Succeed())
			Eventually(ctx, func(g Gomega) {
				g.Expect(firingsOf(ctx, g, o).Firings).To(ContainElement(And(HaveField("Due", running.Due), HaveField("Status", "canceled"), HaveField("Cost", BeNumerically("~", 0.6, 1e-9)))))
			}).Should(Succeed())
		}
	}, SpecTimeout(4*patience))
})
