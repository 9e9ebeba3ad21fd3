package conformance

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// How long a stop takes is for the benchmarks; these specs check that it ends a run at any point, and that all of it is
// over and on disk when it has been answered.
var _ = Describe("A stop ends a run", Label("RUN-04", "MSG-08"), func() {
	// stopped stops the thread and holds what must be so at once.
	stopped := func(ctx SpecContext, t *harness.Thread) []runtimev1.Message {
		GinkgoHelper()
		rec, err := api().Thread(t.Namespace, t.Name).Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.Parked).To(BeTrue())
		Expect(must(t.Runs(ctx))).To(HaveExactElements(And(HaveField("Status", "stopped"), HaveField("Reason", "StoppedByUser"), HaveField("Message", "enough"))))
		ms := must(t.Messages(ctx))
		Expect(texts(ms)).To(ContainElement("assistant: (stopped by user)"))
		return ms
	}
	next := func(ctx SpecContext, t *harness.Thread) {
		GinkgoHelper()
		Expect(last(say(ctx, t, 2, "next"))).To(Equal("echo: next"))
	}

	It("in the middle of a stream, of which what came stays out of the conversation", func(ctx SpecContext) {
		ns := namespace(ctx)
		release := make(chan struct{})
		server := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			if len(req.Messages) > 2 {
				harness.Say(w, req.Model, "echo: next")
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"half an"}}]}` + "\n\n"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // the manager hangs up
			close(release)
		})
		DeferCleanup(server.Close)
		model := harness.OpenAI(ns, "model", server.URL, "")
		model.Spec.Timeout = &metav1.Duration{Duration: 10 * time.Minute} // it is stopped long before
		create(ctx, model, harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(t.Log(ctx)).To(ContainElement(HaveField("Type", runtimev1.EventDelta))) }).Should(Succeed())
		Expect(texts(stopped(ctx, t))).To(Equal([]string{"user: go", "assistant: (stopped by user)"}))
		Eventually(ctx, release).Should(BeClosed(), "the provider was hung up on")
		next(ctx, t)
	})

	It("that waits to ask a provider again that is busy", func(ctx SpecContext) {
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			if len(req.Messages) > 2 {
				harness.Say(w, req.Model, "echo: next")
				return
			}
			w.Header().Set("Retry-After", "60") // the longest that is heeded
			http.Error(w, `{"error":{"message":"busy"}}`, http.StatusTooManyRequests)
		})
		DeferCleanup(server.Close)
		m := harness.OpenAI(ns, "model", server.URL, "")
		m.Spec.MaxRetries, m.Spec.Timeout = ptr.To[int32](5), nil
		create(ctx, m, harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() int { asked, _ := server.Requests(); return len(asked) }).Should(Equal(1))
		stopped(ctx, t)
		asked, _ := server.Requests()
		Expect(asked).To(HaveLen(1), "nobody asked again")
		next(ctx, t)
	})

	It("whose tool is in a loop that never ends", func(ctx SpecContext) {
		ns := namespace(ctx)
		spin := harness.CodeTool(ns, "spin", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => { await state.setValue('begun', true); for (;;) {} } });
`, nil)
		spin.Spec.Timeout = &metav1.Duration{Duration: 10 * time.Minute}
		create(ctx, spin)
		t := converse(ctx, ns, []string{"spin"}, []skeinv1.ScriptStep{harness.On("go", harness.Calls("spin", map[string]any{})), harness.Echo()})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(t.Value(ctx, "begun")).To(MatchJSON(`true`)) }).Should(Succeed())
		ms := stopped(ctx, t)
		Expect(ms).NotTo(ContainElement(HaveField("Role", runtimev1.RoleTool)))
		next(ctx, t)
	})

	It("that waits for a child, and the child's run with it", Label("SUB-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := family(ctx, ns,
			[]skeinv1.ScriptStep{harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "hang"})), harness.Echo()},
			[]skeinv1.ScriptStep{hang()}, helper(func(s *skeinv1.AgentSubagent) { s.Blocking, s.Resumable = true, true }))
		Expect(t.Say(ctx, "go")).To(Succeed())
		var child *harness.Thread
		Eventually(ctx, func(g Gomega) {
			subs := subagents(ctx, ns)
			g.Expect(subs).To(HaveLen(1))
			child = cluster.Thread(ns, subs[0].Name)
			g.Expect(child.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
			g.Expect(t.Runs(ctx)).To(ContainElement(HaveField("Status", "waiting")))
		}).Should(Succeed())
		stopped(ctx, t)
		Expect(child.Runs(ctx)).To(HaveExactElements(HaveField("Status", "stopped")))
		next(ctx, t)
		Expect(texts(must(t.Messages(ctx)))).NotTo(ContainElement(HavePrefix("user: [subagent")), "it said nothing to a parent that waits no more")
	})

	It("that waits for a time", func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), []string{"builtin:wait"}, []skeinv1.ScriptStep{
			harness.On("go", harness.Calls("wait", map[string]any{"delayMs": time.Hour.Milliseconds()})), harness.Echo()})
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(t.Runs(ctx)).To(HaveExactElements(And(HaveField("Status", "waiting"), HaveField("Reason", skeinv1.ReasonWaitingForTime))))
		}).Should(Succeed())
		stopped(ctx, t)
		next(ctx, t)
	})

	It("inside a prompt that it has called, and one whose agent waits in the line for the same model", Label("AGT-04", "AGT-05", "AGT-06"), func(ctx SpecContext) {
		ns := namespace(ctx)
		asked, gone := make(chan struct{}, 8), make(chan struct{}, 8)
		server := harness.NewChatServer(func(_ http.ResponseWriter, r *http.Request, _ harness.ChatRequest) {
			asked <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		})
		DeferCleanup(server.Close)
		slow := harness.OpenAI(ns, "slow", server.URL, "")
		slow.Spec.Timeout, slow.Spec.Limits = &metav1.Duration{Duration: 10 * time.Minute}, &skeinv1.ModelLimits{MaxConcurrent: 1}
		inner := harness.Prompt(ns, "inner", "slow")
		inner.Spec.ExposeAsTool, inner.Spec.ToolDescription = true, "Summarises."
		create(ctx, slow, inner, harness.Agent(ns, "expert", "inner", func(s *skeinv1.AgentSpec) { s.ExposeAsTool, s.ToolDescription = true, "Knows." }),
			harness.Scripted(ns, "model", harness.On("^call", harness.Calls("inner", map[string]any{"message": "x"})), harness.On("^ask", harness.Calls("expert", map[string]any{"message": "x"})), harness.Echo()),
			harness.Prompt(ns, "prompt", "model", "prompt:inner", "ask:expert"), harness.Agent(ns, "agent", "prompt"),
			harness.NewThread(ns, "calls", "agent"), harness.NewThread(ns, "asks", "agent"))
		calls, asks := ready(ctx, cluster.Thread(ns, "calls")), ready(ctx, cluster.Thread(ns, "asks"))
		Expect(calls.Say(ctx, "call")).To(Succeed())
		Eventually(ctx, asked).Should(Receive())
		Expect(asks.Say(ctx, "ask")).To(Succeed())
		// working gives the expert's threads whose runs are in a status.
		working := func(g Gomega, status string) (in []string) {
			for _, sub := range subagents(ctx, ns) {
				runs, err := cluster.Thread(ns, sub.Name).Runs(ctx)
				g.Expect(err).NotTo(HaveOccurred())
				for _, r := range runs {
					if r.Status == status {
						in = append(in, sub.Name)
					}
				}
			}
			return in
		}
		Eventually(ctx, func(g Gomega) { g.Expect(working(g, "running")).To(HaveLen(1)) }).Should(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(asks.Runs(ctx)).To(ContainElement(HaveField("Status", "waiting"))) }).Should(Succeed())

		stopped(ctx, asks)
		Expect(working(NewGomega(Fail), "stopped")).To(HaveLen(1), "the expert's run ended with it")
		stopped(ctx, calls)
		Eventually(ctx, gone).Should(Receive(), "the model of the called prompt was hung up on")
		requests, _ := server.Requests()
		Expect(requests).To(HaveLen(1), "who waited in the line never asked")
		next(ctx, calls)

		// Neither has kept its place in the line, or its permit.
		Expect(asks.Say(ctx, "ask")).To(Succeed())
		Eventually(ctx, asked).Should(Receive())
		_, err := api().Thread(ns, "asks").Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, gone).Should(Receive())
		Expect(working(NewGomega(Fail), "running")).To(BeEmpty())
	})
})
