package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

func scheduled(ns, name string, spec skeinv1.ScheduledEffectSpec) *skeinv1.ScheduledEffect {
	return &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: spec}
}

// effectStatus reads the status of a ScheduledEffect.
func effectStatus(ctx context.Context, o *skeinv1.ScheduledEffect) skeinv1.ScheduledEffectStatus {
	GinkgoHelper()
	got := &skeinv1.ScheduledEffect{}
	Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), got)).To(Succeed())
	return got.Status
}

// columns returns what "kubectl get scheduledeffects" prints of one of them, by the headings.
func columns(ctx context.Context, ns, name string) map[string]string {
	GinkgoHelper()
	out, err := cluster.Kubectl(ctx, "-n", ns, "get", "scheduledeffects", name)
	Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(strings.TrimSpace(out), "\n")
	Expect(lines).To(HaveLen(2), out)
	all := map[string]string{}
	for headings := lines[0]; headings != ""; {
		at := len(lines[0]) - len(headings)
		heading, rest, _ := strings.Cut(headings, " ")
		headings = strings.TrimLeft(rest, " ")
		end := len(lines[0]) - len(headings)
		if headings == "" {
			end = len(lines[1])
		}
		all[heading] = strings.TrimSpace(lines[1][min(at, len(lines[1])):min(end, len(lines[1]))])
	}
	return all
}

// never is a schedule that is not due while a spec runs.
var never = []string{"0 0 29 2 *"}

var _ = Describe("Schedules", func() {
	It("send a message at each due time, which the agent answers", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		o := scheduled(ns, "often", skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: &skeinv1.EffectMessage{Content: "what is new?"}, Schedules: []string{"@every 2s"}})
		create(ctx, o)
		var first metav1.Time
		Eventually(ctx, func(g Gomega) {
			s := effectStatus(ctx, o)
			g.Expect(s.LastTime).NotTo(BeNil())
			g.Expect(s.NextTime).NotTo(BeNil())
			first = *s.LastTime
		}).Should(Succeed())
		Expect(first.Unix() % 2).To(BeZero())
		Eventually(ctx, func() time.Time { return effectStatus(ctx, o).LastTime.Time }).Should(BeTemporally(">", first.Time))
		Eventually(ctx, func(g Gomega) {
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			said := texts(ms)
			count := func(text string) (n int) {
				for _, s := range said {
					if s == text {
						n++
					}
				}
				return n
			}
			g.Expect(count("user: what is new?")).To(BeNumerically(">=", 2))
			g.Expect(count("assistant: done")).To(BeNumerically(">=", 1))
		}).Should(Succeed())

		By("the columns of kubectl and of the plugin")
		Expect(columns(ctx, ns, o.Name)).To(And(HaveKeyWithValue("THREAD", t.Name), HaveKeyWithValue("SCHEDULE", ContainSubstring("@every 2s")), HaveKeyWithValue("NEXT", MatchRegexp(`^\S+Z$`)),
			HaveKeyWithValue("LAST", Not(BeEmpty())), HaveKey("ACTIVE"), HaveKeyWithValue("OUTCOME", "Succeeded"), HaveKeyWithValue("PHASE", "Active"), HaveKeyWithValue("READY", "True")))
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "list")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`often +@every 2s +\S+Z +\S+ ago `))
	}, SpecTimeout(2*patience))

	It("create Threads named after their due times, and keep few of them", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		o := scheduled(ns, "report", skeinv1.ScheduledEffectSpec{
			ThreadTemplate: &skeinv1.ThreadTemplate{Labels: map[string]string{"report": "yes"},
				Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}, Message: "report"}},
			Schedules: []string{"@every 3s"}, SuccessfulHistoryLimit: ptr.To[int32](1)})
		create(ctx, o)
		seen := map[string]bool{}
		Eventually(ctx, func(g Gomega) {
			var l skeinv1.ThreadList
			g.Expect(cluster.Client.List(ctx, &l, client.InNamespace(ns), client.MatchingLabels{"report": "yes"})).To(Succeed())
			for _, t := range l.Items {
				g.Expect(t.Name).To(MatchRegexp(`^report-\d+$`))
				seen[t.Name] = true
			}
			g.Expect(len(seen)).To(BeNumerically(">=", 3))
			g.Expect(effectStatus(ctx, o).LastOutcome).To(Equal("Succeeded"))
			g.Expect(len(l.Items)).To(BeNumerically("<", len(seen)), "the history limit")
		}).Should(Succeed())
	}, SpecTimeout(2*patience))

	It("show in kubectl get what is under way, and how the last firing ended", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", hang()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		o := scheduled(ns, "busy", skeinv1.ScheduledEffectSpec{
			ThreadTemplate: &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}, Message: "hang"}},
			Schedules:      never})
		create(ctx, o)
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "run", o.Name)
		Expect(err).NotTo(HaveOccurred(), out)
		Eventually(ctx, func() map[string]string { return columns(ctx, ns, o.Name) }).Should(And(HaveKeyWithValue("ACTIVE", "1"), HaveKeyWithValue("OUTCOME", "")))
		running := firingsOf(ctx, Default, o).Firings
		Expect(running).To(HaveLen(1))
		Expect(api().Thread(ns, running[0].Thread).Terminate(ctx)).To(Succeed())
		Eventually(ctx, func() map[string]string { return columns(ctx, ns, o.Name) }).Should(And(HaveKeyWithValue("ACTIVE", Or(Equal("0"), BeEmpty())), HaveKeyWithValue("OUTCOME", "Canceled")))
	}, SpecTimeout(2*patience))

	It("of one time fire when it has passed, but not after the deadline", Label("EFF-05", "EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		past := &skeinv1.Timestamp{}
		past.Time = time.Now().Add(-time.Hour).Truncate(time.Second)
		spec := skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: &skeinv1.EffectMessage{Content: "late"}, At: past}
		late := scheduled(ns, "late", spec)
		spec.Message, spec.StartingDeadlineSeconds = &skeinv1.EffectMessage{Content: "too late"}, ptr.To[int64](60)
		tooLate := scheduled(ns, "too-late", spec)
		create(ctx, late, tooLate)
		Eventually(ctx, func() string { return effectStatus(ctx, late).LastOutcome }).Should(Equal("Succeeded"))
		Eventually(ctx, func() *skeinv1.EffectSkip { return effectStatus(ctx, tooLate).LastSkip }).Should(
			HaveValue(And(HaveField("Reason", "Missed"), HaveField("Count", int64(1)))))
		ms := settled(ctx, t, 1)
		Expect(texts(ms)).To(ContainElement("user: late"))
		Expect(texts(ms)).NotTo(ContainElement("user: too late"))
	}, SpecTimeout(2*patience))

	It("skip what was recorded and cannot begin before the deadline, which is no failure", Label("EFF-05", "EFF-07", "EFF-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		spec := skeinv1.ScheduledEffectSpec{Schedules: []string{"@every 2s"}, MaxFirings: ptr.To[int64](2), StartingDeadlineSeconds: ptr.To[int64](1), PauseAfterFailures: ptr.To[int32](1)}
		spec.Effect = "gone" // a worker finds out that it is too late
		ofEffect := scheduled(ns, "of-effect", spec)
		spec.Effect, spec.ThreadTemplate = "", &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "nobody"}, Message: "x"}} // the controller does
		ofTemplate := scheduled(ns, "of-template", spec)
		create(ctx, ofEffect, ofTemplate)
		for _, o := range []*skeinv1.ScheduledEffect{ofEffect, ofTemplate} {
			Eventually(ctx, func(g Gomega) {
				s := effectStatus(ctx, o)
				g.Expect(s).To(And(HaveField("Phase", "Finished"), HaveField("Skipped", int64(2)), HaveField("LastSkip", HaveValue(HaveField("Reason", "Missed")))), o.Name)
			}).Should(Succeed())
			list := firingsOf(ctx, Default, o)
			late := ContainSubstring("it could not begin within 1s of its due time: ")
			Expect(list.Firings).To(And(HaveLen(2), HaveEach(And(HaveField("Status", "canceled"), HaveField("Error", late)))))
			Expect(list.Skipped).To(ConsistOf(And(HaveField("Count", int64(2)), HaveField("Reason", "Missed"), HaveField("Detail", late))))
			Eventually(ctx, func() (string, error) {
				return cluster.Kubectl(ctx, "-n", ns, "get", "events", "--field-selector", "reason=Missed,involvedObject.name="+o.Name, "-o", "jsonpath={.items[*].message}")
			}).Should(late)
		}
		Expect(manager.Metric(ctx, figures, fmt.Sprintf("skein_effect_skipped_total{namespace=%q,reason=%q}", ns, "Missed"))).To(Equal(4.0))
	}, SpecTimeout(2*patience))

	It("that are suspended record what does not fire; the next times of a file can be asked for", Label("EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		o := scheduled(ns, "off", skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: &skeinv1.EffectMessage{Content: "x"}, Schedules: []string{"@every 1s"}, Suspend: true})
		create(ctx, o)
		Eventually(ctx, func(g Gomega) {
			s := effectStatus(ctx, o)
			g.Expect(s.Phase).To(Equal("Suspended"))
			g.Expect(s.LastSkip).To(HaveValue(HaveField("Reason", "Suspended")))
			g.Expect(s.Skipped).To(BeNumerically(">=", 1))
			out, err := cluster.Kubectl(ctx, "-n", ns, "get", "events", "-o", "jsonpath={.items[*].reason}")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Fields(out)).To(ContainElement("Suspended"))
		}).Should(Succeed())
		Expect(effectStatus(ctx, o).LastTime).To(BeNil())

		file := filepath.Join(GinkgoT().TempDir(), "effect.yaml")
		Expect(os.WriteFile(file, []byte(manifestOf(ns, "ScheduledEffect", "x", `{effect: e, schedules: ["@yearly"], startTime: "2090-06-01T00:00:00Z"}`)), 0o600)).To(Succeed())
		out, err := cluster.Plugin(ctx, "effect", "next", "-f", file, "--count=2")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("2091-01-01T00:00:00Z\n2092-01-01T00:00:00Z\n"))
	}, SpecTimeout(2*patience))

	It("are run by hand and backfilled", Label("EFF-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		create(ctx, scheduled(ns, "rare", skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: &skeinv1.EffectMessage{Content: "by hand"}, Schedules: never}))
		said := func() (n int) {
			ms, err := t.Messages(ctx)
			if err != nil {
				return -1
			}
			return len(slices.DeleteFunc(texts(ms), func(s string) bool { return s != "user: by hand" }))
		}
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "run", "rare")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`^scheduledeffect/rare: \S+Z: fires\n$`))
		Eventually(ctx, said).Should(Equal(1))
		for _, outcome := range []string{"fires", "had fired already"} {
			out, err = cluster.Plugin(ctx, "-n", ns, "effect", "backfill", "rare", "--from=2020-01-01T00:00:00Z", "--until=2024-12-31T00:00:00Z")
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(MatchRegexp(`^scheduledeffect/rare: \S+Z to \S+Z, 2 firings: ` + outcome + `\n$`))
			Eventually(ctx, said).Should(Equal(3))
		}
		Consistently(ctx, said).WithTimeout(2 * time.Second).Should(Equal(3))
		_, err = cluster.Plugin(ctx, "-n", ns, "effect", "backfill", "rare", "--from=2021-01-01T00:00:00Z", "--until=2021-01-02T00:00:00Z")
		Expect(err).To(MatchError(ContainSubstring("refused the request: the range has no past due time of this schedule")))
	}, SpecTimeout(2*patience))

	It("pause after failures in a row", Label("EFF-08", "EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("done")})
		o := scheduled(ns, "failing", skeinv1.ScheduledEffectSpec{
			ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Effect: "throws", Schedules: []string{"@every 1s"}, PauseAfterFailures: ptr.To[int32](2)})
		create(ctx, harness.Effect(ns, "throws", `export default async () => { throw new Error('no'); };`), o)
		Eventually(ctx, func(g Gomega) {
			got := &skeinv1.ScheduledEffect{}
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), got)).To(Succeed())
			g.Expect(got.Status.Phase).To(Equal("Paused"))
			g.Expect(got.Status.LastOutcome).To(Equal("Failed"))
			g.Expect(got.Status.LastSkip).To(HaveValue(HaveField("Reason", "Paused")))
			g.Expect(got.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonPaused)))
		}).Should(Succeed())

		By("resuming it")
		fired := effectStatus(ctx, o).Fired
		Expect(cluster.Plugin(ctx, "-n", ns, "effect", "resume", o.Name)).To(Equal("scheduledeffect/failing resumed\n"))
		Eventually(ctx, func(g Gomega) {
			s := effectStatus(ctx, o)
			g.Expect(s.Fired).To(BeNumerically(">=", fired+2))
			g.Expect(s.Phase).To(Equal("Paused"), "after as many failures again")
		}).Should(Succeed())
	}, SpecTimeout(2*patience))
})
