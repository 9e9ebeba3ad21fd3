package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Firings", func() {
	It("end with their thread: terminated or deleted, nothing of it fires any more", Label("EFF-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "remind-me", remind))
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		_, err := golang(t).ScheduleEffect(ctx, "remind_me", map[string]any{"about": "x"}, time.Hour)
		Expect(err).NotTo(HaveOccurred())
		s := scheduled(ns, "tick", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, Schedules: []string{"@every 1s"}, Message: &skeinv1.EffectMessage{Content: "tick", Silent: true}})
		create(ctx, s)
		Eventually(ctx, func(g Gomega) {
			g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed())
			g.Expect(s.Status.LastTime).NotTo(BeNil())
		}).Should(Succeed())
		Expect(golang(t).Terminate(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			var list skeinv1.ScheduledEffectList
			g.Expect(cluster.Client.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
			g.Expect(list.Items).NotTo(BeEmpty())
			for _, s := range list.Items {
				g.Expect(s.Status.Phase).To(Equal("Canceled"), s.Name)
			}
		}).Should(Succeed())
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(fmt.Sprint(ms)).NotTo(ContainSubstring("reminder"))
		before, err := api().Firings(ctx, ns, s.Name, runtimeclient.FiringPage{Limit: 1000})
		Expect(err).NotTo(HaveOccurred())
		Expect(before.Firings).NotTo(BeEmpty())
		create(ctx, harness.NewThread(ns, "living", "agent"))
		ready(ctx, cluster.Thread(ns, "living"))
		same := scheduled(ns, "same", *s.Spec.DeepCopy())
		same.Spec.ThreadRef.Name = "living"
		create(ctx, same)
		Eventually(ctx, func(g Gomega) {
			now, err := api().Firings(ctx, ns, same.Name, runtimeclient.FiringPage{Limit: 1000})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(now.Firings)).To(BeNumerically(">=", 3), "several due times have passed")
		}).Should(Succeed())
		Expect(api().Firings(ctx, ns, s.Name, runtimeclient.FiringPage{Limit: 1000})).To(HaveField("Firings", HaveLen(len(before.Firings))))

		thread := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: t.Name}}
		Expect(cluster.Client.Delete(ctx, thread)).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsNotFound(cluster.Client.Get(ctx, client.ObjectKeyFromObject(s), s))
		}).Should(BeTrue(), "the Thread owns it")
	}, SpecTimeout(3*time.Minute))

	It("of an effect without a thread run in a pool with variables of their own, and keep a log", Label("EFF-03", "EFF-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Effect(ns, "tidy", `
import { defineEffect } from '@standardagents/builder';
export default defineEffect({ description: 'x', handler: async (state, args) => {
  console.log('tidying', args.what, 'for', await state.env('TEAM'), state.threadId);
  try { await state.getMessages(); } catch (e: any) { console.log(e.message); }
} });`))
		s := scheduled(ns, "tidy", skeinv1.ScheduledEffectSpec{
			Effect: "tidy", Args: &runtime.RawExtension{Raw: []byte(`{"what":"logs"}`)}, Schedules: never, RunOnCreation: true,
			Env: []skeinv1.EnvVar{{Name: "TEAM", Value: ptr.To("platform"), Type: "text"}},
		})
		create(ctx, s)
		Eventually(ctx, func(g Gomega) {
			g.Expect(effectStatus(ctx, s).LastOutcome).To(Equal("Succeeded"))
		}).Should(Succeed())
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "logs", "tidy")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("tidying logs for platform null"), ContainSubstring("state.getMessages needs a thread, and this effect runs without one")))
		out, err = cluster.Plugin(ctx, "-n", ns, "effect", "history", "tidy")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`Z +succeeded +creation +1 +\S+s +- +-`))
	}, SpecTimeout(3*time.Minute))

	It("call a Tool over HTTP with an idempotency key, and again when the service failed", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var calls atomic.Int32
		server := toolServer(func(w http.ResponseWriter, _ *http.Request, _ string) {
			if calls.Add(1) == 1 {
				http.Error(w, "the warehouse burns", http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "counted")
		})
		create(ctx, harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, map[string]any{"n": map[string]any{"type": "integer"}}, "n"))
		s := scheduled(ns, "count", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "count"}, Args: &runtime.RawExtension{Raw: []byte(`{"n":3}`)}, Schedules: never, RunOnCreation: true,
			Retry: &skeinv1.EffectRetry{Attempts: 3, Backoff: &metav1.Duration{Duration: 100 * time.Millisecond}},
		})
		create(ctx, s)
		Eventually(ctx, func(g Gomega) {
			g.Expect(effectStatus(ctx, s).LastOutcome).To(Equal("Succeeded"))
		}).Should(Succeed())
		requests := server.Requests()
		Expect(requests).To(HaveLen(2))
		Expect(requests[0].Header.Get("Idempotency-Key")).NotTo(BeEmpty())
		Expect(requests[1].Header.Get("Idempotency-Key")).To(Equal(requests[0].Header.Get("Idempotency-Key")))
	}, SpecTimeout(2*time.Minute))

	It("call no Tool that requires an approval without a thread, and say what can wait for one", Label("EFF-03", "RUN-11"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server := toolServer(func(w http.ResponseWriter, _ *http.Request, _ string) { _, _ = io.WriteString(w, "paid") })
		pay := harness.HTTPTool(ns, "pay", skeinv1.HTTPTool{Method: "POST", URL: server.URL}, map[string]any{"n": map[string]any{"type": "integer"}}, "n")
		pay.Spec.RequiresApproval = true
		create(ctx, pay)
		s := scheduled(ns, "pay", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "pay"}, Args: &runtime.RawExtension{Raw: []byte(`{"n":3}`)}, Schedules: never, RunOnCreation: true,
			Retry: &skeinv1.EffectRetry{Attempts: 3, Backoff: &metav1.Duration{Duration: 100 * time.Millisecond}},
		})
		create(ctx, s)
		Eventually(ctx, func() string { return effectStatus(ctx, s).LastOutcome }).ShouldNot(BeEmpty())
		Expect(effectStatus(ctx, s).LastOutcome).To(Equal("Failed"))
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "history", "pay")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(`Tool "pay" requires an approval, which callTool cannot wait for: use queueTool on a thread`))
		Expect(server.Requests()).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("call a tool of an MCP server, and queue one on their thread", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		var counted atomic.Pointer[string]
		remote := newMCP()
		remote.AddTool(&mcp.Tool{Name: "count", InputSchema: anyObject}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			counted.Store(ptr.To(string(r.Params.Arguments)))
			return says("counted"), nil
		})
		create(ctx, mcpTool(ns, "stock", mcpServer(remote).URL),
			harness.CodeTool(ns, "mark", `export default async (state: any, args: any) => { await state.setValue('marked', args.n); return 'marked'; };`, map[string]any{"n": map[string]any{"type": "integer"}}, "n"))
		t := converse(ctx, ns, []string{"mark"}, []skeinv1.ScriptStep{harness.Echo()})
		once := func(name string, spec skeinv1.ScheduledEffectSpec) *skeinv1.ScheduledEffect {
			spec.Args, spec.Schedules, spec.RunOnCreation = &runtime.RawExtension{Raw: []byte(`{"n":3}`)}, never, true
			o := scheduled(ns, name, spec)
			create(ctx, o)
			return o
		}
		count := once("count", skeinv1.ScheduledEffectSpec{CallTool: &skeinv1.EffectToolCall{Name: "stock", Method: "count"}})
		mark := once("mark", skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: t.Name}, QueueTool: &skeinv1.EffectToolCall{Name: "mark"}})
		wrong := once("wrong", skeinv1.ScheduledEffectSpec{CallTool: &skeinv1.EffectToolCall{Name: "stock", Method: "sell"}})
		for _, o := range []*skeinv1.ScheduledEffect{count, mark} {
			Eventually(ctx, func() string { return effectStatus(ctx, o).LastOutcome }).Should(Equal("Succeeded"), o.Name)
		}
		Expect(counted.Load()).To(HaveValue(MatchJSON(`{"n":3}`)))
		Eventually(ctx, func(g Gomega) { g.Expect(t.Value(ctx, "marked")).To(MatchJSON("3")) }).Should(Succeed())
		Eventually(ctx, func() string { return effectStatus(ctx, wrong).LastOutcome }).Should(Equal("Failed"))
		out, err := cluster.Plugin(ctx, "-n", ns, "effect", "history", "wrong")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(`the MCP server of Tool "stock" has no tool "sell": set callTool.method to one of: count`))
	}, SpecTimeout(3*time.Minute))
})
