package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// started is a command that runs beside the spec.
type started struct {
	out, err *lockedBuffer
	code     chan int
}

func (c command) start(args ...string) *started {
	s := &started{out: &lockedBuffer{}, err: &lockedBuffer{}, code: make(chan int, 1)}
	file := c.kubeconfig
	if file == "" {
		file = kubeconfig
	}
	go func() {
		streams := genericiooptions.IOStreams{In: strings.NewReader(c.stdin), Out: s.out, ErrOut: s.err}
		s.code <- run(c.ctx, streams, append([]string{"--kubeconfig", file, "-n", c.ns}, args...))
	}()
	return s
}

var _ = Describe("kubectl skein send --wait", Label("MSG-05"), func() {
	var c command
	var st *thread.State
	var obj *skeinv1.Thread

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		obj, st, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		commands, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		c = command{ctx: commands, ns: ns}
		echoes.free.Store(false)
	})

	// show writes the status that a controller would.
	show := func(ctx context.Context, phase string, conditions ...metav1.Condition) {
		GinkgoHelper()
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Now()
		}
		obj.Status.Phase, obj.Status.Conditions = phase, conditions
		Expect(env.Client.Status().Update(ctx, obj)).To(Succeed())
	}
	// release lets the message be taken.
	release := func(ctx context.Context) {
		GinkgoHelper()
		echoes.free.Store(true)
		echoes.turn(ctx, st.ID())
	}
	ready := metav1.Condition{Type: skeinv1.ConditionReady, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonReady}

	It("says what the thread waits for whenever that changes, and then prints the answer alone", func(ctx SpecContext) {
		show(ctx, "Idle", metav1.Condition{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: skeinv1.ReasonReferenceNotReady, Message: "Secret openai does not exist: create it"})
		s := c.start("send", "hello", "wait for it", "--wait")
		Eventually(s.err.String).Should(Equal("thread/hello waits: ReferenceNotReady: Secret openai does not exist: create it\n"))
		show(ctx, "Waiting", ready, metav1.Condition{Type: skeinv1.ConditionExecuting, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonEnvMissing, Message: "the agent helper needs values for KEY"})
		Eventually(s.err.String).Should(HaveSuffix("thread/hello waits: EnvMissing: the agent helper needs values for KEY\n  kubectl skein -n " + c.ns + " provide hello\n"))
		echoes.approvals = []approval.Call{{ToolCallID: "call_1", Name: "pay", Arguments: `{"amount":120}`}}
		DeferCleanup(func() { echoes.approvals = nil })
		show(ctx, "Waiting", ready, metav1.Condition{Type: skeinv1.ConditionExecuting, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonWaitingForApproval, Message: "calls wait for approval: pay (call_1)"})
		Eventually(s.err.String).Should(HaveSuffix("kubectl skein -n " + c.ns + " approve hello call_1   # pay({\"amount\":120}), or refuse\n"))
		show(ctx, "Running", ready)
		Eventually(s.err.String).Should(HaveSuffix("thread/hello goes on\n"))
		release(ctx)
		Eventually(s.code).Should(Receive(Equal(0)))
		Expect(s.out.String()).To(Equal("echo: wait for it\n"))
		Expect(strings.Count(s.err.String(), "thread/hello")).To(Equal(4), s.err.String())
	}, SpecTimeout(2*patience))

	It("ends with a code for each outcome", func(ctx SpecContext) {
		Expect(c.run("send", "hello", "stop", "--wait")).To(Equal(outputs{code: exitStopped, out: "echo: stop\n", err: "error: run stopped: StoppedByUser\n"}))

		By("a timeout while the thread works")
		got := c.run("send", "hello", "wait", "--wait", "--timeout=300ms")
		Expect(got.code).To(Equal(exitTimeout), got.err)
		Expect(got.err).To(ContainSubstring("no end of the run within 300ms: the message is in the thread all the same"))
		got = c.run("send", "hello", "wait", "--wait", "--request-timeout=1s")
		Expect(got.code).To(Equal(exitTimeout), got.err)
		Expect(got.err).To(ContainSubstring("no end of the run within 1s"))

		By("a timeout while the thread waits for a variable")
		show(ctx, "Waiting", ready, metav1.Condition{Type: skeinv1.ConditionExecuting, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonEnvMissing, Message: "KEY is missing"})
		s := c.start("send", "hello", "wait", "--wait", "--timeout=5s")
		Eventually(s.err.String).Should(ContainSubstring("waits: EnvMissing"))
		Eventually(s.code).Should(Receive(Equal(exitWaits)))
		Expect(s.err.String()).To(ContainSubstring("no end of the run within 5s, for the thread waits (EnvMissing: KEY is missing)"))

		By("a thread that is terminated")
		s = c.start("send", "hello", "wait", "--wait")
		Eventually(s.err.String).Should(ContainSubstring("waits: EnvMissing"))
		Expect(st.Terminate(ctx, "TerminatedByRequest")).To(Succeed())
		Eventually(s.code).Should(Receive(Equal(exitEnded)))
		got = c.run("send", "hello", "more", "--wait")
		Expect(got.code).To(Equal(exitRefused), got.err)
	}, SpecTimeout(2*patience))

	It("waits until a thread that is not set up yet can take the message", func(ctx SpecContext) {
		obj = &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "fork"}, Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "helper"}}}
		Expect(env.Client.Create(ctx, obj)).To(Succeed())
		show(ctx, "Pending", metav1.Condition{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: skeinv1.ReasonReferenceNotFound, Message: "Thread origin does not exist"})
		got := c.run("send", "fork", "good day", "--wait", "--timeout=5s")
		Expect(got.code).To(Equal(exitWaits), got.err)
		Expect(got.err).To(And(HavePrefix("thread/fork waits: ReferenceNotFound: Thread origin does not exist\n"),
			ContainSubstring("the message was not sent: the thread was not set up within 5s, for it waits (ReferenceNotFound: Thread origin does not exist)")))
		got = c.run("send", "fork", "good day")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring("is not set up yet (ReferenceNotFound: Thread origin does not exist)"))

		s := c.start("send", "fork", "good day", "--wait", "--timeout=0")
		Eventually(s.err.String).Should(HavePrefix("thread/fork waits: ReferenceNotFound: Thread origin does not exist\n"))
		Expect(s.code).NotTo(Receive())
		show(ctx, "Idle", ready)
		_, _, err := env.Threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: string(obj.UID), Namespace: c.ns, Name: "fork", Agent: "helper"}})
		Expect(err).NotTo(HaveOccurred())
		Eventually(s.code).Should(Receive(BeZero()))
		Expect(s.out.String()).To(Equal("echo: good day\n"))

		By("deleting the thread before it is set up")
		obj = &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "gone"}, Spec: obj.Spec}
		Expect(env.Client.Create(ctx, obj)).To(Succeed())
		show(ctx, "Pending", metav1.Condition{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: skeinv1.ReasonReferenceNotFound, Message: "Thread origin does not exist"})
		s = c.start("send", "gone", "good day", "--wait")
		Eventually(s.err.String).Should(HavePrefix("thread/gone waits: "))
		Expect(env.Client.Delete(ctx, obj)).To(Succeed())
		Eventually(s.code).Should(Receive(Equal(exitRefused)))
	}, SpecTimeout(2*patience))

	It("waits for this message, not for the run before it", func(ctx SpecContext) {
		Expect(c.run("send", "hello", "first", "--wait")).To(Equal(outputs{out: "echo: first\n"}))
		s := c.start("send", "hello", "wait", "--wait", "--idempotency-key=k")
		Eventually(func() ([]store.InboxItem, error) { return env.Threads.Store().Inbox(ctx, st.ID()) }).Should(HaveLen(1))
		Expect(s.code).NotTo(Receive())
		release(ctx)
		Eventually(s.code).Should(Receive(Equal(0)))
		Expect(s.out.String()).To(Equal("echo: wait\n"))
		Expect(c.run("send", "hello", "wait", "--wait", "--idempotency-key=k").out).To(Equal("echo: wait\n"), "a repeat waits for the same message")
	}, SpecTimeout(2*patience))

	It("goes on without the right to see the object", Label("K8S-04"), func(ctx SpecContext) {
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "writer")
		_, err := env.Kubeconfig("writer", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Allow(ctx, c.ns, "writer", conversation())).To(Succeed())
		got := c.run("send", "hello", "good day", "--wait")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(Equal("echo: good day\n"))
	}, SpecTimeout(2*patience))

	It("names the role for sending to a user without rights", Label("K8S-04"), func() {
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "stranger")
		_, err := env.Kubeconfig("stranger", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "orders.csv")
		Expect(os.WriteFile(file, []byte("a,b\n"), 0o600)).To(Succeed())
		for _, flag := range []string{"--wait", "--wait=false", "--file=" + file} {
			got := c.run("send", "hello", "good day", flag)
			Expect(got.code).To(Equal(exitRefused), flag+got.err)
			Expect(got.err).To(And(ContainSubstring("The ClusterRole skein-conversation-writer has this right"), Not(ContainSubstring("reader"))), flag)
		}
	})

	It("prints the message, the run and the answers for programs", func(ctx SpecContext) {
		var got sending
		ran := c.run("send", "hello", "good day", "--wait", "-o", "json")
		Expect(ran.code).To(BeZero(), ran.err)
		Expect(json.Unmarshal([]byte(ran.out), &got)).To(Succeed(), ran.out)
		Expect(*got.Message.Content).To(Equal("good day"))
		Expect(got.Run.Status).To(Equal(runtimev1.RunSucceeded))
		Expect(got.Answers).To(ConsistOf(HaveField("Content", HaveValue(Equal("echo: good day")))))
		Expect(got.Answers[0].RunID).To(Equal(got.Run.ID))

		By("a run that fails the command")
		ran = c.run("send", "hello", "stop", "--wait", "-o", "yaml")
		Expect(ran.code).To(Equal(exitStopped), ran.err)
		Expect(yaml.Unmarshal([]byte(ran.out), &got)).To(Succeed(), ran.out)
		Expect(got.Run.Reason).To(Equal("StoppedByUser"))

		By("names, and a message without --wait")
		Expect(c.run("send", "hello", "x", "--wait", "-o", "name").out).To(MatchRegexp(`^message/\S+\nrun/sess_\w+\n$`))
		ran = c.run("send", "hello", "x", "-o", "json")
		got = sending{}
		Expect(json.Unmarshal([]byte(ran.out), &got)).To(Succeed(), ran.out)
		Expect(got.Message.ID).NotTo(BeEmpty())
		Expect(got.Run).To(BeNil())
		Expect(c.run("send", "hello", "x", "-o", "table").err).To(ContainSubstring("give json, yaml or name"))

		By("a timeout before the run has ended")
		ran = c.run("send", "hello", "wait", "--wait", "--timeout=300ms", "-o", "json")
		Expect(ran.code).To(Equal(exitTimeout), ran.err)
		got = sending{}
		Expect(json.Unmarshal([]byte(ran.out), &got)).To(Succeed(), ran.out)
		Expect(*got.Message.Content).To(Equal("wait"))
	}, SpecTimeout(2*patience))

	It("refuses another message under a used key", Label("MSG-10"), func() {
		Expect(c.run("send", "hello", "first", "--idempotency-key=k1").code).To(BeZero())
		got := c.run("send", "hello", "other", "--idempotency-key=k1")
		Expect(got.code).To(Equal(exitRefused), got.out)
		Expect(got.err).To(ContainSubstring("this key was used for another request"))
		Expect(c.run("send", "hello", "first", "--idempotency-key=k1").code).To(BeZero())
	})
})

// conversation is the right to send messages and to follow the thread.
func conversation() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"runtime.skein.dev"}, Resources: []string{"threads", "threads/queue", "threads/events"}, Verbs: []string{"get", "watch", "create"},
	}
}

var _ = Describe("kubectl skein logs", Label("LOG-03"), func() {
	It("shows what code logged, of a run, from the end, and as it comes", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err := env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		commands, cancel := context.WithCancel(context.Background())
		DeferCleanup(cancel)
		c := command{ctx: commands, ns: ns}
		log := func(runID, kind, data string) {
			GinkgoHelper()
			Expect(env.Threads.Store().Apply(ctx, st.ID(), nil, &store.AppendEvent{Event: store.Event{Type: kind, RunID: runID, Data: []byte(data)}})).To(Succeed())
		}
		Expect(c.run("send", "hello", "x", "--wait").code).To(BeZero())
		r, err := env.Threads.Store().Run(ctx, st.ID(), "")
		Expect(err).NotTo(HaveOccurred())
		log("", store.EventCodeLog, `{"level":"info","message":"of an effect","time":1000000,"source":"effect/remind","firing":"daily/2027-01-31T09:00:00Z"}`)
		log(r.ID, store.EventCodeLog, `{"level":"error","message":"two\nlines \u001b[31m","time":2000000,"source":"tool/t"}`)
		log(r.ID, store.EventHandlerLog, `{"level":"warn","message":"careful","data":{"n":1}}`)
		log(r.ID, store.EventHookFailed, `{"hook":"filter_messages","owner":"Agent a","error":"no good"}`)

		got := c.run("logs", "hello")
		Expect(got.code).To(BeZero(), got.err)
		Expect(strings.Split(strings.TrimSpace(got.out), "\n")).To(HaveExactElements(
			MatchRegexp(`^1970-01-01T\S+ info  effect/remind: of an effect$`), MatchRegexp(`^1970-01-01T\S+ error tool/t: two$`), MatchRegexp(`^  lines \S*$`),
			HaveSuffix(`warn  handler: careful {"n":1}`), HaveSuffix("error hook/filter_messages: no good")))
		Expect(got.out).NotTo(ContainSubstring("\x1b"))
		Expect(c.run("logs", "hello", "--run", r.ID).out).NotTo(ContainSubstring("effect/remind"))
		Expect(c.run("logs", "hello", "--tail=1").out).To(MatchRegexp(`^\S+ error hook/filter_messages: no good\n$`))
		Expect(c.run("logs", "hello", "--tail=1", "-o", "json").out).To(ContainSubstring(`"type":"hook.failed"`))
		Expect(c.run("logs", "hello", "--run", "sess_0").err).To(ContainSubstring(`has no run "sess_0"`))
		got = c.run("logs", "hello", "--firing", "daily/2027-01-31T10:00:00+01:00")
		Expect([]any{got.code, got.out, got.err}).To(HaveExactElements(0, MatchRegexp(`^1970-01-01T\S+ info  effect/remind: of an effect\n$`), ""))
		got = c.run("logs", "hello", "--firing", "daily/2027-02-01T09:00:00Z")
		Expect([]any{got.code, got.out, got.err}).To(Equal([]any{0, "", "The log has no line of the firing daily/2027-02-01T09:00:00Z: kubectl skein effect history lists firings\n"}))
		Expect(c.run("logs", "hello", "--firing", "daily").err).To(ContainSubstring("such as daily/2027-01-31T09:00:00Z"))
		Expect(c.run("logs", "hello", "--tail=-1").err).To(ContainSubstring("it cannot be below 0"))
		Expect(c.run("logs", "hello", "--tail=1000000").err).To(ContainSubstring("it must be a number"))

		s := c.start("logs", "hello", "--follow", "--tail=1")
		Eventually(s.out.String).Should(ContainSubstring("no good"))
		log(r.ID, store.EventCodeLog, `{"level":"info","message":"later","source":"tool/t"}`)
		Eventually(s.out.String).Should(HaveSuffix("tool/t: later\n"))
		Expect(st.Emit(ctx, "tick", []byte(`1`))).To(Succeed())
		log(r.ID, store.EventCodeLog, `{"level":"info","message":"last","source":"tool/t"}`)
		Eventually(s.out.String).Should(HaveSuffix("tool/t: last\n"))
		Expect(strings.Count(s.out.String(), "\n")).To(Equal(3))

		begin := time.Now()
		s = c.start("logs", "hello", "--follow", "--tail=1", "--request-timeout=500ms")
		Eventually(s.out.String).Should(HaveSuffix("tool/t: last\n"))
		Eventually(func() time.Duration { return time.Since(begin) }).Should(BeNumerically(">", time.Second))
		log(r.ID, store.EventCodeLog, `{"level":"info","message":"still there","source":"tool/t"}`)
		Eventually(s.out.String).Should(HaveSuffix("tool/t: still there\n"), "a follow has no time limit")

		got = c.run("tool", "hello", "good", "-o", "json")
		Expect(got.out).To(ContainSubstring(`"message": "called"`))
	}, SpecTimeout(2*patience))
})

var _ = Describe("completion", func() {
	It("is asked for under another name", func() {
		Expect(commandLine([]string{"/usr/bin/kubectl_complete-skein", "send", ""})).To(Equal([]string{"__complete", "send", ""}))
		Expect(commandLine([]string{"/usr/bin/kubectl-skein", "send", "hello"})).To(Equal([]string{"send", "hello"}))
	})

	It("offers commands, flags and the names of what is there", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"hello", "help-desk", "orders"} {
			_, _, err = env.Thread(ctx, ns, name)
			Expect(err).NotTo(HaveOccurred())
		}
		c := command{ctx: context.Background(), ns: ns}
		complete := func(args ...string) []string {
			GinkgoHelper()
			got := c.run(append([]string{"__complete"}, args...)...)
			Expect(got.code).To(BeZero(), got.err)
			var out []string
			for line := range strings.Lines(got.out) {
				if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
					out = append(out, word)
				}
			}
			return out
		}
		Expect(complete("se")).To(Equal([]string{"search", "send"}))
		Expect(complete("send", "he")).To(Equal([]string{"hello", "help-desk"}))
		Expect(complete("logs", "")).To(Equal([]string{"hello", "help-desk", "orders"}))
		Expect(complete("files", "ls", "or")).To(Equal([]string{"orders"}))
		Expect(complete("send", "hello", "text", "--wa")).To(Equal([]string{"--wait"}))
		Expect(complete("send", "hello", "text", "--policy", "")).To(Equal([]string{"enqueue", "reject", "interrupt", "rollback"}))
		Expect(complete("messages", "hello", "-o", "")).To(Equal([]string{"json", "yaml", "wide", "name"}))
		Expect(complete("env", "")).To(ContainElements("list", "set", "pending"))
		Expect(complete("send", "-n", ns[:len(ns)-1])).To(ContainElement(ns))
		echoes.approvals = []approval.Call{{ToolCallID: "call_1", Name: "pay"}}
		DeferCleanup(func() { echoes.approvals = nil })
		Expect(complete("approve", "hello", "")).To(Equal([]string{"call_1"}))
		Expect(complete("send", "hello", "")).To(BeEmpty(), "a message is nothing to offer names for")
	}, SpecTimeout(2*patience))
})
