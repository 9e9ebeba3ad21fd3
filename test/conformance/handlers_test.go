package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// engage declares an agent that is code, and a thread of it, and waits until it is ready.
func engage(ctx context.Context, ns, source string, models map[string]string) *harness.Thread {
	GinkgoHelper()
	create(ctx, harness.Handler(ns, "agent", source, models), harness.NewThread(ns, "thread", "agent"))
	return ready(ctx, cluster.Thread(ns, "thread"))
}

// handlerLog gives what handlers of a thread have logged.
func handlerLog(ctx context.Context, t *harness.Thread) (out []string) {
	GinkgoHelper()
	events, err := t.Log(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range events {
		if e.Type == runtimev1.EventHandlerLog {
			out = append(out, string(e.Data))
		}
	}
	return out
}

// ended gives the newest run of a thread.
func ended(ctx context.Context, t *harness.Thread) runtimev1.Run {
	GinkgoHelper()
	runs, err := t.Runs(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(runs).NotTo(BeEmpty())
	return runs[0]
}

var _ = Describe("Agents in code", Label("AGT-09"), func() {
	It("answer with state of the request, the session and the thread, and log", Label("STA-01", "STA-06"), func(ctx SpecContext) {
		t := engage(ctx, namespace(ctx), fixture("handlers/tally.ts"), nil)
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		thread := "thrd_" + strings.ReplaceAll(string(o.UID), "-", "")
		say(ctx, t, 1, `{"message":"three short words"}`)
		ms := say(ctx, t, 2, "a text is the message")
		run := ended(ctx, t)
		Expect(run.Status).To(Equal(runtimev1.RunSucceeded), run.Message)
		Expect(run.SessionState).To(MatchJSON(`{"kind":"tally"}`))
		Expect(last(ms)).To(MatchJSON(`{"words":5,"all":8,"turn":2,"scopes":["fresh"],"thread":"` + thread + `","session":"` + run.ID + `"}`))
		Eventually(ctx, func() []string { return handlerLog(ctx, t) }).Should(ContainElements(
			MatchJSON(`{"level":"debug","message":"counted 5 words","data":{"agent":"Tally","fresh":true}}`),
			MatchJSON(`{"level":"info","message":"session over","data":{"agent":"Tally","event":"completed","kind":"tally","session":"`+run.ID+`"}}`)))
	}, SpecTimeout(5*time.Minute))

	It("answer each message that was accepted, in order, and each sender its own", Label("MSG-05", "MSG-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := engage(ctx, ns, `import { createAgent } from '@agentuity/runtime';
export default createAgent('Echo', { handler: async (ctx, input) => {
  await ctx.thread.state.push('seen', input);
  return 'answer to ' + input;
} });`, nil)
		By("twelve at once, of which those that find no room are refused")
		var group errgroup.Group
		var mu sync.Mutex
		accepted := map[string]bool{}
		for i := range 12 {
			text := fmt.Sprint("message ", i)
			group.Go(func() error {
				_, err := t.Queue(ctx, runtimev1.NewMessage{Content: text})
				if apierrors.IsTooManyRequests(err) {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				accepted[text] = true
				return err
			})
		}
		Expect(group.Wait()).To(Succeed())
		var ms []runtimev1.Message
		Eventually(ctx, func(g Gomega) {
			var err error
			ms, err = t.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ms).To(HaveLen(2 * len(accepted)))
			g.Expect(t.Runs(ctx)).To(And(HaveLen(len(accepted)), HaveEach(HaveField("Status", runtimev1.RunSucceeded))))
		}).Should(Succeed())
		lines := texts(ms)
		var seen []string
		for i := 0; i < len(lines); i += 2 {
			text := strings.TrimPrefix(lines[i], "user: ")
			Expect(accepted).To(HaveKey(text))
			Expect(lines[i+1]).To(Equal("assistant: answer to "+text), "each message is followed by its own answer")
			seen = append(seen, text)
		}
		list, ok, err := golang(t).StateValue(ctx, "seen")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		want, err := json.Marshal(seen)
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(MatchJSON(want), "one call for each")

		By("three commands that wait at once")
		for i := range 3 {
			text := fmt.Sprint("question ", i)
			group.Go(func() error {
				out, err := cluster.Plugin(ctx, "-n", ns, "send", "thread", text, "--wait")
				if err == nil && out != "answer to "+text+"\n" {
					err = fmt.Errorf("%q was shown %q", text, out)
				}
				return err
			})
		}
		Expect(group.Wait()).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("leave prompts as they are, which may answer several messages at once: each sender gets the answer of its run", Label("MSG-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		var group errgroup.Group
		var mu sync.Mutex
		shown := map[string]string{}
		for i := range 5 {
			text := fmt.Sprint("question ", i)
			group.Go(func() error {
				out, err := cluster.Plugin(ctx, "-n", ns, "send", t.Name, text, "--wait")
				mu.Lock()
				defer mu.Unlock()
				shown[text] = strings.TrimSpace(out)
				return err
			})
		}
		Expect(group.Wait()).To(Succeed())
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		answers := map[string]string{}
		for _, m := range ms {
			if m.Role == runtimev1.RoleAssistant {
				answers[m.RunID] = *m.Content
			}
		}
		for _, m := range ms {
			if m.Role == runtimev1.RoleUser {
				Expect(shown).To(HaveKeyWithValue(*m.Content, answers[m.RunID]))
			}
		}
	}, SpecTimeout(5*time.Minute))

	It("stream what a Model says, whose key they never see, and go on after the answer", Label("STA-07"), func(ctx SpecContext) {
		const canary = "sk-canary-77aa01c9e2"
		ns := namespace(ctx)
		long := strings.Repeat("a long line of words. ", 400)
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			harness.Say(w, req.Model, "Dear reader: ", long, long, "The end.")
		})
		DeferCleanup(server.Close)
		create(ctx,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "key"}, StringData: map[string]string{"apiKey": canary}},
			harness.OpenAI(ns, "writer", server.URL+"/v1", "key"))
		t := engage(ctx, ns, fixture("handlers/scribe.ts"), map[string]string{"openai/large-model": "writer"})
		ms := say(ctx, t, 1, "write")
		run := ended(ctx, t)
		Expect(run.Status).To(Equal(runtimev1.RunSucceeded), run.Message)
		Expect(last(ms)).To(Equal("Dear reader: " + long + long + "The end."))
		Expect(run.Usage).To(MatchJSON(`{"inputTokens":10,"outputTokens":5,"models":["writer"]}`))
		log, err := t.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		var streamed strings.Builder
		for _, e := range log {
			if e.Type == runtimev1.EventDelta {
				var piece struct{ Text string }
				Expect(json.Unmarshal(e.Data, &piece)).To(Succeed())
				streamed.WriteString(piece.Text)
			}
		}
		Expect(last(ms)).To(HavePrefix(streamed.String()))
		Expect(streamed.Len()).To(BeNumerically(">", len(long)), "pieces come before the message does")

		ms = say(ctx, t, 2, "more")
		Expect(ended(ctx, t).Status).To(Equal(runtimev1.RunSucceeded))
		Expect(ms).To(HaveLen(4))
		asked, keys := server.Requests()
		Expect(asked).To(HaveLen(2))
		Expect(keys).To(HaveEach("Bearer " + canary))
		Expect(asked[1].Messages).To(HaveLen(4), "what was kept after the first answer: the system's, two lines, and the new one")
		n, ok, err := golang(t).StateValue(ctx, "lines")
		Expect(err).NotTo(HaveOccurred())
		Expect(ok).To(BeTrue())
		Expect(n).To(MatchJSON("4"), "what was done after the answer is saved with the run")
	}, SpecTimeout(5*time.Minute))

	It("check what they take and give, ask for objects, have tools called, and use the thread", func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "helper",
			harness.On("fire", skeinv1.ScriptStep{Content: `{"urgent":true}`}),
			harness.On("weather", skeinv1.ScriptStep{Content: `{"urgent":"perhaps"}`}),
			harness.On("bread", harness.Calls("price", map[string]any{"item": "bread"})),
			harness.After("price", skeinv1.ScriptStep{Content: `It costs {{ (toolResult "price").cents }} cents.`})))
		t := engage(ctx, ns, fixture("handlers/desk.ts"), map[string]string{"small-model": "helper"})
		runs := 0
		send := func(text string) (answer string, run runtimev1.Run) {
			GinkgoHelper()
			runs++
			ms := say(ctx, t, runs, text)
			return last(ms), ended(ctx, t)
		}
		answer, run := send(`{"do":"sort","text":"there is a fire"}`)
		Expect(answer).To(Equal("urgent"), run.Message)
		answer, run = send(`{"do":"price","item":"bread"}`)
		Expect(answer).To(MatchJSON(`{"text":"It costs 250 cents.","steps":2}`), run.Message)
		answer, run = send(`{"do":"note","path":"/note.txt","text":"to do"}`)
		Expect(answer).To(MatchJSON(`{"size":5,"message":"user"}`), run.Message)
		Expect(t.ReadFile(ctx, "/note.txt")).To(BeEquivalentTo("to do"))

		_, run = send(`{"do":"price"}`)
		Expect([]string{run.Status, run.Reason, run.Message}).To(HaveExactElements(runtimev1.RunFailed, "InvalidInput", And(ContainSubstring("no input that Desk takes"), ContainSubstring("item: "))))
		_, run = send(`{"do":"sort","text":"the weather"}`)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements("HandlerFailed", ContainSubstring("what the model gave is not what the schema says")))
		_, run = send(`{"do":"fail"}`)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements("HandlerFailed", "the handler failed: RangeError: not today"))
		Eventually(ctx, func() []string { return handlerLog(ctx, t) }).Should(ContainElements(
			MatchJSON(`{"level":"error","message":"errored","data":{"agent":"Desk","error":"RangeError: not today"}}`),
			ContainSubstring("agent.ts:")), "the stack is in the thread's log")

		answer, run = send(`{"do":"reset"}`)
		Expect(answer).To(Equal("cleared: true"), run.Message)
		ms, err := t.Messages(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(ms)).To(HaveExactElements("assistant: cleared: true"))
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() []string { return handlerLog(ctx, t) }).Should(ContainElement(ContainSubstring(`"thrd_` + strings.ReplaceAll(string(o.UID), "-", ""))))
	}, SpecTimeout(5*time.Minute))

	It("work as in the sample", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := cluster.Kubectl(ctx, "-n", ns, "apply", "-f", filepath.Join(harness.Root(), "config", "samples", "handler.yaml"))
		Expect(err).NotTo(HaveOccurred())
		create(ctx, harness.NewThread(ns, "thread", "reception"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "hello"))).To(Equal(`Write "add: …" or "list".`))
		Expect(last(say(ctx, t, 2, "add: order paper"))).To(Equal("Noted: order paper"))
		Expect(last(say(ctx, t, 3, `{"message":"list"}`))).To(Equal("1. order paper"))
	}, SpecTimeout(5*time.Minute))

	It("are stopped while they work, and say which models they may ask", func(ctx SpecContext) {
		ns := namespace(ctx)
		t := engage(ctx, ns, `
import { createAgent } from '@agentuity/runtime';
import { generateText } from 'ai';
export default createAgent('Slow', {
  handler: async (ctx, input) => {
    if (input === 'ask') return (await generateText({ model: 'openai/gpt-9', prompt: 'x' })).text;
    ctx.logger.info('begun');
    await new Promise((resolve) => setTimeout(resolve, 3_600_000));
  },
});`, nil)
		Expect(t.Say(ctx, "go")).To(Succeed())
		Eventually(ctx, func() []string { return handlerLog(ctx, t) }).Should(HaveLen(1))
		_, err := golang(t).Stop(ctx, "enough")
		Expect(err).NotTo(HaveOccurred())
		settled(ctx, t, 1)
		Expect(ended(ctx, t).Status).To(Equal(runtimev1.RunStopped))
		say(ctx, t, 2, "ask")
		run := ended(ctx, t)
		Expect([]string{run.Reason, run.Message}).To(HaveExactElements("HandlerFailed", And(ContainSubstring(`the model "openai/gpt-9"`), ContainSubstring("handler.models"))))
	}, SpecTimeout(5*time.Minute))

	It("are refused with what is wrong, or become ready when what they need is there", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		refused := func(want string, edit func(*skeinv1.AgentSide)) {
			GinkgoHelper()
			a := harness.Handler(ns, "refused", "export default async () => 'x';", nil)
			edit(&a.Spec.SideA)
			err := cluster.Client.Create(ctx, a)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(want)))
		}
		refused("set exactly one of promptRef and handler", func(s *skeinv1.AgentSide) { s.PromptRef.Name = "p" })
		refused("set exactly one of promptRef and handler", func(s *skeinv1.AgentSide) { s.Handler = nil })
		refused("a handler's answer ends its turn", func(s *skeinv1.AgentSide) { s.StopTool = "x" })
		refused("set exactly one of inline and configMapKeyRef", func(s *skeinv1.AgentSide) { s.Handler.Code.Inline = "" })

		state := func(want OmegaMatcher) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				a := &skeinv1.Agent{}
				g.Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "agent"}, a)).To(Succeed())
				g.Expect(a.Status.Conditions).To(ContainElement(want))
			}).Should(Succeed())
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "code"}, Data: map[string]string{"agent.ts": "export default {\n  handler: async (\n};"}}
		a := harness.Handler(ns, "agent", "", map[string]string{"m": "late"})
		a.Spec.SideA.Handler.Code = skeinv1.CodeSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "code"}, Key: "agent.ts"}}
		create(ctx, cm, a, harness.NewThread(ns, "thread", "agent"))
		state(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonCompileFailed), HaveField("Message", ContainSubstring("agent.ts:3:"))))
		cm.Data["agent.ts"] = "import { generateText } from 'ai';\nexport default { handler: async (ctx: any, input: string) => (await generateText({ model: 'm', prompt: input })).text };"
		Expect(cluster.Client.Update(ctx, cm)).To(Succeed())
		state(And(condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound), HaveField("Message", And(ContainSubstring(`Model "late"`), ContainSubstring("spec.sideA.handler.models[0].modelRef")))))
		create(ctx, harness.Scripted(ns, "late", harness.Echo()))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(last(say(ctx, t, 1, "hello"))).To(Equal("echo: hello"))
	}, SpecTimeout(5*time.Minute))
})
