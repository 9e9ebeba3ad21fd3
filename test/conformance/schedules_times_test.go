package conformance

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// slowTool declares a Tool whose calls last until they are released, or given up. It says which calls were given up.
func slowTool(ctx context.Context, ns, name string, release <-chan struct{}) (server *harness.ToolServer, gaveUp <-chan struct{}) {
	GinkgoHelper()
	gone := make(chan struct{}, 100)
	server = toolServer(func(_ http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-release:
		case <-r.Context().Done():
			gone <- struct{}{}
		}
	})
	create(ctx, harness.HTTPTool(ns, name, skeinv1.HTTPTool{Method: "POST", URL: server.URL}, nil))
	return server, gone
}

// timestamp returns a time of a spec.
func timestamp(t time.Time) *skeinv1.Timestamp { return ptr.To(skeinv1.NewTimestamp(t)) }

// withStatus returns the firings that have a status.
func withStatus(list []runtimev1.Firing, status string) []runtimev1.Firing {
	return slices.DeleteFunc(slices.Clone(list), func(f runtimev1.Firing) bool { return f.Status != status })
}

// skippedMetric reads how many due times of a namespace were skipped for a reason, as the manager's metrics have it.
func skippedMetric(ctx context.Context, g Gomega, ns, reason string) string {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+figures+"/metrics", nil)
	g.Expect(err).NotTo(HaveOccurred())
	resp, err := http.DefaultClient.Do(req)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	g.Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, `skein_effect_skipped_total{namespace="`+ns+`",reason="`+reason+`"} `); ok {
			return strings.TrimSpace(count)
		}
	}
	return ""
}

var _ = Describe("Concurrency policies of schedules", func() {
	It("replace the firing that is under way", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		_, gaveUp := slowTool(ctx, ns, "slow", nil)
		o := scheduled(ns, "replaced", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "slow"}, Schedules: []string{"@every 1s"}, ConcurrencyPolicy: skeinv1.ConcurrencyReplace})
		create(ctx, o)
		for range 2 {
			Eventually(ctx, gaveUp).Should(Receive(), "the call under way is given up")
		}
		Eventually(ctx, func(g Gomega) {
			list := firingsOf(ctx, g, o).Firings
			g.Expect(len(withStatus(list, "canceled"))).To(BeNumerically(">=", 2))
			g.Expect(withStatus(list, "canceled")).To(HaveEach(HaveField("Error", "replaced by the firing that was due next")))
			g.Expect(list[0].Status).To(Equal("pending"), "the newest one is under way")
			g.Expect(withStatus(list, "pending")).To(HaveLen(1))
			g.Expect(effectStatus(ctx, o).Active).To(Equal(int32(1)))
		}).Should(Succeed())
	}, SpecTimeout(2*patience))

	It("let one firing wait for that under way, and skip further ones", Label("EFF-03", "EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		release := make(chan struct{})
		server, _ := slowTool(ctx, ns, "slow", release)
		o := scheduled(ns, "queued", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "slow"}, Schedules: []string{"@every 1s"}, ConcurrencyPolicy: skeinv1.ConcurrencyQueue, MaxFirings: ptr.To[int64](2)})
		create(ctx, o)
		var list []runtimev1.Firing
		Eventually(ctx, func(g Gomega) {
			list = firingsOf(ctx, g, o).Firings
			g.Expect(list).To(HaveExactElements(HaveField("Status", "queued"), HaveField("Status", "pending")))
		}).Should(Succeed())
		Expect(cluster.Kubectl(ctx, "-n", ns, "patch", "scheduledeffect", o.Name, "--type=merge", "-p", `{"spec":{"maxFirings":3}}`)).NotTo(BeEmpty())
		Eventually(ctx, func(g Gomega) {
			g.Expect(effectStatus(ctx, o).LastSkip).To(HaveValue(HaveField("Reason", "Forbidden")))
			g.Expect(firingsOf(ctx, g, o).Skipped).To(ContainElement(HaveField("Detail", "another firing waited already")))
		}).Should(Succeed())
		Eventually(ctx, server.Requests).Should(HaveLen(1))
		close(release)
		Eventually(ctx, func(g Gomega) {
			now := firingsOf(ctx, g, o).Firings
			g.Expect(now).To(HaveLen(3))
			g.Expect(now).To(HaveEach(HaveField("Status", "succeeded")))
			g.Expect(now[1].Due).To(Equal(list[0].Due))
			g.Expect(now[1].StartedAt).To(BeNumerically(">=", now[2].EndedAt), "it waited until the first one had ended")
		}).Should(Succeed())
		Expect(server.Requests()).To(HaveLen(3))
	}, SpecTimeout(2*patience))
})

var _ = Describe("The times of a schedule that is applied", Label("EFF-03", "EFF-07"), func() {
	It("are those of its time zone, from its first to its last and without the excluded ones", func(ctx SpecContext) {
		ns := namespace(ctx)
		// 22 December 2090 is a Friday.
		_, err := cluster.KubectlIn(ctx, manifestOf(ns, "ScheduledEffect", "mornings", `{callTool: {name: rates}, timeZone: America/New_York,
  schedules: ["30 9 * * MON-FRI", "0 12 1 1 *"], startTime: "2090-12-22T14:30:00Z", endTime: "2091-01-03T14:29:59Z",
  exclusions: [{schedule: "* * 25 12 *"}, {start: "2090-12-27T00:00:00Z", end: "2090-12-29T14:30:00Z"}]}`), "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		want := []string{"2090-12-22T14:30:00Z", "2090-12-26T14:30:00Z", "2090-12-29T14:30:00Z", "2091-01-01T14:30:00Z", "2091-01-01T17:00:00Z", "2091-01-02T14:30:00Z"}
		Eventually(ctx, func(g Gomega) {
			next, err := cluster.Kubectl(ctx, "-n", ns, "get", "scheduledeffect", "mornings", "-o", "jsonpath={.status.nextTime}")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(next).To(Equal(want[0]))
		}).Should(Succeed())
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "next", "mornings")
		Expect(err).NotTo(HaveOccurred())
		var times []string
		for line := range strings.Lines(out) {
			times = append(times, strings.Fields(line)[0])
		}
		Expect(times).To(Equal(want))
		Expect(out).To(ContainSubstring("2090-12-22T14:30:00Z   Fri 2090-12-22 09:30:00 EST\n"))
	}, SpecTimeout(2*patience))

	It("all fire, and no others", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: toolServer(func(http.ResponseWriter, *http.Request, string) {}).URL}, nil))
		start := time.Now().UTC().Truncate(time.Second).Add(10 * time.Second)
		after := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
		o := scheduled(ns, "seconds", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "count"}, Schedules: []string{"@every 1s"}, CatchUp: &skeinv1.CatchUp{Policy: skeinv1.CatchUpAll},
			StartTime: timestamp(start), EndTime: timestamp(after(7)), Exclusions: []skeinv1.ScheduleExclusion{{Start: timestamp(after(2)), End: timestamp(after(5))}}})
		create(ctx, o)
		Eventually(ctx, func() string { return effectStatus(ctx, o).Phase }).Should(Equal("Finished"))
		var dues []time.Time
		for _, f := range slices.Backward(firingsOf(ctx, Default, o).Firings) {
			dues = append(dues, time.UnixMicro(f.Due).UTC())
		}
		Expect(dues).To(Equal([]time.Time{start, after(1), after(5), after(6), after(7)}))
		Expect(effectStatus(ctx, o).Skipped).To(BeZero(), "an excluded time is no due time")
	}, SpecTimeout(2*patience))
})

var _ = Describe("Due times for threads that a selector matches", func() {
	It("are skipped for too many threads, and for none, which an Event, the history and a metric say", Label("EFF-03", "EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		var threads []*harness.Thread
		for _, name := range []string{"one", "two"} {
			o := harness.NewThread(ns, name, "agent")
			o.Labels = map[string]string{"team": "red"}
			create(ctx, o)
			threads = append(threads, ready(ctx, cluster.Thread(ns, name)))
		}
		selected := func(name, team string) *skeinv1.ScheduledEffect {
			return scheduled(ns, name, skeinv1.ScheduledEffectSpec{ThreadSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}},
				Message: tick, Schedules: []string{"@every 1s"}, MaxThreads: 1})
		}
		crowded, empty := selected("crowded", "red"), selected("empty", "blue")
		create(ctx, crowded, empty)
		for o, reason := range map[*skeinv1.ScheduledEffect]string{crowded: "TooManyThreads", empty: "NoThreadMatches"} {
			Eventually(ctx, func(g Gomega) {
				g.Expect(effectStatus(ctx, o).LastSkip).To(HaveValue(HaveField("Reason", reason)))
				out, err := cluster.Kubectl(ctx, "-n", ns, "get", "events", "-o", "jsonpath={.items[*].reason}")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(strings.Fields(out)).To(ContainElement(reason))
				g.Expect(skippedMetric(ctx, g, ns, reason)).To(MatchRegexp(`^[1-9]\d*$`))
			}).Should(Succeed())
		}
		list := firingsOf(ctx, Default, crowded)
		Expect(list.Firings).To(And(Not(BeEmpty()), HaveEach(HaveField("ThreadID", objectOf(ctx, threads[0]).ThreadID()))))
		Expect(list.Skipped).To(HaveEach(And(HaveField("ThreadID", objectOf(ctx, threads[1]).ThreadID()), HaveField("Detail", `1 threads from "two" on were left out: raise spec.maxThreads`))))
		list = firingsOf(ctx, Default, empty)
		Expect(list.Firings).To(BeEmpty())
		Expect(list.Skipped).To(HaveEach(HaveField("Detail", "no living Thread of the namespace matches spec.threadSelector")))
		Expect(skippedMetric(ctx, Default, ns, "Suspended")).To(BeEmpty())
	}, SpecTimeout(2*patience))
})
