package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("A message that meets a run", Label("RUN-09"), func() {
	// working makes a thread of which a run has called a tool and now hangs.
	working := func(ctx SpecContext, edit ...func(*skeinv1.ThreadSpec)) (*harness.Thread, *runtimeclient.Thread) {
		GinkgoHelper()
		t := converse(ctx, namespace(ctx), []string{"builtin:kv"}, []skeinv1.ScriptStep{
			hang(),
			harness.On("work", harness.Calls("set_value", map[string]any{"key": "k", "value": 1})),
			harness.After("set_value", harness.Slow(time.Hour, harness.Answer("never"))),
			harness.Echo(),
		}, edit...)
		say(ctx, t, 1, "hello")
		Expect(t.Say(ctx, "work")).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(t.Messages(ctx)).To(HaveLen(5))
			g.Expect(t.Runs(ctx)).To(ContainElement(HaveField("Status", "running")))
		}).Should(Succeed())
		return t, api().Thread(t.Namespace, t.Name)
	}
	instead := func(policy string) runtimev1.NewMessage {
		return runtimev1.NewMessage{Content: "instead", Policy: policy}
	}

	It("waits by default, and is refused by the policy reject", func(ctx SpecContext) {
		t, raw := working(ctx)
		_, err := raw.Queue(ctx, instead("reject"))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("wait until the run has ended, or use the policy enqueue, interrupt or rollback")))
		Expect(apierrors.HasStatusCause(err, runtimev1.CauseBusy)).To(BeTrue())
		_, err = raw.Queue(ctx, instead("sideways"))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		_, err = raw.Queue(ctx, runtimev1.NewMessage{Content: "waits"})
		Expect(err).NotTo(HaveOccurred())
		Expect(raw.Get(ctx)).To(HaveField("QueuedCount", int64(1)))
		Expect(t.Runs(ctx)).To(HaveLen(2))
	})

	It("takes the place of the run by the policy interrupt", func(ctx SpecContext) {
		t, _ := working(ctx)
		out, err := cluster.Plugin(ctx, "-n", t.Namespace, "send", "thread", "instead", "--policy", "interrupt", "--wait")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("echo: instead"))
		Expect(texts(settled(ctx, t, 3))[4:]).To(Equal([]string{`tool: {"key":"k"}`, "assistant: (interrupted by a new message)", "user: instead", "assistant: echo: instead"}))
		Expect(t.Runs(ctx)).To(ContainElement(And(HaveField("Status", "stopped"), HaveField("Reason", "Interrupted"))))
	})

	It("takes back what the run has said by the policy rollback, and names what it has done", func(ctx SpecContext) {
		t, raw := working(ctx)
		_, err := raw.Queue(ctx, instead("rollback"))
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(settled(ctx, t, 3))).To(Equal([]string{"user: hello", "assistant: echo: hello", "user: instead", "assistant: echo: instead"}))
		Expect(t.Runs(ctx)).To(ContainElement(And(HaveField("Reason", "RolledBack"), HaveField("Message", ContainSubstring("set_value (")))))
		Expect(t.Value(ctx, "k")).To(MatchJSON(`1`), "what was done stays done")
		Expect(must(t.Log(ctx))).To(ContainElement(And(HaveField("Type", runtimev1.EventRunRolledBack), WithTransform(func(e runtimev1.Event) map[string]any {
			var d map[string]any
			_ = json.Unmarshal(e.Data, &d)
			return d
		}, And(HaveKeyWithValue("messages", BeEquivalentTo(3)), HaveKeyWithValue("calls", ConsistOf(HaveKeyWithValue("status", "success"))))))))
	})

	It("meets the policy of its Thread, else of its Agent", func(ctx SpecContext) {
		t, raw := working(ctx, func(s *skeinv1.ThreadSpec) { s.RunPolicy = skeinv1.RunPolicyInterrupt })
		_, err := raw.Queue(ctx, runtimev1.NewMessage{Content: "hang"})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			g.Expect(t.Runs(ctx)).To(And(HaveLen(3), ContainElement(HaveField("Reason", "Interrupted")), ContainElement(HaveField("Status", "running"))))
		}).Should(Succeed())
		_, err = cluster.Kubectl(ctx, "-n", t.Namespace, "patch", "thread", "thread", "--type=merge", "-p", `{"spec":{"runPolicy":null}}`)
		Expect(err).NotTo(HaveOccurred())
		_, err = cluster.Kubectl(ctx, "-n", t.Namespace, "patch", "agent", "agent", "--type=merge", "-p", `{"spec":{"runPolicy":"reject"}}`)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error { // the manager's cache follows
			_, err := raw.Queue(ctx, runtimev1.NewMessage{Content: "hang"}) // each is one of its own: a repeat is never refused
			return err
		}).Should(MatchError(ContainSubstring("policy reject")))
		_, err = cluster.Kubectl(ctx, "-n", t.Namespace, "patch", "agent", "agent", "--type=merge", "-p", `{"spec":{"runPolicy":"sideways"}}`)
		Expect(err).To(MatchError(ContainSubstring("supported values")))
	})

	It("ends a run only with the right to stop it", func(ctx SpecContext) {
		t, _ := working(ctx)
		ns := t.Namespace
		create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "talker"}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{runtimev1.GroupVersion.Group}, Resources: []string{"threads/queue"}, Verbs: []string{"create"}}}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "talker"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "talker"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "talker"}}})
		talker := runtimeAs("talker").Thread(ns, t.Name)
		for _, policy := range []string{"interrupt", "rollback"} {
			Eventually(ctx, func() error { // the API server hears of a new role in a moment
				_, err := talker.Queue(ctx, instead(policy))
				return err
			}).Should(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("threads/stop"))))
		}
		_, err := talker.Queue(ctx, instead("enqueue"))
		Expect(err).NotTo(HaveOccurred())
	})
})

var _ = Describe("Runs", Label("RUN-10"), func() {
	It("are listed by pages, with what became of them, and cancelled one by one", func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{
			hang(), harness.On("break", skeinv1.ScriptStep{Error: "no such luck"}), harness.Echo()})
		raw := api().Thread(t.Namespace, t.Name)
		say(ctx, t, 1, "one")
		say(ctx, t, 2, "break")
		Expect(t.Say(ctx, "hang")).To(Succeed())
		running(ctx, t)
		Expect(t.Say(ctx, "waits")).To(Succeed())
		page := must(raw.Runs(ctx, runtimeclient.Page{Limit: 2}))
		Expect(page.HasMore).To(BeTrue())
		Expect(page.Runs).To(HaveExactElements(
			And(HaveField("Status", "running"), HaveField("StartedAt", BeNumerically(">", 0)), HaveField("EndedAt", int64(0))),
			And(HaveField("Status", "failed"), HaveField("Reason", Not(BeEmpty())), HaveField("Message", ContainSubstring("no such luck")))))
		rest := must(raw.Runs(ctx, runtimeclient.Page{Limit: 2, Offset: 2}))
		Expect(rest.HasMore).To(BeFalse())
		Expect(rest.Runs).To(HaveExactElements(And(HaveField("Status", "succeeded"), HaveField("Steps", 1), HaveField("Usage", Not(BeEmpty())),
			WithTransform(func(r runtimev1.Run) bool { return r.EndedAt > r.StartedAt }, BeTrue()))))
		out, err := cluster.Plugin(ctx, "-n", t.Namespace, "runs", "thread")
		Expect(err).NotTo(HaveOccurred(), out)
		for _, r := range append(page.Runs, rest.Runs...) {
			Expect(out).To(ContainSubstring(r.ID))
			Expect(raw.Run(ctx, r.ID)).To(HaveField("Status", r.Status))
		}

		By("cancelling")
		old, err := raw.CancelRun(ctx, page.Runs[1].ID, "too late")
		Expect(err).NotTo(HaveOccurred())
		Expect(old.Status).To(Equal("failed"), "one that has ended stays as it is")
		_, err = raw.CancelRun(ctx, "sess_none", "")
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		out, err = cluster.Plugin(ctx, "-n", t.Namespace, "cancel", "thread", page.Runs[0].ID, "--message", "no more")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(raw.Run(ctx, page.Runs[0].ID)).To(And(HaveField("Status", "stopped"), HaveField("Reason", "Cancelled"), HaveField("Message", "no more")))
		Expect(last(settled(ctx, t, 4))).To(Equal("echo: waits"), "what waits goes on")
	}, SpecTimeout(2*time.Minute))

	It("end with a stated reason at their limits, of which the lower of thread and agent counts", func(ctx SpecContext) {
		ns := namespace(ctx)
		loop := harness.Calls("get_value", map[string]any{"key": "k"})
		loop.Times = ptr.To[int32](0)
		// A provider whose every answer is a call of 15 tokens, at 0.0002.
		var calls atomic.Int64
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			harness.CallTool(w, req.Model, fmt.Sprint("call_", calls.Add(1)), "get_value", `{"key":"k"}`)
		})
		DeferCleanup(server.Close)
		dear := harness.OpenAI(ns, "dear", server.URL, "")
		dear.Spec.Pricing = &skeinv1.ModelPricing{Input: "10", Output: "20"}
		create(ctx, dear, harness.Prompt(ns, "dear", "dear", "builtin:kv"), harness.Agent(ns, "dear", "dear"))
		create(ctx, harness.Scripted(ns, "looping", loop), harness.Prompt(ns, "looping", "looping", "builtin:kv"),
			harness.Scripted(ns, "hanging", hang()), harness.Prompt(ns, "hanging", "hanging"),
			harness.Agent(ns, "looping", "looping", func(s *skeinv1.AgentSpec) { s.Limits = &skeinv1.RunLimits{MaxSteps: ptr.To[int32](5)} }),
			harness.Agent(ns, "hanging", "hanging", func(s *skeinv1.AgentSpec) {
				s.Limits = &skeinv1.RunLimits{MaxDuration: &metav1.Duration{Duration: time.Second}}
			}))
		ends := func(name, agent string, limits *skeinv1.RunLimits, reason string) runtimev1.Run {
			GinkgoHelper()
			create(ctx, harness.NewThread(ns, name, agent, func(s *skeinv1.ThreadSpec) { s.Limits, s.Message = limits, "hang" }))
			t := ready(ctx, cluster.Thread(ns, name))
			ms := settled(ctx, t, 1)
			Expect(last(ms)).To(And(HavePrefix("(error: the run "), ContainSubstring("limits.")))
			runs := must(t.Runs(ctx))
			Expect(runs).To(HaveExactElements(And(HaveField("Status", "failed"), HaveField("Reason", reason))))
			Eventually(ctx, func(g Gomega) {
				g.Expect(must(t.Object(ctx)).Status.LastRun).To(HaveValue(And(HaveField("Outcome", skeinv1.RunFailed), HaveField("Reason", reason))))
			}).Should(Succeed())
			return runs[0]
		}
		Expect(ends("agents", "looping", nil, "MaxStepsReached").Steps).To(Equal(5))
		Expect(ends("lower", "looping", &skeinv1.RunLimits{MaxSteps: ptr.To[int32](2)}, "MaxStepsReached").Steps).To(Equal(2))
		Expect(ends("higher", "looping", &skeinv1.RunLimits{MaxSteps: ptr.To[int32](9)}, "MaxStepsReached").Steps).To(Equal(5))
		Expect(ends("tokens", "dear", &skeinv1.RunLimits{MaxTokens: ptr.To[int64](31)}, "MaxTokensReached").Steps).To(Equal(3))
		Expect(ends("cost", "dear", &skeinv1.RunLimits{MaxCost: ptr.To(resource.MustParse("0.0004"))}, "MaxCostReached").Steps).To(Equal(2))
		ends("time", "hanging", nil, "MaxDurationReached")

		bad := harness.NewThread(ns, "bad", "looping", func(s *skeinv1.ThreadSpec) {
			s.Limits = &skeinv1.RunLimits{MaxCost: ptr.To(resource.MustParse("-1")), MaxDuration: &metav1.Duration{Duration: time.Millisecond}}
		})
		Expect(cluster.Client.Create(ctx, bad)).To(MatchError(And(ContainSubstring("give an amount above 0"), ContainSubstring("give a duration from 1s"))))
	}, SpecTimeout(2*time.Minute))
})
