package conformance

import (
	"encoding/json"
	"net/http"
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

// dual makes an agent of two sides, of the prompts "a" and "b".
func dual(ns, name string, turns int32, edit ...func(*skeinv1.AgentSpec)) *skeinv1.Agent {
	return harness.Agent(ns, name, "a", append([]func(*skeinv1.AgentSpec){func(s *skeinv1.AgentSpec) {
		s.Type, s.MaxSessionTurns = skeinv1.AgentDualAI, turns
		s.SideB = &skeinv1.AgentSide{PromptRef: skeinv1.LocalRef{Name: "b"}}
	}}, edit...)...)
}

// sided is texts, with the side that wrote each message in front.
func sided(ms []runtimev1.Message) []string {
	out := texts(ms)
	for i := range out {
		if ms[i].Side != "" {
			out[i] = ms[i].Side + " " + out[i]
		}
	}
	return out
}

var _ = Describe("Agents with two sides", func() {
	It("take turns until the session had as many as it may, and begin anew with the next message", Label("AGT-01", "AGT-02", "ENV-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		toned := func(name, tone string) *skeinv1.Prompt {
			p := harness.Prompt(ns, name, name)
			p.Spec.Env = []skeinv1.EnvVar{{Name: "TONE", Value: &tone, Type: skeinv1.EnvText}}
			return p
		}
		create(ctx,
			harness.Scripted(ns, "a", skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "a heard [{{ .Last.Content }}]"}),
			harness.Scripted(ns, "b", skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "b heard [{{ .Last.Content }}]"}),
			toned("a", "kind"), toned("b", "harsh"), dual(ns, "agent", 3), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, "go")
		Expect(sided(ms)).To(Equal([]string{"user: go", "a assistant: a heard [go]", "b assistant: b heard [a heard [go]]", "a assistant: a heard [b heard [a heard [go]]]"}))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveExactElements(And(HaveField("Status", "succeeded"), HaveField("Reason", "MaxSessionTurnsReached"), HaveField("Message", ContainSubstring("3 turns")))))
		_, err = cluster.Kubectl(ctx, "-n", ns, "wait", "--for=jsonpath={.status.lastRun.reason}=MaxSessionTurnsReached", "thread/thread", "--timeout=60s")
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Log(ctx)).To(ContainElements(
			And(HaveField("Type", runtimev1.EventTurnEnded), HaveField("Data", MatchJSON(`{"side":"a","turn":1,"next":"b"}`))),
			And(HaveField("Type", runtimev1.EventTurnEnded), HaveField("Data", MatchJSON(`{"side":"b","turn":2,"next":"a"}`)))))

		ms = say(ctx, t, 2, "more")
		Expect(sided(ms)[4:]).To(Equal([]string{"user: more", "a assistant: a heard [more]", "b assistant: b heard [a heard [more]]", "a assistant: a heard [b heard [a heard [more]]]"}))
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(o.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)), "the end of a session is none of the thread")
		out, err := cluster.Kubectl(ctx, "-n", ns, "get", "agents")
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(out)).To(ContainElements("TYPE", "dual_ai"))
		lines := func(args ...string) (out []string) {
			GinkgoHelper()
			printed, err := cluster.Plugin(ctx, append([]string{"-n", ns, "env", "list", "thread"}, args...)...)
			Expect(err).NotTo(HaveOccurred())
			for _, line := range strings.Split(strings.TrimSpace(printed), "\n") {
				out = append(out, strings.Join(strings.Fields(line), " "))
			}
			return out
		}
		Expect(lines()).To(Equal([]string{"NAME SIDE TYPE SOURCE VALUE", "TONE a text prompt kind", "TONE b text prompt harsh"}))
		Expect(lines("--side=b")).To(Equal([]string{"NAME TYPE SOURCE VALUE", "TONE text prompt harsh"}))
	}, SpecTimeout(2*time.Minute))

	It("read each other as users, without the other's calls and their results", Label("AGT-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			side := strings.TrimPrefix(plain(req.Messages[0].Content), "You are side ")
			for _, m := range req.Messages {
				if m.Role == "tool" {
					harness.Say(w, req.Model, "a word of "+side)
					return
				}
			}
			harness.CallTool(w, req.Model, "call_of_"+side, "set_value", `{"key":"secret_of_`+side+`","value":1}`)
		})
		DeferCleanup(server.Close)
		side := func(name string) *skeinv1.Prompt {
			p := harness.Prompt(ns, name, "model", "builtin:kv")
			p.Spec.Text = "You are side " + name
			return p
		}
		create(ctx, harness.OpenAI(ns, "model", server.URL+"/v1", ""), side("a"), side("b"), dual(ns, "agent", 4), harness.NewThread(ns, "thread", "agent"))
		ms := say(ctx, ready(ctx, cluster.Thread(ns, "thread")), 1, "go")
		Expect(sided(ms)).To(HaveExactElements("user: go", "a assistant:", HavePrefix("a tool: "), "a assistant: a word of a", "b assistant:", HavePrefix("b tool: "), "b assistant: a word of b",
			"a assistant: a word of a", "b assistant: a word of b"))
		requests, _ := server.Requests()
		Expect(requests).To(HaveLen(6))
		read := map[string][]string{}
		for _, r := range requests {
			name := strings.TrimPrefix(plain(r.Messages[0].Content), "You are side ")
			read[name] = nil // what it read last counts
			for _, m := range r.Messages[1:] {
				read[name] = append(read[name], m.Role+": "+plain(m.Content))
			}
			raw, err := json.Marshal(r.Messages)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(raw)).NotTo(ContainSubstring(map[string]string{"a": "of_b", "b": "of_a"}[name]), "what side %s reads", name)
		}
		Expect(read["a"]).To(HaveExactElements("user: go", HavePrefix("assistant: "), HavePrefix("tool: "), "assistant: a word of a", "user: a word of b"))
		Expect(read["b"]).To(HaveExactElements("user: go", "user: a word of a", HavePrefix("assistant: "), HavePrefix("tool: "), "assistant: a word of b", "user: a word of a"))
	}, SpecTimeout(2*time.Minute))

	It("have rules, tools, hooks and variables of their own, and end the session by their tools", Label("AGT-01", "AGT-02", "RUN-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		prompt := func(name, tone string, tools ...string) *skeinv1.Prompt {
			p := harness.Prompt(ns, name, name, tools...)
			p.Spec.Env = []skeinv1.EnvVar{{Name: "TONE", Type: skeinv1.EnvText, Value: ptr.To(tone)}}
			return p
		}
		b := prompt("b", "harsh", "turns", "builtin:files")
		b.Spec.Hooks = []skeinv1.Hook{{Hook: skeinv1.HookBeforeCreateMessage, Code: skeinv1.CodeSource{Inline: `
import { defineHook } from '@standardagents/builder';
export default defineHook('before_create_message', async (state, m) => (m.content ? { ...m, content: m.content + ' (by the hook of b)' } : undefined));`}}}
		create(ctx, fixtureTool(ns, "turns"),
			harness.Scripted(ns, "a",
				harness.Calls("turns", map[string]any{"next": "a"}), harness.Answer("a first"), harness.Answer("a again"),
				harness.Calls("turns", map[string]any{"next": "b"}), harness.Answer("never")),
			harness.Scripted(ns, "b",
				harness.Calls("turns", map[string]any{}), harness.Answer("b was heard"),
				harness.Calls("write_file", map[string]any{"path": "/verdict.txt", "content": "fine"}),
				harness.Calls("done", map[string]any{"verdict": "accepted", "files": []string{"/verdict.txt"}})),
			prompt("a", "kind", "turns"), b,
			dual(ns, "agent", 9, func(s *skeinv1.AgentSpec) {
				s.SideA.Label, s.SideB.Label = "Author", "Critic"
				s.SideA.MaxSteps, s.SideB.MaxSteps = 2, 3
				s.SideA.SessionFail = &skeinv1.SessionTool{Name: "give_up"}
				s.SideB.SessionStop = &skeinv1.SessionTool{Name: "done", MessageProperty: "verdict", AttachmentsProperty: "files"}
			}), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, "go")
		Expect(sided(ms)).To(HaveExactElements("user: go",
			"a assistant:", `a tool: {"now":["a",1,1,0,"a"],"said":"-a","stoppedBy":null,"tone":"kind"}`, "a assistant: a first", "a assistant: a again",
			"b assistant:", `b tool: {"now":["b",4,3,1,"b"],"said":"-aaaab","stoppedBy":null,"tone":"harsh"}`, "b assistant: b was heard (by the hook of b)",
			"a assistant:", HavePrefix(`a tool: {"now":["a",6,4,2,"a"]`),
			"b assistant:", HavePrefix("b tool: "), "b assistant:", "b tool: noted", "b assistant: accepted (by the hook of b)"))
		Expect(ms[len(ms)-1].Attachments).To(ConsistOf(HaveField("Path", "/verdict.txt")))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveExactElements(And(HaveField("Status", "succeeded"), HaveField("Reason", ""), HaveField("Steps", 8))))
	}, SpecTimeout(2*time.Minute))

	It("fail the session, not the thread, and stop it by code of either side", Label("AGT-01", "AGT-02", "RUN-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, fixtureTool(ns, "turns"),
			harness.Scripted(ns, "a", harness.Echo()),
			harness.Scripted(ns, "b", harness.Calls("give_up", map[string]any{"message": "no way"}), harness.Calls("turns", map[string]any{"stop": true}), harness.Answer("never")),
			harness.Prompt(ns, "a", "a"), harness.Prompt(ns, "b", "b", "turns"),
			dual(ns, "agent", 9, func(s *skeinv1.AgentSpec) {
				s.Env = []skeinv1.EnvVar{{Name: "TONE", Type: skeinv1.EnvText, Value: ptr.To("of the agent")}}
				s.SideB.SessionFail = &skeinv1.SessionTool{Name: "give_up"}
			}), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "go"))).To(Equal("no way"))
		ms := say(ctx, t, 2, "try again")
		Expect(text(ms[len(ms)-1])).To(And(HavePrefix(`tool: {"now":["b",2,1,1,"b"]`), ContainSubstring(`"stoppedBy":"b","tone":"of the agent"`)))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(ConsistOf(And(HaveField("Status", "failed"), HaveField("Reason", "SessionFailed"), HaveField("Message", "no way")), HaveField("Status", "succeeded")))
	}, SpecTimeout(2*time.Minute))

	It("show from outside whose turn it is while they talk", Label("RUN-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		hold := make(chan struct{})
		server := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			if strings.HasSuffix(plain(req.Messages[0].Content), "b") {
				select {
				case <-hold:
				case <-r.Context().Done():
				}
			}
			harness.Say(w, req.Model, "a word")
		})
		DeferCleanup(server.Close)
		side := func(name string) *skeinv1.Prompt {
			p := harness.Prompt(ns, name, "model")
			p.Spec.Text = "You are side " + name
			return p
		}
		slow := harness.OpenAI(ns, "model", server.URL+"/v1", "")
		slow.Spec.Timeout = &metav1.Duration{Duration: 2 * time.Minute}
		create(ctx, slow, side("a"), side("b"), dual(ns, "agent", 2), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		c := golang(t)
		Eventually(ctx, func(g Gomega) {
			x, err := c.Execution(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(x).NotTo(BeNil())
			g.Expect(x.ExecutionState).To(And(HaveField("CurrentSide", "b"), HaveField("StepCount", 1), HaveField("SideAStepCount", 1), HaveField("SideBStepCount", 0)))
		}).Should(Succeed())
		close(hold)
		settled(ctx, t, 1)
		Expect(c.Execution(ctx)).To(BeNil())
	}, SpecTimeout(2*time.Minute))

	It("give their parent what was said last when they had as many turns as they may", Label("SUB-04", "AGT-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.Scripted(ns, "a", harness.Echo()), harness.Scripted(ns, "b", harness.Answer("b's last word")),
			harness.Prompt(ns, "a", "a"), harness.Prompt(ns, "b", "b"), dual(ns, "worker", 2),
			harness.Scripted(ns, "parent", harness.On("^go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "talk"})),
				harness.After("subagent_create", harness.Answer("they talk")), harness.On("b's last word", harness.Answer("heard: {{ .Last.Content }}"))),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) { s.Subagents = []skeinv1.AgentSubagent{helper()} }),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			ms, err := t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(texts(ms)).To(ContainElement(And(HavePrefix("assistant: heard: "), ContainSubstring("b's last word"), ContainSubstring("had 2 turns, which is its limit"))))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("are ready when the prompts of both sides are", Label("AGT-01", "K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := dual(ns, "agent", 2)
		create(ctx, harness.Scripted(ns, "m", harness.Echo()), harness.Prompt(ns, "a", "m"), agent)
		is := func(want OmegaMatcher) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				g.Expect(cluster.Client.Get(ctx, key(agent), agent)).To(Succeed())
				g.Expect(agent.Status.Conditions).To(ContainElement(want))
			}).Should(Succeed())
		}
		is(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", And(ContainSubstring(`Prompt "b"`), ContainSubstring("spec.sideB.promptRef")))))
		create(ctx, harness.Prompt(ns, "b", "m"))
		is(condition(skeinv1.ConditionReady, metav1.ConditionTrue))
	}, SpecTimeout(2*time.Minute))

	DescribeTable("are refused when they are declared wrongly", Label("AGT-01", "K8S-02"), func(ctx SpecContext, spec, want string) {
		ns := namespace(ctx)
		_, err := cluster.KubectlIn(ctx, "apiVersion: skein.dev/v1alpha1\nkind: Agent\nmetadata: {name: wrong, namespace: "+ns+"}\nspec: "+spec+"\n", "apply", "-f", "-")
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("without the second side", `{type: dual_ai, sideA: {promptRef: {name: a}}}`, "needs sideB", SpecTimeout(2*time.Minute)),
		Entry("with a second side for a person", `{sideA: {promptRef: {name: a}}, sideB: {promptRef: {name: b}}}`, "set type: dual_ai", SpecTimeout(2*time.Minute)),
		Entry("of an unknown type", `{type: duel, sideA: {promptRef: {name: a}}}`, "dual_ai", SpecTimeout(2*time.Minute)),
		Entry("with no turns", `{type: dual_ai, sideA: {promptRef: {name: a}}, sideB: {promptRef: {name: b}}, maxSessionTurns: 0}`, "maxSessionTurns", SpecTimeout(2*time.Minute)),
	)
})

// plain is the text of a request's content.
func plain(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	return string(content)
}
