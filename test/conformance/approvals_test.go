package conformance

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// holding binds a user to one of the roles that the installation provides, in one namespace.
func holding(ctx context.Context, ns, user, file string) *runtimeclient.Client {
	GinkgoHelper()
	var role rbacv1.ClusterRole
	Expect(yaml.Unmarshal(must(os.ReadFile(filepath.Join(harness.Root(), "config", "rbac", file))), &role)).To(Succeed())
	create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user}, Rules: role.Rules},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}})
	return runtimeAs(user)
}

// awaiting waits until so many calls wait for approval, the run being parked, and gives them.
func awaiting(ctx context.Context, t *runtimeclient.Thread, n int) []runtimev1.Approval {
	GinkgoHelper()
	var list *runtimev1.ApprovalList
	Eventually(ctx, func(g Gomega) {
		runs, err := t.Runs(ctx, runtimeclient.Page{Limit: 1})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(runs.Runs).To(HaveExactElements(And(HaveField("Status", "waiting"), HaveField("Reason", skeinv1.ReasonWaitingForApproval))))
		list, err = t.Approvals(ctx, runtimeclient.Page{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Approvals).To(HaveLen(n))
	}).Should(Succeed())
	return list.Approvals
}

var _ = Describe("Approval", Label("RUN-11"), func() {
	// needing makes a thread whose values may be set only with approval.
	needing := func(ctx context.Context, timeout time.Duration, calls ...any) *harness.Thread {
		GinkgoHelper()
		ns := namespace(ctx)
		step := harness.On("go", harness.Calls("set_value", calls[0]))
		for _, c := range calls[1:] {
			step.ToolCalls = append(step.ToolCalls, skeinv1.ScriptToolCall{Name: "set_value", Arguments: harness.Raw(c)})
		}
		prompt := harness.Prompt(ns, "prompt", "model", "builtin:kv")
		prompt.Spec.Tools[0].RequiresApproval = true
		if timeout != 0 {
			prompt.Spec.Tools[0].ApprovalTimeout = &metav1.Duration{Duration: timeout}
		}
		create(ctx, harness.Scripted(ns, "model", step, harness.Echo()), prompt, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		return t
	}
	set := func(key string, value any) map[string]any { return map[string]any{"key": key, "value": value} }

	It("refuses arguments that do not match the tool's schema, and waits on", func(ctx SpecContext) {
		t := needing(ctx, 0, set("a", 1))
		approver := holding(ctx, t.Namespace, "ada", "approver_role.yaml").Thread(t.Namespace, t.Name)
		call := awaiting(ctx, approver, 1)[0].ToolCallID
		_, err := approver.Approve(ctx, call, "", json.RawMessage(`{"key":7}`))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("the tool set_value does not accept these arguments"), ContainSubstring("/key"), ContainSubstring("value"))))
		out, err := cluster.Plugin(ctx, "-n", t.Namespace, "approve", "thread", call, "--arguments", `{"key":7,"value":1}`, "--as", "ada")
		Expect(err).To(HaveOccurred())
		Expect(out + err.Error()).To(ContainSubstring("the call still waits"))
		Expect(awaiting(ctx, approver, 1)[0].Decision).To(BeNil(), "it is not decided on")
		_, err = approver.Approve(ctx, call, "", json.RawMessage(`{"key":"b","value":2}`))
		Expect(err).NotTo(HaveOccurred())
		settled(ctx, t, 1)
		Expect(t.Value(ctx, "b")).To(Equal("2"))
	}, SpecTimeout(3*time.Minute))

	It("parks the run until an approver has decided on each call, over a restart", Serial, func(ctx SpecContext) {
		t := needing(ctx, 0, set("a", 1), set("b", 2), set("c", 3))
		writer := holding(ctx, t.Namespace, "wally", "conversation_writer_role.yaml").Thread(t.Namespace, t.Name)
		approver := holding(ctx, t.Namespace, "ada", "approver_role.yaml").Thread(t.Namespace, t.Name)
		calls := awaiting(ctx, writer, 3)
		Expect(calls[1]).To(And(HaveField("Name", "set_value"), HaveField("Arguments", MatchJSON(`{"key":"b","value":2}`)), HaveField("RequestedAt", BeNumerically(">", 0))))
		Eventually(ctx, func(g Gomega) {
			o, err := t.Object(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(o.Status.Phase).To(Equal("Waiting"))
			g.Expect(o.Status.Conditions).To(ContainElement(And(condition(skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonWaitingForApproval),
				HaveField("Message", ContainSubstring("kubectl skein approve thread CALL")))))
		}).Should(Succeed())

		By("deciding without the right")
		_, err := writer.Approve(ctx, calls[0].ToolCallID, "", nil)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`User "wally" cannot create resource "threads/approvals"`)))
		res, err := writer.InvokeTool(ctx, "set_value", json.RawMessage(`{"key":"a","value":9}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(res.Error).To(ContainSubstring("have to be approved"), "nor is there a way around")

		By("deciding with the right")
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error {
			_, err := approver.Approve(ctx, calls[2].ToolCallID, "less will do", json.RawMessage(`{"key":"c","value":0.5}`))
			return err
		}).Should(Succeed())
		_, err = approver.Refuse(ctx, calls[1].ToolCallID, "not this one")
		Expect(err).NotTo(HaveOccurred())
		awaiting(ctx, approver, 1)
		Expect(t.Value(ctx, "c")).To(MatchJSON(`null`), "it is not its turn yet")
		out, err := cluster.Plugin(ctx, "-n", t.Namespace, "approvals", "thread")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(And(ContainSubstring(calls[0].ToolCallID), ContainSubstring(`{"key":"a","value":1}`)))
		out, err = cluster.Plugin(ctx, "-n", t.Namespace, "approve", "thread", calls[0].ToolCallID, "--reason", "fine", "--as", "ada")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring("approved by ada"))

		ms := settled(ctx, t, 1)
		Expect(t.Value(ctx, "a")).To(MatchJSON(`1`))
		Expect(t.Value(ctx, "b")).To(MatchJSON(`null`))
		Expect(t.Value(ctx, "c")).To(MatchJSON(`0.5`))
		Expect(ms).To(HaveLen(6), "%v", texts(ms))
		for i, c := range calls {
			Expect(ms[2+i]).To(And(HaveField("ToolCallID", c.ToolCallID), HaveField("Metadata", HaveKeyWithValue("approval", And(
				HaveKeyWithValue("by", "ada"), HaveKeyWithValue("approved", i != 1), HaveKeyWithValue("at", BeNumerically(">", 0)))))))
		}
		Expect(text(ms[3])).To(Equal("tool: the call was not made: ada refused it, saying: not this one"))
		Expect(ms[3].ToolStatus).To(Equal("error"))

		By("reading the decisions in the log")
		var decided []map[string]any
		for _, e := range must(t.Log(ctx)) {
			if e.Type == runtimev1.EventApprovalDecided {
				var d map[string]any
				Expect(json.Unmarshal(e.Data, &d)).To(Succeed())
				decided = append(decided, d)
			}
		}
		Expect(decided).To(HaveExactElements(
			And(HaveKeyWithValue("toolCallId", calls[2].ToolCallID), HaveKeyWithValue("by", "ada"), HaveKeyWithValue("reason", "less will do")),
			And(HaveKeyWithValue("toolCallId", calls[1].ToolCallID), HaveKeyWithValue("approved", false)),
			And(HaveKeyWithValue("toolCallId", calls[0].ToolCallID), HaveKeyWithValue("approved", true))))

		By("reading the Events of the Thread")
		Eventually(ctx, func(g Gomega) {
			out, err := cluster.Kubectl(ctx, "-n", t.Namespace, "get", "events", "-o", "jsonpath={range .items[*]}{.involvedObject.name} {.reason}: {.message}{\"\\n\"}{end}")
			g.Expect(err).NotTo(HaveOccurred())
			for i, said := range []string{"CallApproved: ada approved", "CallRefused: ada refused", "CallApproved: ada approved, with arguments of their own,"} {
				g.Expect(out).To(ContainSubstring("thread %s the call %s of the tool set_value\n", said, calls[i].ToolCallID))
			}
			g.Expect(out).NotTo(ContainSubstring(`"key"`))
		}).Should(Succeed())

		By("deciding again")
		again, err := approver.Approve(ctx, calls[0].ToolCallID, "", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Decision).To(HaveField("Reason", "fine"), "the first decision")
		_, err = approver.Refuse(ctx, calls[0].ToolCallID, "")
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("ada has approved the call already")))
		_, err = approver.Approve(ctx, "call_nowhere", "", nil)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Expect(approver.Approvals(ctx, runtimeclient.Page{})).To(HaveField("Approvals", BeEmpty()))
	}, SpecTimeout(5*time.Minute))

	It("is refused after its timeout", func(ctx SpecContext) {
		t := needing(ctx, time.Second, set("a", 1))
		ms := settled(ctx, t, 1)
		Expect(text(ms[2])).To(ContainSubstring("no approval came in time"))
		Expect(t.Value(ctx, "a")).To(MatchJSON(`null`))
		_, err := runtimeAs("").Thread(t.Namespace, t.Name).Approve(ctx, ms[2].ToolCallID, "", nil)
		Expect(apierrors.IsNotFound(err) || apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	})

	It("can be asked for by a Tool, and says what is wrong with its timeout", func(ctx SpecContext) {
		ns := namespace(ctx)
		tool := harness.CodeTool(ns, "pay", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'x', execute: async (_state, args) => ({ status: 'success', result: 'paid ' + args.amount }) });
`, map[string]any{"amount": map[string]any{"type": "number"}}, "amount")
		tool.Spec.RequiresApproval = true
		bad := tool.DeepCopy()
		bad.Spec.ApprovalTimeout = &metav1.Duration{Duration: time.Millisecond}
		Expect(cluster.Client.Create(ctx, bad)).To(MatchError(ContainSubstring("give a duration from 1s to 87600h")))
		create(ctx, tool)
		create(ctx, harness.Scripted(ns, "model", harness.On("go", harness.Calls("pay", map[string]any{"amount": 120})), harness.Echo()),
			harness.Prompt(ns, "prompt", "model", "pay"), harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
		t := ready(ctx, cluster.Thread(ns, "thread"))
		Expect(t.Say(ctx, "go")).To(Succeed())
		admin := runtimeAs("").Thread(ns, "thread")
		call := awaiting(ctx, admin, 1)[0]
		_, err := admin.Approve(ctx, call.ToolCallID, "", json.RawMessage(`{"amount":"much"}`))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("the tool pay does not accept these arguments: /amount: got string, want number")))
		_, err = admin.Approve(ctx, call.ToolCallID, "", json.RawMessage(`{"amount":100}`))
		Expect(err).NotTo(HaveOccurred())
		content, _ := result(settled(ctx, t, 1), "pay")
		Expect(content).To(And(ContainSubstring("paid 100"), ContainSubstring("approved with other arguments")))
	}, SpecTimeout(5*time.Minute))

	It("ends with its run", func(ctx SpecContext) {
		t := needing(ctx, 0, set("a", 1))
		admin := runtimeAs("").Thread(t.Namespace, t.Name)
		call := awaiting(ctx, admin, 1)[0]
		_, err := admin.Stop(ctx, "no")
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.Approve(ctx, call.ToolCallID, "", nil)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Expect(texts(settled(ctx, t, 1))).To(ContainElement("assistant: (stopped by user)"))
		Expect(t.Value(ctx, "a")).To(MatchJSON(`null`))
	})
})

var _ = Describe("Waiting for a time", Label("RUN-11"), func() {
	It("parks the run, which continues after a restart", Serial, func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), []string{"builtin:wait"}, []skeinv1.ScriptStep{
			harness.On("go", harness.Calls("wait", map[string]any{"delayMs": 3000})),
			harness.After("wait", harness.Answer("and on: {{ .Last.Content }}")),
		})
		Expect(t.Say(ctx, "go")).To(Succeed())
		running := func() runtimev1.Run {
			GinkgoHelper()
			runs := must(t.Runs(ctx))
			Expect(runs).To(HaveLen(1))
			return runs[0]
		}
		Eventually(ctx, func(g Gomega) { g.Expect(t.Runs(ctx)).To(HaveLen(1)) }).Should(Succeed())
		manager.Kill() // wherever it is by now
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := t.Runs(ctx); return err }).Should(Succeed())
		Expect(last(settled(ctx, t, 1))).To(Equal("and on: the time is over"))
		end := running()
		Expect(end.EndedAt-end.StartedAt).To(BeNumerically(">=", 3_000_000), "not before its time")
	}, SpecTimeout(5*time.Minute))
})
