package conformance

import (
	"encoding/json"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

const uuid = `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`

const remind = `
import { defineEffect } from '@standardagents/builder';
export default defineEffect({
  description: 'reminds',
  handler: async (state, args) => {
    await state.setValue('apart', state.execution === null);
    await state.queueMessage({ role: 'user', content: 'reminder: ' + args.about });
  },
});`

var _ = Describe("Effects", func() {
	It("with unknown names or invalid delays are errors of the call, and a ScheduledEffect waits for its Effect", Label("EFF-01", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "remind-me", remind), harness.CodeTool(ns, "plan", `
export default async (state: any) => {
  const told: string[] = [];
  const tries: [string, any][] = [['remind_mee', 0], ['acme/remind', 0], ['remind_me', NaN], ['remind_me', -1], ['remind_me', '5'], ['remind_me', 5n], ['remind_me', Infinity], ['remind_me', 366 * 24 * 3600 * 1000], ['', 0]];
  for (const [name, delay] of tries) {
    try { told.push('scheduled ' + await state.scheduleEffect(name, {}, delay)); } catch (e: any) { told.push(e.message); }
  }
  return JSON.stringify([told, (await state.getScheduledEffects()).length]);
};`, nil))
		t := converse(ctx, ns, []string{"plan", "builtin:effects"}, []skeinv1.ScriptStep{
			harness.On("model", harness.Calls("schedule_effect", map[string]any{"name": "remind_mee"})), harness.Echo()})
		res, err := golang(t).InvokeTool(ctx, "plan", nil)
		Expect(err).NotTo(HaveOccurred())
		missing := func(name string) string {
			return `there is no Effect "` + name + `" in namespace "` + ns + `": create it first; existing Effects: remind-me`
		}
		const delay = "state.scheduleEffect: argument 3 must be the delay in milliseconds: a number from 0, which is now, to a year"
		want := must(json.Marshal([]any{[]string{missing("remind-mee"), missing("acme.remind"), delay, delay, delay, delay, delay, delay,
			"state.scheduleEffect: argument 1 must be the effect's name, a string that is not empty"}, 0}))
		Expect(res.Result).To(MatchJSON(want), res.Error)

		By("the model, and the runtime API")
		ms := say(ctx, t, 1, "model")
		content, status := result(ms, "schedule_effect")
		Expect(status).To(Equal("error"))
		Expect(content).To(Equal(missing("remind-mee")))
		_, err = golang(t).ScheduleEffect(ctx, "remind_mee", nil, time.Hour)
		Expect(err).To(And(kind(runtimeclient.ErrNotFound), MatchError(ContainSubstring("existing Effects: remind-me"))))

		for _, wrong := range []time.Duration{-time.Second, 366 * 24 * time.Hour} {
			_, err = golang(t).ScheduleEffect(ctx, "remind_me", nil, wrong)
			Expect(err).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("delay: it must be the delay in milliseconds: a number from 0, which is now, to a year"))))
		}

		By("a ScheduledEffect that names an Effect which comes later")
		declared := &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "early"}, Spec: skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Effect: "comes-later", After: &metav1.Duration{Duration: time.Hour}}}
		create(ctx, declared)
		shows := func(want OmegaMatcher) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(declared), declared)).To(Succeed())
				g.Expect(declared.Status.Conditions).To(ContainElement(want))
			}).Should(Succeed())
		}
		shows(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", ContainSubstring(`Effect "comes-later" does not exist`))))
		create(ctx, harness.Effect(ns, "comes-later", remind))
		shows(condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}, SpecTimeout(4*time.Minute))

	It("are scheduled, listed, cancelled and fired, each pending one an object", Label("EFF-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "remind-me", remind),
			harness.CodeTool(ns, "plan", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  const kept = await state.scheduleEffect('remind_me', { about: 'supper' }, 3600000);
  const later = await state.scheduleEffect('remind_me', { about: 'never' }, 3600000);
  const listed = await state.getScheduledEffects('remind_me');
  const none = await state.getScheduledEffects('other');
  const removed = await state.removeScheduledEffect(later);
  const again = await state.removeScheduledEffect(later);
  const left = await state.getScheduledEffects();
  const soon = await state.scheduleEffect('remind_me', { about: 'tea' }, 700); // now that nothing looks at what is pending
  return { status: 'success', result: JSON.stringify({ soon, kept, later, listed, none, removed, again, left }) };
} });`, nil))
		t := converse(ctx, ns, []string{"plan"}, []skeinv1.ScriptStep{
			harness.On("go", harness.Calls("plan", map[string]any{})),
			harness.After("plan", harness.Answer("planned")),
			harness.On("reminder", harness.Answer("thanks for the {{ .Last.Content }}")),
		})
		content, status := result(say(ctx, t, 1, "go"), "plan")
		Expect(status).To(Equal("success"), content)
		var got struct {
			Soon, Kept, Later string
			Listed, Left      []runtimev1.Effect
			None              []runtimev1.Effect
			Removed, Again    bool
		}
		Expect(json.Unmarshal([]byte(content), &got)).To(Succeed(), content)
		Expect(got.Soon).To(MatchRegexp(uuid))
		Expect(got.Kept).To(MatchRegexp(uuid))
		Expect(got.Later).To(MatchRegexp(uuid))
		Expect(got.Listed).To(ConsistOf(HaveField("ID", got.Kept), HaveField("ID", got.Later)))
		Expect(got.None).To(BeEmpty())
		Expect(got.Removed).To(BeTrue())
		Expect(got.Again).To(BeFalse())
		Expect(got.Left).To(ConsistOf(HaveField("ID", got.Kept)))

		ms := settled(ctx, t, 2)
		Expect(texts(ms)).To(ContainElements("user: reminder: tea", "assistant: thanks for the reminder: tea"))
		Expect(texts(ms)).NotTo(ContainElement("user: reminder: never"))
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ScheduledEffectList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns))).To(Succeed())
			left := map[string]skeinv1.ScheduledEffect{}
			for _, e := range l.Items {
				left[string(e.UID)] = e
			}
			g.Expect(left).To(And(HaveLen(2), HaveKey(got.Kept), HaveKey(got.Soon)))
			g.Expect(left[got.Kept].Status.Phase).To(Equal("Pending"))
			fired := left[got.Soon].Status
			g.Expect(fired.Phase).To(Equal("Succeeded"))
			g.Expect(fired.FiredAt).To(BeNumerically(">=", fired.ScheduledAt))
			g.Expect(fired.Conditions).To(ContainElement(condition(skeinv1.ConditionComplete, metav1.ConditionTrue)))
		}).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("are records with times in microseconds, and run apart from the conversation", Label("EFF-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "acme.remind", remind))
		model := newGate(func(w http.ResponseWriter, req harness.ChatRequest, last string) {
			harness.Say(w, req.Model, map[bool]string{true: "slept", false: "woken"}[last == "user slow"])
		})
		t := converseWith(ctx, ns, model.model(ns, "model"), nil)
		before := time.Now().UnixMicro()
		raw, err := t.Request("POST", "effects").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"name":"acme/remind","args":{"about":"lunch"},"delay":3600000}`)).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred(), string(raw))
		raw, err = t.Request("GET", "effects").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		var list runtimev1.EffectList
		Expect(json.Unmarshal(raw, &list)).To(Succeed())
		Expect(list.Effects).To(HaveLen(1))
		e := list.Effects[0]
		Expect(e.ID).To(MatchRegexp(uuid))
		Expect(e.Name).To(Equal("acme/remind"))
		Expect(e.Args).To(MatchJSON(`{"about":"lunch"}`))
		Expect(e.CreatedAt).To(BeNumerically(">=", before-1_000_000), "object times are whole seconds")
		Expect(e.ScheduledAt-e.CreatedAt).To(BeNumerically("~", time.Hour.Microseconds(), time.Minute.Microseconds()), "the object is made a little after the time is set")

		By("firing one at once while the thread is in a model call")
		Expect(t.Say(ctx, "slow")).To(Succeed())
		Eventually(ctx, model.asked.Load).Should(BeEquivalentTo(1))
		_, err = t.Request("POST", "effects").SetHeader("Content-Type", "application/json").Body([]byte(`{"name":"acme/remind","args":{"about":"now"}}`)).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			g.Expect(t.Value(ctx, "apart")).To(MatchJSON("true"), "state.execution is null in an effect")
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(texts(ms)).To(ContainElement("user: reminder: now"))
		}).Should(Succeed())
		Expect(t.Runs(ctx)).To(HaveExactElements(HaveField("Status", "running")))
		model.open()
		Eventually(ctx, func(g Gomega) {
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(texts(ms)).To(ContainElement("assistant: woken"))
		}).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("are declared with kubectl for a thread, and heal when what they name appears", Label("EFF-01", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := cluster.KubectlIn(ctx, `
apiVersion: skein.dev/v1alpha1
kind: ScheduledEffect
metadata: {name: early, namespace: `+ns+`}
spec: {threadRef: {name: thread}, effect: remind-me, args: {about: bread}, after: 0s}
`, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		var e skeinv1.ScheduledEffect
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "early"}, &e)).To(Succeed())
			g.Expect(e.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound)))
		}).Should(Succeed())
		create(ctx, harness.Effect(ns, "remind-me", remind))
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(texts(settled(ctx, t, 1))).To(Equal([]string{"user: reminder: bread", "assistant: echo: reminder: bread"}))
	}, SpecTimeout(5*time.Minute))
})
