package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// everyObject gives all objects of the cluster as YAML, except those that the runtime API serves from the store.
func everyObject(ctx context.Context) string {
	GinkgoHelper()
	names, err := cluster.Kubectl(ctx, "api-resources", "--verbs=list", "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	var kinds []string
	for _, name := range strings.Fields(names) {
		if !strings.HasSuffix(name, "runtime.skein.dev") {
			kinds = append(kinds, name)
		}
	}
	Expect(len(kinds)).To(BeNumerically(">", 20))
	all, err := cluster.Kubectl(ctx, "get", strings.Join(kinds, ","), "-A", "-o", "yaml")
	Expect(err).NotTo(HaveOccurred())
	return all
}

// chatty is code that puts what it is given into every field that code can write.
const chatty = `
import { defineTool } from '@standardagents/builder';
export default defineTool({
  description: 'says it everywhere',
  execute: async (state, { v }) => {
    await state.scheduleEffect('later', { v, deep: [v] }, 3600000);
    await state.scheduleEffect('shouts', { v }, 0);
    await state.setValue(v, { v });
    await state.emit('said', { v });
    await state.writeFile('/' + v + '.txt', new TextEncoder().encode(v), 'text/plain');
    console.log(v);
    throw new Error('thrown ' + v);
  },
});`

// shouts is the code of an effect that fails with what it is given.
const shouts = `
import { defineEffect } from '@standardagents/builder';
export default defineEffect({ description: 'shouts', handler: async (state, { v }) => { throw new Error('shouted ' + v); } });`

// tells is code that keeps what it is given and tells it to the parent.
const tells = `
import { defineTool } from '@standardagents/builder';
export default defineTool({
  description: 'tells it',
  execute: async (state, { v }) => {
    await state.setValue(v, { v, deep: [v] });
    await state.emit('told', { v });
    if (await state.getParentThread()) { await state.notifyParent('told ' + v); }
    return { status: 'success', result: 'told ' + v };
  },
});`

var _ = Describe("What a model or code says", Label("K8S-07", "SUB-01"), func() {
	It("is in no object of the cluster: tasks, arguments, attachments, calls, effects, forks and failures", func(ctx SpecContext) {
		ns := namespace(ctx)
		b := make([]byte, 8)
		_, _ = rand.Read(b)
		canary := "cn" + hex.EncodeToString(b)
		secret := canary + "-unsaid" // said by a person, and repeated by the models, whose scripts do not contain it
		const last = "{{ .Last.Content }}"
		create(ctx, harness.CodeTool(ns, "chatty", chatty, map[string]any{"v": map[string]any{"type": "string"}}), harness.Effect(ns, "later", `export default () => {};`),
			harness.Effect(ns, "shouts", shouts),
			harness.Scripted(ns, "parent",
				harness.On("-unsaid$", skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{
					{Name: "chatty", Arguments: harness.Raw(map[string]any{"v": last})},
					{Name: "write_file", Arguments: harness.Raw(map[string]any{"path": "/" + last + ".csv", "content": last})},
					{Name: "subagent_create", Arguments: harness.Raw(map[string]any{"agent": "helper", "message": last, "name": "A title",
						"arguments": map[string]any{"what": last}, "attachments": []string{"/" + last + ".csv"}})},
					{Name: "subagent_create", Arguments: harness.Raw(map[string]any{"agent": "helper", "message": "refused", "attachments": []string{"/none-" + last}})},
				}}), harness.Answer("all is said")),
			harness.Prompt(ns, "parent", "parent", "chatty", "builtin:files", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(a *skeinv1.AgentSubagent) { a.Blocking = true })}
			}),
			harness.Scripted(ns, "worker", harness.After("chatty", harness.Calls("give_up", map[string]any{"message": "no: {{ .Last.Content }}"})), harness.Calls("chatty", map[string]any{"v": last})),
			harness.Prompt(ns, "worker", "worker", "chatty"),
			harness.Agent(ns, "worker", "worker", func(s *skeinv1.AgentSpec) { s.SideA.SessionFail = &skeinv1.SessionTool{Name: "give_up"} }),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		ms := say(ctx, t, 1, secret)
		Expect(texts(ms)).To(ContainElement(And(ContainSubstring("no: "), ContainSubstring(secret))), "the parent does read it")
		child := onlyChild(ctx, ns)
		Eventually(ctx, func(g Gomega) {
			o, err := child.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.LastRun).To(HaveValue(And(HaveField("Reason", "SessionFailed"), HaveField("Message", ContainSubstring("kubectl skein runs")))))
		}).Should(Succeed())
		Expect(texts(must(child.Messages(ctx)))).To(ContainElement(Equal("user: " + secret)))
		sub := subagents(ctx, ns)[0]
		Expect(sub.Spec).To(And(HaveField("TaskRef", Not(BeEmpty())), HaveField("TaskDigest", HavePrefix("hmac-sha256:")), HaveField("Message", ""), HaveField("Arguments", BeNil()), HaveField("Attachments", BeEmpty())))
		Expect(sub.Spec.Title).To(Equal("A title"))

		By("an effect whose handler says it, a fork at a message that has it as its id, and a provider that repeats it")
		Eventually(ctx, func(g Gomega) {
			var effects skeinv1.ScheduledEffectList
			g.Expect(cluster.Client.List(ctx, &effects, client.InNamespace(ns))).To(Succeed())
			failed := condition(skeinv1.ConditionComplete, metav1.ConditionTrue, skeinv1.ReasonFailed)
			g.Expect(effects.Items).To(ContainElement(HaveField("Status.Conditions", ContainElement(And(failed, HaveField("Message", ContainSubstring("kubectl skein effect history")))))))
		}).Should(Succeed())
		Expect(conversation(t).Inject(ctx, runtimev1.NewMessage{ID: secret, Content: "x", Silent: true})).Error().NotTo(HaveOccurred())
		Expect(conversation(t).Fork(ctx, runtimev1.NewFork{MessageID: secret})).To(HaveField("ForkPointIndex", Not(BeNil())))
		provider := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			said, err := json.Marshal("cannot read " + string(req.Messages[len(req.Messages)-1].Content))
			if err == nil {
				http.Error(w, `{"error":{"message":`+string(said)+`,"type":"invalid_request_error"}}`, http.StatusBadRequest)
			}
		})
		DeferCleanup(provider.Close)
		create(ctx, secretOf(ns, "key", nil, map[string]string{"apiKey": "k-e-y"}), harness.OpenAI(ns, "openai", provider.URL, "key"),
			harness.Prompt(ns, "talk", "openai"), harness.Agent(ns, "talk", "talk"), harness.NewThread(ns, "talk", "talk"))
		talk := ready(ctx, cluster.Thread(ns, "talk"))
		Expect(texts(say(ctx, talk, 1, secret))).To(ContainElement(And(ContainSubstring("it said: cannot read"), ContainSubstring(secret))))
		Eventually(ctx, func(g Gomega) {
			o, err := talk.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.LastRun).To(HaveValue(And(HaveField("Reason", "ModelRefused"), HaveField("Message", HaveSuffix("refused with status 400; kubectl skein runs shows what it said")))))
			events, err := cluster.Kubectl(ctx, "-n", ns, "get", "events", "-o", "yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(events).To(ContainSubstring("refused with status 400"))
		}).Should(Succeed())

		all := everyObject(ctx)
		Expect(all).To(And(ContainSubstring("A title"), ContainSubstring("taskDigest: hmac-sha256:"), ContainSubstring("argsRef: ")), "the search is over objects of the family")
		found := 0
		for i, line := range strings.Split(all, "\n") {
			if strings.Contains(line, canary) {
				found++
				AddReportEntry("found", line, i)
			}
		}
		Expect(found).To(BeZero())
		Expect(etcd(func(text string) []string {
			if strings.Contains(text, canary) {
				return []string{canary}
			}
			return nil
		})).To(BeEmpty(), "nor had one it before it was changed or deleted")
	}, SpecTimeout(3*time.Minute))

	It("is in no object of the cluster either, in any form: handoffs, mentions, unknown tools, state, messages between parent and child, arguments that do not fit", Label("REL-03", "REL-04"), func(ctx SpecContext) {
		ns := namespace(ctx)
		b := make([]byte, 12)
		_, _ = rand.Read(b)
		core := hex.EncodeToString(b)
		said := "Cn-" + core + "-unsaid"
		c := canaries{"said": said}
		reference := regexp.MustCompile(`thread-helper-[0-9a-z]+`)
		calls := []struct {
			tool string
			args map[string]any
		}{
			{"handoff", map[string]any{"goal": said, "title": said, "comment": said, "agent": "next"}},
			{"read_thread", map[string]any{"thread": said, "goal": said}},
			{"tell_" + core, map[string]any{"v": said}},
			{"tells", map[string]any{"v": said}},
			{"subagent_create", map[string]any{"agent": "picky", "message": said, "arguments": map[string]any{"v": said}}},
			{"subagent_create", map[string]any{"agent": "helper", "message": "one " + said, "name": "A title"}},
			{"subagent_message", map[string]any{"message": "two " + said, "attachments": []string{"/" + core + ".csv"}}},
			{"subagent_list", map[string]any{}},
		}
		const first = 6 // of the calls, before the children are there
		provider := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			n, helps, upTo := 0, "", first
			for _, m := range req.Messages {
				if string(m.Content) == `"more"` {
					upTo = len(calls)
				}
				if m.Role == "tool" {
					n++
					helps = cmp.Or(helps, reference.FindString(string(m.Content)))
				}
			}
			newest := string(req.Messages[len(req.Messages)-1].Content)
			if n == upTo || strings.Contains(newest, "Goal of the new conversation") {
				harness.Say(w, req.Model, "heard "+said)
				return
			}
			args := maps.Clone(calls[n].args)
			if calls[n].tool == "subagent_message" {
				args["reference"] = helps
			}
			harness.CallTool(w, req.Model, fmt.Sprint("call_", n), calls[n].tool, string(harness.Raw(args).Raw))
		})
		DeferCleanup(provider.Close)
		picky := harness.Prompt(ns, "picky", "worker")
		resumable := func(a *skeinv1.AgentSubagent) { a.Resumable = true }
		create(ctx, secretOf(ns, "key", nil, map[string]string{"apiKey": "k-e-y"}), harness.OpenAI(ns, "openai", provider.URL, "key"),
			harness.CodeTool(ns, "tells", tells, map[string]any{"v": map[string]any{"type": "string"}}),
			harness.Scripted(ns, "next", always("next")), harness.Prompt(ns, "next", "next"), harness.Agent(ns, "next", "next", func(s *skeinv1.AgentSpec) { s.ExposeAsTool, s.ToolDescription = true, "goes on" }),
			harness.Scripted(ns, "worker", harness.On("^(one|two) .*-unsaid", harness.Calls("tells", map[string]any{"v": "{{ .Last.Content }}"})), harness.After("tells", harness.Answer("done: {{ .Last.Content }}")), always("fine")),
			harness.Prompt(ns, "worker", "worker", "tells"), harness.Agent(ns, "worker", "worker"), picky, harness.Agent(ns, "picky", "picky"),
			harness.Prompt(ns, "parent", "openai", "tells", "builtin:handoff", "builtin:threads", "builtin:subagents"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(resumable), helper(resumable, func(a *skeinv1.AgentSubagent) { a.Name, a.AgentRef.Name = "picky", "picky" })}
			}),
			harness.NewThread(ns, "thread", "parent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.WriteFile(ctx, "/"+core+".csv", "text/csv", []byte(said))).To(Succeed())
		Expect(t.Say(ctx, said)).To(Succeed())
		takenIn(ctx, t, And(reported, ContainSubstring("told one "+said)))
		Expect(t.Say(ctx, "more")).To(Succeed())
		ms := takenIn(ctx, t, And(reported, ContainSubstring("told two "+said)))
		for tool, outcome := range map[string]string{"handoff": "success", "read_thread": "error", "tell_" + core: "error", "tells": "success", "subagent_message": "success"} {
			content, got := result(ms, tool)
			Expect(got).To(Equal(outcome), content)
		}
		Expect(texts(ms)).To(ContainElements("user: told one "+said, "user: told two "+said), "the parent does read it")

		By("a child whose arguments fit no more")
		before := picky.DeepCopy()
		picky.Spec.RequiredSchema = harness.Raw(map[string]any{"type": "object", "properties": map[string]any{"v": map[string]any{"pattern": "^x$"}}})
		Expect(cluster.Client.Patch(ctx, picky, client.MergeFrom(before))).To(Succeed())
		var child *harness.Thread
		for _, s := range subagents(ctx, ns) {
			if s.Spec.Name == "picky" {
				child = cluster.Thread(ns, s.Name)
			}
		}
		notReady := condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonInvalidArguments)
		Eventually(ctx, func(g Gomega) {
			o, err := child.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Conditions).To(ContainElement(notReady))
		}).Should(Succeed())
		Expect(texts(say(ctx, child, 2, "again"))).To(ContainElement(And(HavePrefix("assistant: (error: "), ContainSubstring(said))), "the child's conversation says what does not fit")
		Eventually(ctx, func(g Gomega) {
			o, err := child.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.LastRun).To(HaveValue(And(HaveField("Reason", skeinv1.ReasonInvalidArguments), HaveField("Message", ContainSubstring("kubectl skein runs")))))
		}).Should(Succeed())

		all := everyObject(ctx)
		Expect(all).To(And(ContainSubstring("A title"), ContainSubstring("taskDigest: hmac-sha256:"), ContainSubstring("thread-handoff-")), "the search is over objects of the family")
		Expect(c.in(all)).To(BeEmpty())
		Expect(etcd(c.in)).To(BeEmpty(), "nor had one it before it was changed or deleted")
		Expect(c.in(strings.Join(texts(ms), "\n"))).NotTo(BeEmpty(), "the search does find it")
	}, SpecTimeout(4*time.Minute))
})
