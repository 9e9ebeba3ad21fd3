package conformance

import (
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// firingsOf lists the firings of a ScheduledEffect, the newest first, and what did not fire.
func firingsOf(ctx SpecContext, g Gomega, o *skeinv1.ScheduledEffect) *runtimev1.FiringList {
	GinkgoHelper()
	list, err := api().Firings(ctx, o.Namespace, o.Name, runtimeclient.FiringPage{Limit: 1000})
	g.Expect(err).NotTo(HaveOccurred())
	return list
}

var tick = &skeinv1.EffectMessage{Content: "tick", Silent: true}

var _ = Describe("Policies of schedules", func() {
	It("fire for each thread that a selector matches, as often as they may in all", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		other := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		var threads []*harness.Thread
		for _, name := range []string{"one", "two"} {
			o := harness.NewThread(ns, name, "agent")
			o.Labels = map[string]string{"team": "red"}
			create(ctx, o)
			threads = append(threads, ready(ctx, cluster.Thread(ns, name)))
		}
		o := scheduled(ns, "all", skeinv1.ScheduledEffectSpec{ThreadSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
			Message: tick, Schedules: []string{"@every 1s"}, MaxFirings: ptr.To[int64](2), Jitter: &metav1.Duration{Duration: time.Second}})
		create(ctx, o)
		Eventually(ctx, func(g Gomega) {
			s := effectStatus(ctx, o)
			g.Expect(s.Phase).To(Equal("Finished"))
			g.Expect(s.NextTime).To(BeNil())
		}).Should(Succeed())
		Eventually(ctx, func(g Gomega) {
			list := firingsOf(ctx, g, o).Firings
			g.Expect(list).To(HaveLen(4))
			g.Expect(list).To(HaveEach(HaveField("Status", "succeeded")))
			for i := range 2 {
				a, b := list[2*i], list[2*i+1]
				g.Expect(a.Due).To(Equal(b.Due))
				g.Expect([]string{a.ThreadID, b.ThreadID}).To(ConsistOf(objectOf(ctx, threads[0]).ThreadID(), objectOf(ctx, threads[1]).ThreadID()))
				g.Expect(a.FiredAt).To(BeNumerically(">=", a.Due), "jitter only delays")
			}
		}).Should(Succeed())
		for _, t := range threads {
			Expect(ticks(ctx, t)["tick"]).To(Equal(2))
		}
		Expect(ticks(ctx, other)["tick"]).To(BeZero())
	}, SpecTimeout(3*time.Minute))

	It("skip what is forbidden while another is under way, or beyond the firings of a day, and say so", Label("EFF-03", "EFF-07", "EFF-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		release := make(chan struct{})
		server := toolServer(func(_ http.ResponseWriter, r *http.Request, _ string) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		create(ctx, harness.HTTPTool(ns, "slow", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, nil))
		forbidden := scheduled(ns, "forbidden", skeinv1.ScheduledEffectSpec{CallTool: &skeinv1.EffectToolCall{Name: "slow"}, Schedules: []string{"@every 1s"}, ConcurrencyPolicy: skeinv1.ConcurrencyForbid})
		limited := scheduled(ns, "limited", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: tick, Schedules: []string{"@every 1s"},
			TimeZone:   fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12), // where it is noon, so that the day does not end meanwhile
			DailyLimit: &skeinv1.DailyLimit{Firings: ptr.To[int64](2)}})
		create(ctx, forbidden, limited)
		shows := func(o *skeinv1.ScheduledEffect, reason string, times int) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				s := effectStatus(ctx, o)
				g.Expect(s.LastSkip).To(HaveValue(HaveField("Reason", reason)))
				g.Expect(s.Skipped).To(BeNumerically(">=", times))
				out, err := cluster.Kubectl(ctx, "-n", ns, "get", "events", "-o", "jsonpath={.items[*].reason}")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out).To(ContainSubstring(reason))
			}).Should(Succeed())
		}
		shows(forbidden, "Forbidden", 2)
		Expect(server.Requests()).To(HaveLen(1))
		close(release)
		Eventually(ctx, func() int { return len(server.Requests()) }).Should(BeNumerically(">", 1))

		shows(limited, "LimitReached", 1) // the next ones are shown within a minute
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "list")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`(?m)^limited .* LimitReached$`))
		zone, err := time.LoadLocation(limited.Spec.TimeZone)
		Expect(err).NotTo(HaveOccurred())
		today := time.Now().In(zone)
		tomorrow := time.Date(today.Year(), today.Month(), today.Day()+1, 0, 0, 0, 0, zone)
		Expect(effectStatus(ctx, limited).NextTime).To(HaveValue(HaveField("Time", BeTemporally("==", tomorrow))))
		Expect(firingsOf(ctx, Default, limited).Firings).To(HaveLen(2))
		Expect(firingsOf(ctx, Default, limited).Skipped).To(ContainElement(HaveField("Detail", HavePrefix("2 firings on "))))
		Expect(ticks(ctx, t)["tick"]).To(BeNumerically("<=", 2))
	}, SpecTimeout(3*time.Minute))

	It("end what a template began when it takes longer than the timeout, and go on", Label("EFF-03", "EFF-08"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", hang()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		o := scheduled(ns, "endless", skeinv1.ScheduledEffectSpec{
			ThreadTemplate: &skeinv1.ThreadTemplate{Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}, Message: "hang"}},
			Schedules:      []string{"@every 1s"}, ConcurrencyPolicy: skeinv1.ConcurrencyQueue, MaxFirings: ptr.To[int64](2), Timeout: &metav1.Duration{Duration: 3 * time.Second}})
		create(ctx, o)
		var ended []runtimev1.Firing
		Eventually(ctx, func(g Gomega) {
			ended = firingsOf(ctx, g, o).Firings
			g.Expect(ended).To(HaveLen(2))
			g.Expect(ended).To(HaveEach(And(HaveField("Status", "failed"), HaveField("Error", "it did not end within 3s, which spec.timeout allows"))))
		}).Should(Succeed())
		for _, f := range ended {
			Expect(time.Duration(f.EndedAt-f.StartedAt) * time.Microsecond).To(BeNumerically(">=", 3*time.Second))
			Eventually(ctx, func(g Gomega) {
				t, err := cluster.Thread(ns, f.Thread).Object(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(t.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionTerminated, metav1.ConditionTrue, skeinv1.ReasonFiringTimeout)))
				g.Expect(t.Status.LastRun).To(HaveValue(HaveField("Outcome", skeinv1.RunTerminated)))
			}).Should(Succeed())
		}
	}, SpecTimeout(2*patience))

	It("catch up after an outage as they say", Serial, outages, Label("EFF-05", "EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		m := instead(ctx, harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Args: []string{"--namespaces=" + ns}})
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		const every = 30 * time.Second
		all := map[skeinv1.CatchUpPolicy]*skeinv1.ScheduledEffect{}
		for name, policy := range map[string]skeinv1.CatchUpPolicy{"none": skeinv1.CatchUpNone, "last": skeinv1.CatchUpLast, "all": skeinv1.CatchUpAll} {
			all[policy] = scheduled(ns, name, skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Message: tick,
				Schedules: []string{"@every " + every.String()}, CatchUp: &skeinv1.CatchUp{Policy: policy}})
			create(ctx, all[policy])
		}
		for _, o := range all {
			Eventually(ctx, func() *metav1.Time { return effectStatus(ctx, o).NextTime }).ShouldNot(BeNil())
		}
		m.Stop()
		// Two due times pass, and the second is over by more than what counts as punctual.
		second := time.Now().Truncate(every).Add(2 * every)
		Eventually(ctx, time.Now).WithTimeout(3 * every).Should(BeTemporally(">", second.Add(11*time.Second)))
		Expect(m.Start(ctx)).To(Succeed())
		served(ctx)
		missed := []int64{second.UnixMicro(), second.Add(-every).UnixMicro()}
		due := func(g Gomega, o *skeinv1.ScheduledEffect) (out []int64) {
			GinkgoHelper()
			for _, f := range firingsOf(ctx, g, o).Firings {
				if f.Origin == "catch-up" {
					g.Expect(f.Status).To(Equal("succeeded"))
					g.Expect(missed).To(ContainElement(f.Due))
					out = append(out, f.Due)
				}
			}
			return out
		}
		Eventually(ctx, func(g Gomega) { g.Expect(due(g, all[skeinv1.CatchUpAll])).To(Equal(missed)) }).Should(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(due(g, all[skeinv1.CatchUpLast])).To(Equal(missed[:1])) }).Should(Succeed())
		Eventually(ctx, func(g Gomega) {
			s := effectStatus(ctx, all[skeinv1.CatchUpNone])
			g.Expect(s.LastSkip).To(HaveValue(And(HaveField("Reason", "Missed"), HaveField("Count", int64(2)))))
			g.Expect(due(g, all[skeinv1.CatchUpNone])).To(BeEmpty())
			g.Expect(effectStatus(ctx, all[skeinv1.CatchUpLast]).LastSkip).To(HaveValue(And(HaveField("Reason", "Missed"), HaveField("Count", int64(1)))))
			g.Expect(effectStatus(ctx, all[skeinv1.CatchUpAll]).Skipped).To(BeZero())
		}).Should(Succeed())
	}, SpecTimeout(6*time.Minute))
})

// objectOf reads the object of a thread.
func objectOf(ctx SpecContext, t *harness.Thread) *skeinv1.Thread {
	GinkgoHelper()
	o, err := t.Object(ctx)
	Expect(err).NotTo(HaveOccurred())
	return o
}
