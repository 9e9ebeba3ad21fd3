package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
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
	}, SpecTimeout(3*time.Minute))
})
