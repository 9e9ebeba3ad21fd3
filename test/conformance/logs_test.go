package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// logLines gives what the code of a thread logged, as "level source: message".
func logLines(ctx context.Context, t *runtimeclient.Thread, o runtimeclient.LogOptions) []string {
	GinkgoHelper()
	out := []string{}
	for e, err := range t.Logs(ctx, o) {
		Expect(err).NotTo(HaveOccurred())
		var l runtimev1.LogLine
		Expect(json.Unmarshal(e.Data, &l)).To(Succeed())
		out = append(out, l.Level+" "+l.Source+": "+l.Message)
	}
	return out
}

var _ = Describe("Logs of code", func() {
	It("are kept with the run, without secrets, for tools, effects and endpoints", Label("LOG-03", "STA-06", "ENV-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, secretOf(ns, "keys", nil, map[string]string{"key": "hush-hush-hush"}),
			harness.Effect(ns, "remind", `import { defineEffect } from '@standardagents/builder';
export default defineEffect({ execute: async (state) => { console.warn('reminding'); await state.setValue('reminded', true); } });`),
			harness.Endpoint(ns, "report", "/report", endpointHead+`export default defineThreadEndpoint(async () => { console.debug('asked'); return 'ok'; });`),
			harness.CodeTool(ns, "look", `import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
  console.log('the key is', await state.env('KEY'));
  state.waitUntil((async () => { await state.getValue('x'); throw new Error('too late with ' + await state.env('KEY')); })());
  await state.scheduleEffect('remind', {}, 0);
  return { status: 'success', result: 'ok' };
} });`, nil))
		t := converse(ctx, ns, []string{"look"}, []skeinv1.ScriptStep{harness.On("go", harness.Calls("look", nil)), harness.After("look", harness.Answer("done"))},
			func(s *skeinv1.ThreadSpec) { s.Env = []skeinv1.EnvVar{secretVar("KEY", "keys", "key")} })
		say(ctx, t, 1, "go")
		c, err := runtimeclient.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		thread := c.Thread(ns, t.Name)
		Eventually(func(g Gomega) {
			a, err := ask(ctx, thread, http.MethodGet, "/report", "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(a.status).To(Equal(http.StatusOK), a.body)
		}).Should(Succeed())

		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		of := logLines(ctx, thread, runtimeclient.LogOptions{RunID: runs[0].ID})
		Expect(of).To(HaveExactElements("info tool/look: the key is [redacted]", HavePrefix("error tool/look: work after the response failed: Error: too late with [redacted]")))
		Eventually(func() []string { return logLines(ctx, thread, runtimeclient.LogOptions{}) }).Should(ContainElements(of[0], "warn effect/remind: reminding", "debug endpoint/report: asked"))
		out, err := cluster.Plugin(ctx, "-n", ns, "logs", t.Name, "--run", runs[0].ID)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("info  tool/look: the key is [redacted]\n"))
		var effects skeinv1.ScheduledEffectList
		Expect(cluster.Client.List(ctx, &effects, client.InNamespace(ns))).To(Succeed())
		Expect(effects.Items).To(HaveLen(1))
		due := firingsOf(ctx, Default, &effects.Items[0]).Firings[0].Due
		out, err = cluster.Plugin(ctx, "-n", ns, "logs", t.Name, "--firing", effects.Items[0].Name+"/"+time.UnixMicro(due).UTC().Format(time.RFC3339Nano))
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`^\S+ warn  effect/remind: reminding\n$`))
		out, err = cluster.Plugin(ctx, "-n", ns, "tool", t.Name, "look", "-o", "json")
		Expect(err).NotTo(HaveOccurred())
		var res runtimev1.ToolResult
		Expect(json.Unmarshal([]byte(out), &res)).To(Succeed(), out)
		Expect(res.Logs).To(HaveExactElements(HaveField("Message", "the key is [redacted]"), HaveField("Message", ContainSubstring("too late with [redacted]"))))
	}, SpecTimeout(3*time.Minute))
})

var _ = Describe("A run that fails", func() {
	It("makes one Event of its thread", Label("K8S-06", "RUN-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{{Error: "out of order"}})
		Expect(t.Say(ctx, "go")).To(Succeed())
		var told []eventsv1.Event
		Eventually(func(g Gomega) {
			var list eventsv1.EventList
			g.Expect(cluster.Client.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
			told = nil
			for _, e := range list.Items {
				if e.Regarding.Name == t.Name && e.Action == "Run" {
					told = append(told, e)
				}
			}
			g.Expect(told).To(HaveLen(1))
		}).Should(Succeed())
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(told[0]).To(And(HaveField("Type", corev1.EventTypeWarning), HaveField("Reason", runs[0].Reason), HaveField("Note", HavePrefix("run "+runs[0].ID+" failed: "))))
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("kubectl", func() {
	It("completes the plugin's commands and the names of threads", Label("K8S-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		complete := func(args ...string) string {
			GinkgoHelper()
			cmd := exec.CommandContext(ctx, cluster.KubectlPath(), append([]string{"__complete", "skein"}, args...)...)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+harness.Root()+"/bin:"+os.Getenv("PATH"))
			out, err := cmd.Output()
			Expect(err).NotTo(HaveOccurred(), string(out))
			return string(out)
		}
		Expect(strings.Split(complete("se"), "\n")).To(ContainElements(HavePrefix("send\t"), HavePrefix("search\t")))
		Expect(strings.Split(complete("send", "-n", ns, ""), "\n")).To(ContainElement("thread"))
	}, SpecTimeout(2*time.Minute))
})
