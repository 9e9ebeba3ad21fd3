package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// systemOf gives the system prompt of a request.
func systemOf(req harness.ChatRequest) (text string) {
	Expect(req.Messages[0].Role).To(Equal("system"))
	Expect(json.Unmarshal(req.Messages[0].Content, &text)).To(Succeed())
	return text
}

// saysBack answers every request with its system prompt.
func saysBack() *harness.ChatServer {
	s := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
		defer GinkgoRecover()
		harness.Say(w, req.Model, "I was told: ", systemOf(req))
	})
	DeferCleanup(s.Close)
	return s
}

// notReady waits until an object says why it is not ready.
func notReady(ctx context.Context, o client.Object, list func() []metav1.Condition, reason, message string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		g.Expect(list()).To(ContainElement(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, reason), HaveField("Message", ContainSubstring(message)))))
	}).Should(Succeed())
}

var _ = Describe("Prompts", Label("AGT-05"), func() {
	prompt := func(ns, name string, change func(*skeinv1.PromptSpec), tools ...string) *skeinv1.Prompt {
		p := harness.Prompt(ns, name, "model", tools...)
		change(&p.Spec)
		return p
	}
	parts := func(list ...skeinv1.PromptPart) func(*skeinv1.PromptSpec) {
		return func(s *skeinv1.PromptSpec) { s.Text, s.Parts = "", list }
	}
	change := func(ctx context.Context, p *skeinv1.Prompt, edit func(*skeinv1.PromptSpec)) {
		GinkgoHelper()
		Eventually(ctx, func() error {
			if err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			edit(&p.Spec)
			return cluster.Client.Update(ctx, p)
		}).Should(Succeed())
	}

	It("are put together of texts, other prompts, ConfigMaps and variables, with arguments in all of them", Label("ENV-03"), func(ctx SpecContext) {
		const canary = "canary-prompt-81c5b27f0a"
		ns := namespace(ctx)
		server := saysBack()
		tone := prompt(ns, "tone", func(s *skeinv1.PromptSpec) { s.Text = "Be kind to {{ arguments.customer.name }}. " })
		create(ctx,
			secretOf(ns, "keys", nil, map[string]string{"key": canary}),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "texts"}, Data: map[string]string{"rules": "Sell in {{ env.CITY }}. ", "vue": "<b>{{ vue }}</b> "}},
			harness.OpenAI(ns, "model", server.URL+"/v1", ""), tone,
			prompt(ns, "prompt", func(s *skeinv1.PromptSpec) {
				parts(skeinv1.PromptPart{Include: "tone"},
					skeinv1.PromptPart{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "texts"}, Key: "rules"}},
					skeinv1.PromptPart{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "texts"}, Key: "vue"}, Literal: true},
					skeinv1.PromptPart{Env: "KEY"}, skeinv1.PromptPart{Text: `, \{{ {{ env.NONE }}`})(s)
				s.Env = []skeinv1.EnvVar{textVar("CITY", "Bern"), secretVar("KEY", "keys", "key")}
			}),
			harness.Agent(ns, "agent", "prompt"),
			harness.NewThread(ns, "thread", "agent", func(s *skeinv1.ThreadSpec) {
				s.TaskID = "T-7"
				s.Arguments = harness.Raw(map[string]any{"customer": map[string]any{"name": "{{ env.KEY }}"}})
			}),
		)
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, "go")
		requests, _ := server.Requests()
		Expect(systemOf(requests[0])).To(Equal("Be kind to {{ env.KEY }}. Sell in Bern. <b>{{ vue }}</b> " + canary + ", {{ \n\nThis conversation belongs to the task T-7."))
		Expect(last(ms)).To(And(HavePrefix("I was told: Be kind to {{ env.KEY }}."), ContainSubstring("[redacted]"), Not(ContainSubstring(canary))))
		everything, err := cluster.Kubectl(ctx, "-n", ns, "get", "threads,models,agents,prompts,events", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(everything).NotTo(ContainSubstring(canary))
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(fmt.Sprintf("%+v", log)).NotTo(ContainSubstring(canary))
		ofManager, err := os.ReadFile(logFile.Name())
		Expect(err).NotTo(HaveOccurred())
		Expect(string(ofManager)).NotTo(ContainSubstring(canary))

		By("editing what it includes")
		change(ctx, tone, func(s *skeinv1.PromptSpec) { s.Text = "Be strict. " })
		runs := 1
		Eventually(ctx, func() string {
			runs++
			say(ctx, t, runs, "again")
			requests, _ := server.Requests()
			return systemOf(requests[len(requests)-1])
		}).Should(HavePrefix("Be strict. Sell in Bern."))
	}, SpecTimeout(2*time.Minute))

	It("say what is wrong with what they are made of, and heal", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		top, middle := prompt(ns, "top", parts(skeinv1.PromptPart{Include: "middle"})), prompt(ns, "middle", parts(skeinv1.PromptPart{Include: "leaf"}))
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), top, middle, harness.Agent(ns, "agent", "top"))
		of := func() []metav1.Condition { return top.Status.Conditions }
		notReady(ctx, top, of, skeinv1.ReasonReferenceNotFound, `Prompt "middle": Prompt "leaf" does not exist`)
		leaf := prompt(ns, "leaf", parts(skeinv1.PromptPart{Include: "top"}))
		create(ctx, leaf)
		notReady(ctx, top, of, skeinv1.ReasonIncludeCycle, "top → middle → leaf → top")
		change(ctx, leaf, func(s *skeinv1.PromptSpec) { s.Parts = []skeinv1.PromptPart{{Text: "one\n{{ argument.x }}"}} })
		notReady(ctx, top, of, skeinv1.ReasonInvalidPlaceholder, `Prompt "leaf": spec.parts[0].text, line 2: {{ argument.x }}`)
		change(ctx, leaf, func(s *skeinv1.PromptSpec) { s.Parts[0].Text = "{{ arguments.x }}" })
		Eventually(ctx, func(g Gomega) {
			for _, p := range []*skeinv1.Prompt{top, middle, leaf} {
				g.Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				g.Expect(p.Status.Conditions).To(ContainElement(condition(skeinv1.ConditionReady, metav1.ConditionTrue)))
			}
		}).Should(Succeed())
		create(ctx, harness.NewThread(ns, "thread", "agent"))
		ready(ctx, cluster.Thread(ns, "thread"))

		By("refusing at once what can be seen at once")
		for says, bad := range map[string]func(*skeinv1.PromptSpec){
			"set exactly one of text and parts": func(s *skeinv1.PromptSpec) { s.Parts = []skeinv1.PromptPart{{Text: "x"}} },
			"give exactly one of text":          parts(skeinv1.PromptPart{Text: "x", Include: "y"}),
			"literal is for text":               parts(skeinv1.PromptPart{Include: "y", Literal: true}),
			"set at most one of effort and maxTokens": func(s *skeinv1.PromptSpec) {
				s.Reasoning = &skeinv1.PromptReasoning{Effort: "low", MaxTokens: ptr.To[int64](9)}
			},
		} {
			Expect(cluster.Client.Create(ctx, prompt(ns, "bad", bad))).To(MatchError(ContainSubstring(says)))
		}
	}, SpecTimeout(2*time.Minute))

	It("say what arguments they need", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		schema := &runtime.RawExtension{Raw: []byte(`{"type":"object","required":["topic"],"properties":{"topic":{"type":"string"}}}`)}
		p := prompt(ns, "prompt", func(s *skeinv1.PromptSpec) { s.RequiredSchema = schema })
		bad := harness.NewThread(ns, "bad", "agent", func(s *skeinv1.ThreadSpec) { s.Arguments = harness.Raw(map[string]any{"topic": 7}) })
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), p, harness.Agent(ns, "agent", "prompt"), bad,
			harness.NewThread(ns, "thread", "agent", func(s *skeinv1.ThreadSpec) { s.Arguments = harness.Raw(map[string]any{"topic": "bees"}) }))
		Expect(last(say(ctx, ready(ctx, cluster.Thread(ns, "thread")), 1, "go"))).To(Equal("echo: go"))
		notReady(ctx, bad, func() []metav1.Condition { return bad.Status.Conditions }, skeinv1.ReasonInvalidArguments, "/topic: got number, want string")
		t := cluster.Thread(ns, "bad")
		Expect(last(say(ctx, t, 1, "go"))).To(And(HavePrefix("(error: "), ContainSubstring("/topic")))
		change(ctx, p, func(s *skeinv1.PromptSpec) { s.RequiredSchema = nil })
		Expect(last(say(ctx, ready(ctx, t), 2, "now"))).To(Equal("echo: now"))
	}, SpecTimeout(2*time.Minute))

	It("ask the model for what they say", func(ctx SpecContext) {
		ns := namespace(ctx)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			if req.Messages[len(req.Messages)-1].Role == "user" && len(req.Tools) > 0 {
				harness.CallTool(w, req.Model, fmt.Sprintf("call_%d", len(req.Messages)), "list_files", `{"prefix":"/"}`)
				return
			}
			harness.Say(w, req.Model, `{"files":`, `0}`)
		})
		DeferCleanup(server.Close)
		p := prompt(ns, "prompt", func(s *skeinv1.PromptSpec) {
			s.IncludePastTools, s.ParallelToolCalls = ptr.To(false), true
			s.Reasoning = &skeinv1.PromptReasoning{Effort: "low"}
			s.ResponseSchema = &runtime.RawExtension{Raw: []byte(`{"type":"object","required":["files"],"properties":{"files":{"type":"integer"}},"additionalProperties":false}`)}
		}, "builtin:files")
		create(ctx, harness.OpenAI(ns, "model", server.URL+"/v1", ""), p, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "one"))).To(MatchJSON(`{"files":0}`))
		Expect(last(say(ctx, t, 2, "two"))).To(MatchJSON(`{"files":0}`))
		roles := func(req harness.ChatRequest) (out []string) {
			for _, m := range req.Messages {
				out = append(out, m.Role)
			}
			return out
		}
		requests, _ := server.Requests()
		Expect(requests).To(HaveLen(4))
		Expect(roles(requests[3])).To(Equal([]string{"system", "user", "assistant", "user", "assistant", "tool"}), "without the tools of the turn before")
		Expect(requests[3].Body).To(And(HaveKeyWithValue("parallel_tool_calls", true), HaveKeyWithValue("reasoning_effort", "low"), HaveKeyWithValue("tool_choice", "auto")))
		format, err := json.Marshal(requests[3].Body["response_format"])
		Expect(err).NotTo(HaveOccurred())
		Expect(string(format)).To(And(ContainSubstring(`"json_schema"`), ContainSubstring(`"required":["files"]`)))

		By("forbidding tools and forgetting the past")
		change(ctx, p, func(s *skeinv1.PromptSpec) { s.IncludeChat, s.ToolChoice = ptr.To(false), "none" })
		runs := 2
		Eventually(ctx, func() []string {
			runs++
			say(ctx, t, runs, "again")
			requests, _ := server.Requests()
			return roles(requests[len(requests)-1])
		}).Should(Equal([]string{"system", "user"}))
		requests, _ = server.Requests()
		Expect(requests[len(requests)-1].Tools).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))

	It("have the model answer with what fits their schema, or fail", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.Scripted(ns, "model",
				skeinv1.ScriptStep{When: &skeinv1.ScriptMatch{Matches: "^Your answer does not fit"}, Content: `{"n":1}`},
				skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: `{"n":"one"}`}),
			prompt(ns, "prompt", func(s *skeinv1.PromptSpec) {
				s.ResponseSchema = &runtime.RawExtension{Raw: []byte(`{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`)}
			}),
			harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "go"))).To(Equal(`{"n":1}`))
		Expect(last(say(ctx, t, 2, "go"))).To(And(HavePrefix("(error: "), ContainSubstring("/n: got string, want integer")))
		runs, err := t.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(ContainElement(HaveField("Reason", "InvalidAnswer")))
	}, SpecTimeout(2*time.Minute))

	It("leave out the oldest turns where the model's window is full, and the log says so", func(ctx SpecContext) {
		ns := namespace(ctx)
		m := harness.Scripted(ns, "model", harness.Answer("first"), harness.Answer("second"), skeinv1.ScriptStep{Times: ptr.To[int32](0), Content: "later"})
		m.Spec.Capabilities = &skeinv1.ModelCapabilities{ContextWindow: 1000, MaxOutputTokens: 200}
		create(ctx, m, harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		for i := range 4 {
			say(ctx, t, i+1, strings.Repeat("x", 1000))
		}
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(log).To(ContainElement(And(HaveField("Type", "context.trimmed"), HaveField("Data", WithTransform(func(d json.RawMessage) string { return string(d) },
			And(ContainSubstring(`"leftOut":4`), ContainSubstring(`"contextWindow":1000`)))))))
		ms := say(ctx, t, 5, strings.Repeat("x", 9000))
		Expect(last(ms)).To(And(HavePrefix("(error: "), ContainSubstring("contextWindow")))
		Expect(ms).To(HaveLen(10), "the conversation keeps all of it")
	}, SpecTimeout(2*time.Minute))
})
