package main

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/approval"
)

var _ = Describe("kubectl skein list and show", func() {
	var c command
	var hello *skeinv1.Thread

	// made makes a Thread that the runtime API may not have, with the status that a controller would write.
	made := func(ctx context.Context, name string, spec skeinv1.ThreadSpec, status skeinv1.ThreadStatus) *skeinv1.Thread {
		GinkgoHelper()
		t := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: name, Labels: map[string]string{"team": name}}, Spec: spec}
		Expect(env.Client.Create(ctx, t)).To(Succeed())
		t.Status = status
		Expect(env.Client.Status().Update(ctx, t)).To(Succeed())
		return t
	}
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
	}
	minutesAgo := func(n int) *metav1.Time {
		at := metav1.NewTime(time.Now().Add(-time.Duration(n) * time.Minute))
		return &at
	}

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		c = command{ctx: context.Background(), ns: ns}
		hello, _, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		ready := condition(skeinv1.ConditionReady, metav1.ConditionTrue, skeinv1.ReasonReady, "")
		hello.Status = skeinv1.ThreadStatus{Phase: "Idle", Agent: "helper", Messages: 4, LastActivityTime: minutesAgo(1), Conditions: []metav1.Condition{ready},
			LastRun: &skeinv1.RunStatus{ID: "sess_1", Outcome: skeinv1.RunFailed, Reason: "ModelTimeout", Message: "the model took too long", Steps: 2},
			Usage:   &skeinv1.UsageStatus{Runs: 3, Turns: 1, InputTokens: 1200, OutputTokens: 80, Cost: "0.0125"}, ChildCount: 1,
			Children: []skeinv1.ChildStatus{{Reference: "audit-1", Name: "auditor", Status: "completed", Title: "The figures"}}}
		Expect(env.Client.Status().Update(ctx, hello)).To(Succeed())
		made(ctx, "waits", skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "clerk"}, UserID: "ada", TaskID: "t-1"}, skeinv1.ThreadStatus{Phase: "Waiting", Agent: "clerk", QueuedMessages: 2, LastActivityTime: minutesAgo(5),
			Conditions: []metav1.Condition{ready, condition(skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonEnvMissing, "the agent clerk needs values for KEY")}})
		made(ctx, "broken", skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "nobody"}}, skeinv1.ThreadStatus{Phase: "Pending", LastActivityTime: minutesAgo(9),
			Conditions: []metav1.Condition{condition(skeinv1.ConditionReady, metav1.ConditionFalse, skeinv1.ReasonReferenceNotFound, `Agent "nobody" does not exist`)}})
	})

	It("list all Threads with what they do and wait for, the newest activity first", func() {
		got := c.run("list")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.err).To(BeEmpty())
		Expect(got.out).To(MatchRegexp(`^NAME +AGENT +STATE +MESSAGES +LAST RUN +ACTIVE +WAITS FOR
hello +helper +Idle +4 +Failed \(ModelTimeout\) +\d+s +-
waits +clerk +Waiting +0 \(\+2 queued\) +- +\d+m(\d+s)? +EnvMissing
broken +nobody +NotReady +0 +- +\d+m(\d+s)? +ReferenceNotFound
$`))
		wide := c.run("list", "-o", "wide").out
		Expect(wide).To(And(ContainSubstring(`ReferenceNotFound: Agent "nobody" does not exist`), ContainSubstring("EnvMissing: the agent clerk needs values for KEY"), MatchRegexp(`ada +t-1`)))
		Expect(c.run("ls", "-A").out).To(MatchRegexp(`(?m)^NAMESPACE +NAME[^$]*\n` + c.ns + ` +hello +helper`))
	})

	DescribeTable("list those that are asked for", func(args, names string) {
		got := c.run(append(strings.Fields("list -o name"), strings.Fields(args)...)...)
		Expect(got.code).To(BeZero(), got.err)
		var want strings.Builder
		for name := range strings.FieldsSeq(names) {
			want.WriteString("thread.skein.dev/" + name + "\n")
		}
		Expect(got.out).To(Equal(want.String()))
	},
		Entry("by agent", "--agent=clerk", "waits"),
		Entry("by agent, for a Thread whose Agent does not exist", "--agent=nobody", "broken"),
		Entry("by user", "--user-id=ada", "waits"),
		Entry("by task", "--task=t-1", "waits"),
		Entry("by state", "--state=waiting,NotReady", "waits broken"),
		Entry("by label", "-l team=broken", "broken"),
		Entry("by a state that no Thread has", "--state=Parked", ""),
	)

	It("leave archived threads out unless they are asked for", Label("THR-05"), func() {
		Expect(c.run("archive", "hello").code).To(BeZero())
		Expect(c.run("list", "-o", "name").out).To(Equal("thread.skein.dev/waits\nthread.skein.dev/broken\n"))
		Expect(c.run("list", "-o", "name", "--archived=true").out).To(Equal("thread.skein.dev/hello\n"))
		Expect(c.run("list", "--archived=all").out).To(MatchRegexp(`hello +helper +Idle \(archived\)`))
		Expect(c.run("show", "hello").out).To(MatchRegexp(`State: +Idle, archived\n`))
	})

	It("work with the right to see the objects alone", Label("K8S-04"), func(ctx SpecContext) {
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "viewer")
		_, err := env.Kubeconfig("list-viewer", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "list-viewer"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"skein.dev"}, Resources: []string{"threads"}, Verbs: []string{"get", "list", "watch"}}}}
		binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{{Kind: "User", Name: "list-viewer"}}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
		Expect(env.Client.Create(ctx, role)).To(Succeed())
		Expect(env.Client.Create(ctx, binding)).To(Succeed())
		Eventually(func() int { return c.run("list").code }).Should(BeZero())
		got := c.run("list", "-o", "name")
		Expect(got.out).To(Equal("thread.skein.dev/hello\nthread.skein.dev/waits\nthread.skein.dev/broken\n"))
		Expect(got.err).To(ContainSubstring("(This list has archived threads too, because the runtime API does not say which are archived: "))
		Expect(c.run("list", "--archived=true").code).To(Equal(exitError))
		got = c.run("show", "hello")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(MatchRegexp(`State: +Idle\n`))
		Expect(got.err).To(ContainSubstring("(You may not read the runtime API, so this leaves out what only it has.)"))
	})

	It("refuse what they do not know", func() {
		Expect(c.run("list", "--state=asleep").err).To(Equal("error: --state=asleep: give Pending, NotReady, Idle, Running, Waiting, Parked, Terminated, Deleting\n"))
		Expect(c.run("list", "--archived=maybe").err).To(Equal("error: --archived=maybe: give false, true or all\n"))
		Expect(c.run("list", "-l", "a in").err).To(ContainSubstring("--selector=a in: "))
		Expect(c.run("list", "extra").err).To(ContainSubstring(`"extra" is one argument too many`))
		Expect(c.run("show").err).To(ContainSubstring("THREAD is missing"))
		got := c.run("show", "nothing")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring(`threads.skein.dev "nothing" not found`))
	})

	It("show a thread by its name and by its id", func() {
		for _, name := range []string{"hello", "thrd_" + strings.ReplaceAll(string(hello.UID), "-", ""), string(hello.UID)} {
			got := c.run("show", name)
			Expect(got.code).To(BeZero(), got.err)
			Expect(got.out).To(MatchRegexp(`^Name: +hello
Namespace: +` + c.ns + `
Agent: +helper
ID: +` + string(hello.UID) + `
Created: +\S+ ago
State: +Idle
Messages: +4, last activity \S+ ago
Last run: +Failed \(ModelTimeout\), 2 steps, sess_1
 +the model took too long
Used: +3 runs, 1 model call, 1200 tokens read, 80 written, \$0.0125
Children: +1
  CHILD +NAME +STATUS +TITLE
  audit-1 +auditor +completed +The figures
$`))
		}
		Expect(c.run("show", "hello", "-o", "yaml").out).To(And(ContainSubstring("kind: Thread"), ContainSubstring("apiVersion: skein.dev/v1alpha1")))
	})

	It("show what a thread waits for, and what helps", func(ctx SpecContext) {
		Expect(c.run("show", "waits").out).To(MatchRegexp(`(?s)State: +Waiting\nWaits for: +EnvMissing: the agent clerk needs values for KEY\nHelp with: +kubectl skein -n ` + c.ns + ` provide waits\nMessages: +0 \(\+2 queued\)`))
		Expect(c.run("show", "broken").out).To(MatchRegexp(`State: +NotReady\nWaits for: +ReferenceNotFound: Agent "nobody" does not exist\n`))
		echoes.approvals = []approval.Call{{ToolCallID: "call_1", Name: "pay", Arguments: `{"amount":120}`}, {ToolCallID: "call_2", Name: "pay", Arguments: `{}`}}
		DeferCleanup(func() { echoes.approvals = nil })
		hello.Status.Phase = "Waiting"
		hello.Status.Conditions = append(hello.Status.Conditions, condition(skeinv1.ConditionExecuting, metav1.ConditionTrue, skeinv1.ReasonWaitingForApproval, "calls wait"))
		Expect(env.Client.Status().Update(ctx, hello)).To(Succeed())
		Expect(c.run("show", "hello").out).To(MatchRegexp(`Help with: +kubectl skein -n \S+ approve hello call_1 +# pay\(\{"amount":120\}\), or refuse\n +kubectl skein -n \S+ approve hello call_2`))
	})
})
