package conformance

import (
	"context"
	"strings"
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

var _ = Describe("A manager that is killed", Serial, outages, Label("RUN-02", "RUN-11", "SUB-04", "COD-01"), func() {
	It("while code, an approval, a child and a stream are under way goes on as if nothing had been", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "stamp", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (state) => {
	await state.injectMessage({ role: 'system', silent: true, content: 'stamped' });
	await new Promise((done) => setTimeout(done, 300));
	return { status: 'success', result: 'stamp' };
} });
`, nil))
		// What is longer than 4 KiB is written in pieces, however late the clock is.
		stream := harness.Answer(strings.TrimSpace(strings.Repeat("piece by piece ", 320)))
		stream.ChunkDelay = &metav1.Duration{Duration: 2 * time.Millisecond}
		// What the tool has said comes behind its result.
		said := func(text string, s skeinv1.ScriptStep) skeinv1.ScriptStep {
			s.When = &skeinv1.ScriptMatch{Role: "system", Matches: text}
			return s
		}
		prompt := harness.Prompt(ns, "prompt", "model", "stamp", "builtin:kv", "builtin:subagents")
		prompt.Spec.Tools[1].RequiresApproval = true
		create(ctx, prompt,
			harness.Scripted(ns, "model",
				harness.On("go", harness.Calls("stamp", map[string]any{})),
				said("stamped", harness.Calls("set_value", map[string]any{"key": "k", "value": 1})),
				harness.After("set_value", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "help"})),
				harness.After("subagent_create", stream)),
			harness.Scripted(ns, "worker", harness.Slow(300*time.Millisecond, harness.Answer("the child says so"))),
			harness.Prompt(ns, "worker", "worker"), harness.Agent(ns, "worker", "worker"),
			harness.Agent(ns, "agent", "prompt", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true })}
			}))
		// play has a conversation to its end; meanwhile is called at each of its stages.
		play := func(name string, meanwhile func()) (transcript []string) {
			create(ctx, harness.NewThread(ns, name, "agent"))
			t, person := ready(ctx, cluster.Thread(ns, name)), api().Thread(ns, name)
			logged := func(kind string) func(Gomega) {
				return func(g Gomega) { g.Expect(t.Log(ctx)).To(ContainElement(HaveField("Type", kind))) }
			}
			Expect(t.Say(ctx, "go")).To(Succeed())
			Eventually(ctx, logged(runtimev1.EventToolStarted)).Should(Succeed())
			meanwhile()
			var calls *runtimev1.ApprovalList
			Eventually(ctx, func(g Gomega) {
				var err error
				calls, err = person.Approvals(ctx, runtimeclient.Page{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(calls.Approvals).To(HaveLen(1))
			}).Should(Succeed())
			meanwhile()
			Eventually(ctx, func() error { // again is no error
				_, err := person.Approve(ctx, calls.Approvals[0].ToolCallID, "", nil)
				return err
			}).Should(Succeed())
			child := func() *skeinv1.Subagent {
				for _, s := range subagents(ctx, ns) {
					if owner := metav1.GetControllerOf(&s); owner != nil && owner.Name == name {
						return &s
					}
				}
				return nil
			}
			Eventually(ctx, child).ShouldNot(BeNil())
			meanwhile()
			Eventually(ctx, logged(runtimev1.EventDelta)).Should(Succeed())
			meanwhile()
			settled(ctx, t, 1)

			page, err := person.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true})
			Expect(err).NotTo(HaveOccurred())
			called := map[string]int{}
			for _, m := range page.Messages {
				for _, c := range m.ToolCalls {
					called[c.ID]++
				}
				if m.ToolCallID != "" {
					called[m.ToolCallID]++
				}
				transcript = append(transcript, strings.ReplaceAll(text(m), child().Name, "CHILD")+" "+m.ToolStatus)
			}
			Expect(called).To(And(HaveLen(3), HaveEach(2)), "each call is there once, and its result")
			for _, e := range must(t.Log(ctx)) {
				switch e.Type {
				case runtimev1.EventRunStarted, runtimev1.EventRunEnded, runtimev1.EventMessageCreated, runtimev1.EventToolEnded, runtimev1.EventApprovalRequested, runtimev1.EventApprovalDecided:
					transcript = append(transcript, e.Type)
				}
			}
			Expect(must(t.Runs(ctx))).To(HaveExactElements(And(HaveField("Status", "succeeded"), HaveField("Steps", 4))))
			Expect(t.Value(ctx, "k")).To(MatchJSON(`1`))
			return transcript
		}
		want := play("calm", func() {})
		Expect(want).To(ContainElements("system: stamped ", "tool: stamp success", "assistant: "+stream.Content+" "))
		Expect(subagents(ctx, ns)).To(HaveLen(1))
		kills := 0
		Expect(play("shaken", func() {
			kills++
			manager.Kill()
			Expect(manager.Start(ctx)).To(Succeed())
			served(ctx)
		})).To(Equal(want))
		Expect(kills).To(Equal(4))
		Expect(subagents(ctx, ns)).To(HaveLen(2), "one child each")
		var threads skeinv1.ThreadList
		Expect(cluster.Client.List(ctx, &threads, client.InNamespace(ns))).To(Succeed())
		Expect(threads.Items).To(HaveLen(4))
	}, SpecTimeout(10*time.Minute))
})

var _ = Describe("A namespace that floods the manager", Serial, outages, Label("THR-13"), func() {
	It("keeps no other waiting", func(ctx SpecContext) {
		flood, quiet := namespace(ctx), namespace(ctx)
		instead(ctx, harness.ManagerOptions{Dir: GinkgoT().TempDir(), Args: []string{"--workers=5", "--tool-private-hosts=127.0.0.1"}})
		h := newHanging()
		names := strings.Fields("a b c d e f g h i j k l")
		hanging(ctx, flood, h, names...)
		t := converse(ctx, quiet, nil, []skeinv1.ScriptStep{harness.Echo()})
		for _, name := range names {
			Expect(cluster.Thread(flood, name).Say(ctx, "hello")).To(Succeed())
		}
		under := func(ctx context.Context) (n int) {
			GinkgoHelper()
			for _, name := range names {
				n += len(must(cluster.Thread(flood, name).Runs(ctx)))
			}
			return n
		}
		Eventually(ctx, func() int { return under(ctx) }).Should(Equal(4), "as many as one namespace may have where others may come")
		for i := range 3 {
			Expect(last(say(ctx, t, i+1, "hello"))).To(Equal("echo: hello"))
		}
		Expect(under(ctx)).To(Equal(4), "of the flood none has ended, and none has begun since")
		close(h.speak)
		for _, name := range names {
			Expect(last(settled(ctx, cluster.Thread(flood, name), 1))).To(Equal("well"))
		}
	}, SpecTimeout(5*time.Minute))
})
