package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Effects with arguments over the limit", Label("EFF-01", "EFF-03"), func() {
	It("are refused, and those that are declared say so and fire nothing", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "remind-me", remind), harness.CodeTool(ns, "plan", `
export default async (state: any) => {
  try { return await state.scheduleEffect('remind_me', { about: 'x'.repeat(1 << 20) }, 0); } catch (e: any) { return e.message; }
};`, nil))
		t := converse(ctx, ns, []string{"plan"}, []skeinv1.ScriptStep{harness.Echo()})
		large := fmt.Sprintf(`{"about":%q}`, strings.Repeat("x", 1<<20))
		over := fmt.Sprintf("the arguments have %d bytes, more than the limit of 1048576: put large data into a file and give its path", len(large))

		By("code, and the runtime API")
		res, err := golang(t).InvokeTool(ctx, "plan", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Result).To(ContainSubstring(over), res.Error)
		_, err = golang(t).ScheduleEffect(ctx, "remind_me", json.RawMessage(large), 0)
		Expect(err).To(MatchError(Or(ContainSubstring(over), ContainSubstring("the body is larger than"))))

		By("kubectl, for one time and for a schedule")
		args := &runtime.RawExtension{Raw: []byte(large)}
		once := scheduled(ns, "once", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Effect: "remind-me", After: &metav1.Duration{}, Args: args})
		often := scheduled(ns, "often", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Effect: "remind-me", Schedules: []string{"@every 1s"}, Args: args})
		create(ctx, once, often)
		for _, o := range []*skeinv1.ScheduledEffect{once, often} {
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				g.Expect(o.Status.Conditions).To(ContainElement(And(
					condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidSpec), HaveField("Message", "spec.args: "+over))))
			}).Should(Succeed())
			Expect(o.Status.FiredAt).To(BeZero())
		}
		Expect(t.Messages(ctx)).To(BeEmpty())
	}, SpecTimeout(4*time.Minute))
})

var _ = Describe("A schedule whose handler never ends", Label("EFF-03", "EFF-07"), func() {
	It("stops each attempt after its timeout, says so, and goes on", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "endless", `export default async () => { for (;;) await new Promise((done) => setTimeout(done, 100)); };`))
		o := scheduled(ns, "endless", skeinv1.ScheduledEffectSpec{Effect: "endless", Schedules: []string{"@every 2s"}, Timeout: &metav1.Duration{Duration: time.Second}})
		create(ctx, o)
		var list *runtimev1.FiringList
		Eventually(ctx, func(g Gomega) {
			var err error
			list, err = api().Firings(ctx, ns, "endless", runtimeclient.FiringPage{Limit: 100})
			g.Expect(err).NotTo(HaveOccurred())
			ended := 0
			for _, f := range list.Firings {
				if f.EndedAt != 0 {
					ended++
					g.Expect(f.Status).To(Equal("failed"))
					g.Expect(f.Attempts).To(Equal(1))
					g.Expect(f.Error).To(Equal("it did not end within 1s, which spec.timeout allows"))
				}
			}
			g.Expect(ended).To(BeNumerically(">=", 2))
			g.Expect(effectStatus(ctx, o)).To(And(HaveField("Phase", "Active"), HaveField("LastOutcome", "Failed")))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("goes on when a person cancels a firing", Label("EFF-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "endless", `export default async () => { for (;;) await new Promise((done) => setTimeout(done, 100)); };`))
		o := scheduled(ns, "endless", skeinv1.ScheduledEffectSpec{Effect: "endless", Schedules: []string{"@every 2s"}, ConcurrencyPolicy: skeinv1.ConcurrencyQueue})
		create(ctx, o)
		var first, second runtimev1.Firing
		Eventually(ctx, func(g Gomega) {
			list := firingsOf(ctx, g, o).Firings
			g.Expect(len(list)).To(BeNumerically(">=", 2))
			first, second = list[len(list)-1], list[len(list)-2]
			g.Expect(first.StartedAt).NotTo(BeZero())
			g.Expect(second.Status).To(Equal("queued"))
		}).Should(Succeed())
		Expect(api().CancelFiring(ctx, ns, o.Name, runtimev1.CancelFiring{Due: first.Due})).To(HaveField("Status", "canceled"))
		Eventually(ctx, func(g Gomega) {
			list := firingsOf(ctx, g, o).Firings
			g.Expect(list).To(ContainElement(And(HaveField("Due", first.Due), HaveField("Status", "canceled"), HaveField("Error", "canceled by hand"))))
			g.Expect(list).To(ContainElement(And(HaveField("Due", second.Due), HaveField("Status", "pending"), HaveField("StartedAt", BeNumerically(">", first.StartedAt)))), "the one that waited begins")
			g.Expect(effectStatus(ctx, o)).To(And(HaveField("Phase", "Active"), HaveField("LastOutcome", "Canceled"), HaveField("Active", int32(2))))
		}).Should(Succeed())
		_, err := api().CancelFiring(ctx, ns, o.Name, runtimev1.CancelFiring{Due: first.Due})
		Expect(err).To(And(Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("has ended already"))))
	}, SpecTimeout(2*time.Minute))
})
