package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Threads", func() {
	It("keep messages, files and values apart", Label("THR-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		a := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		create(ctx, harness.NewThread(ns, "other", "agent"))
		b := ready(ctx, cluster.Thread(ns, "other"))

		say(ctx, a, 1, "only for a")
		Expect(a.WriteFile(ctx, "/note.txt", "text/plain", []byte("a's"))).To(Succeed())
		Expect(a.SetValue(ctx, "color", `"red"`)).To(Succeed())

		Expect(b.Messages(ctx)).To(BeEmpty())
		_, err := b.ReadFile(ctx, "/note.txt")
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Expect(b.Value(ctx, "color")).To(MatchJSON("null"))
		Expect(a.Value(ctx, "color")).To(MatchJSON(`"red"`))
		Expect(a.ReadFile(ctx, "/note.txt")).To(BeEquivalentTo("a's"))
	}, SpecTimeout(2*time.Minute))

	It("tell their code the ids of the thread, agent and user", Label("THR-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "whoami", `
import { defineTool } from '@standardagents/builder';
export default defineTool({
  description: 'identity',
  execute: async (state) => ({
    status: 'success',
    result: JSON.stringify({
      threadId: state.threadId, agentId: state.agentId, userId: state.userId,
      createdAt: state.createdAt, arguments: state.arguments, terminated: state.terminated,
    }),
  }),
});`, nil))
		steps := []skeinv1.ScriptStep{harness.On("who", harness.Calls("whoami", map[string]any{})), harness.After("whoami", harness.Answer("done"))}
		t := converse(ctx, ns, []string{"whoami"}, steps, func(s *skeinv1.ThreadSpec) {
			s.UserID, s.Arguments = "ada", harness.Raw(map[string]any{"topic": "orders", "n": 3})
		})
		create(ctx, harness.NewThread(ns, "plain", "agent"))
		plain := ready(ctx, cluster.Thread(ns, "plain"))

		type identity struct {
			ThreadID, AgentID string
			UserID            *string
			CreatedAt         int64
			Arguments         map[string]any
			Terminated        *int64
		}
		ask := func(t *harness.Thread) (id identity) {
			content, status := result(say(ctx, t, 1, "who are you"), "whoami")
			Expect(status).To(Equal("success"), content)
			Expect(json.Unmarshal([]byte(content), &id)).To(Succeed(), content)
			return id
		}
		o, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		id := ask(t)
		Expect(id.ThreadID).To(Equal(string(o.UID)))
		Expect(o.Status.ThreadID).To(Equal(string(o.UID)))
		Expect(id.AgentID).To(Equal("agent"))
		Expect(id.UserID).To(HaveValue(Equal("ada")))
		Expect(time.UnixMicro(id.CreatedAt)).To(BeTemporally("~", o.CreationTimestamp.Time, time.Minute))
		Expect(id.Arguments).To(Equal(map[string]any{"topic": "orders", "n": 3.0}))
		Expect(id.Terminated).To(BeNil())

		id = ask(plain)
		Expect(id.UserID).To(BeNil())
		Expect(id.Arguments).To(BeEmpty())
		Expect(id.Arguments).NotTo(BeNil(), "arguments are {} when absent")
	}, SpecTimeout(2*time.Minute))

	It("get the task and the first message of their object once", Label("THR-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.Scripted(ns, "model", harness.Echo()), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"))
		_, err := cluster.KubectlIn(ctx, `
apiVersion: skein.dev/v1alpha1
kind: Thread
metadata: {name: declared, namespace: `+ns+`}
spec: {agentRef: {name: agent}, taskID: ticket-7, message: first}
`, "apply", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		t := cluster.Thread(ns, "declared")
		Expect(texts(settled(ctx, ready(ctx, t), 1))).To(Equal([]string{"user: first", "assistant: echo: first"}))

		var record runtimev1.ThreadRecord
		raw, err := t.Request(http.MethodGet, "").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred(), string(raw))
		Expect(json.Unmarshal(raw, &record)).To(Succeed())
		Expect(record.TaskID).To(Equal("ticket-7"))

		_, err = cluster.Kubectl(ctx, "-n", ns, "annotate", "thread", "declared", "touched=yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(say(ctx, t, 2, "second"))).To(HaveLen(4), "the first message is queued once only")
	}, SpecTimeout(2*time.Minute))

	It("execute, rest, and resume on the next message", Label("THR-04"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(t.Messages(ctx)).To(BeEmpty())
		Expect(texts(say(ctx, t, 1, "one"))).To(Equal([]string{"user: one", "assistant: echo: one"}))
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.LastRun).NotTo(BeNil())
			g.Expect(o.Status.LastRun.Outcome).To(Equal(skeinv1.RunSucceeded))
			g.Expect(o.Status.Phase).To(Equal("Idle"))
			g.Expect(o.Status.Messages).To(BeEquivalentTo(2))
		}).Should(Succeed())
		Expect(texts(say(ctx, t, 2, "two"))).To(Equal([]string{"user: one", "assistant: echo: one", "user: two", "assistant: echo: two"}))
	}, SpecTimeout(2*time.Minute))

	It("run one after the other within a thread, and side by side over threads", Label("THR-13"), func(ctx SpecContext) {
		ns := namespace(ctx)
		model := newGate(func(w http.ResponseWriter, req harness.ChatRequest, last string) {
			harness.Say(w, req.Model, "echo: "+strings.TrimPrefix(last, "user "))
		})
		a := converseWith(ctx, ns, model.model(ns, "model"), nil)
		create(ctx, harness.NewThread(ns, "other", "agent"))
		b := ready(ctx, cluster.Thread(ns, "other"))

		Expect(a.Say(ctx, "a1")).To(Succeed())
		Expect(b.Say(ctx, "b1")).To(Succeed())
		Eventually(ctx, model.asked.Load).Should(BeEquivalentTo(2), "neither waits for the other")
		model.open()
		settled(ctx, a, 1)
		settled(ctx, b, 1)
		ra, err := a.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		rb, err := b.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rb[0].StartedAt).To(BeNumerically("<", ra[0].EndedAt), "b began before a had ended")

		for _, m := range []string{"a2", "a3", "a4"} {
			Expect(a.Say(ctx, m)).To(Succeed())
		}
		var users []string
		Eventually(ctx, func(g Gomega) {
			ms, err := a.Messages(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			users = nil
			for _, m := range ms {
				g.Expect(m.Status).NotTo(Equal(runtimev1.MessagePending))
				if m.Role == runtimev1.RoleUser {
					users = append(users, text(m))
				}
			}
			g.Expect(ms[len(ms)-1].Role).To(Equal(runtimev1.RoleAssistant))
		}).Should(Succeed())
		Expect(users).To(Equal([]string{"user: a1", "user: a2", "user: a3", "user: a4"}))
		settled(ctx, a, 2)
		ra, err = a.Runs(ctx)
		Expect(err).NotTo(HaveOccurred())
		for i := 1; i < len(ra); i++ { // newest first
			Expect(ra[i].EndedAt).To(BeNumerically("<=", ra[i-1].StartedAt), "runs of one thread never overlap")
		}
	}, SpecTimeout(2*time.Minute))
})
