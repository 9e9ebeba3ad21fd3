package conformance

import (
	"context"
	"io"
	"os/exec"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// chatting is kubectl skein chat, whose input is a pipe.
type chatting struct {
	in    io.WriteCloser
	out   *gbytes.Buffer
	cmd   *exec.Cmd
	ended chan error
}

// chatWith begins to chat with a thread.
func chatWith(t *harness.Thread) *chatting {
	GinkgoHelper()
	c := &chatting{out: gbytes.NewBuffer(), ended: make(chan error, 1)}
	c.cmd = exec.Command(harness.Bin("kubectl-skein"), "--kubeconfig", cluster.Kubeconfig, "-n", t.Namespace, "chat", t.Name)
	var err error
	c.in, err = c.cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	Expect(c.cmd.Start()).To(Succeed())
	DeferCleanup(func() { _ = c.cmd.Process.Kill() })
	go func() { c.ended <- c.cmd.Wait() }()
	return c
}

func (c *chatting) types(line string) {
	GinkgoHelper()
	_, err := io.WriteString(c.in, line+"\n")
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("A chat through a pipe", func() {
	It("asks about calls that wait for approval, and takes y, and n with a reason", Label("RUN-11"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		c := chatWith(t)
		c.types("first")
		Eventually(ctx, c.out).Should(gbytes.Say(`Approve set_value\(.*"a".*\)\? Answer y, or n with a reason`))
		c.types("y")
		Eventually(ctx, c.out).Should(gbytes.Say("the tool said"))
		Expect(t.Value(ctx, "a")).To(MatchJSON("1"))
		c.types("second")
		Eventually(ctx, c.out).Should(gbytes.Say(`Approve set_value\(.*"b".*\)\? Answer y, or n with a reason`))
		c.types("n not on a Sunday")
		Eventually(ctx, c.out).Should(gbytes.Say("the tool said .*not on a Sunday"))
		Expect(c.in.Close()).To(Succeed())
		Eventually(ctx, c.ended).Should(Receive(BeNil()))
		Expect(t.Value(ctx, "b")).To(Equal("null"), "the call was refused")
	}, SpecTimeout(3*time.Minute))

	It("stops the run under way when it is interrupted, and leaves at the next interrupt", Label("RUN-04"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.On("wait", skeinv1.ScriptStep{Content: "late", Latency: &metav1.Duration{Duration: time.Hour}})})
		c := chatWith(t)
		c.types("wait")
		status := func(g Gomega) string {
			runs, err := t.Runs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(runs).To(HaveLen(1))
			return string(runs[0].Status)
		}
		Eventually(ctx, status).Should(Equal("running"))
		Expect(c.cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Eventually(ctx, status).Should(Equal("stopped"))
		Expect(c.ended).NotTo(Receive(), "the first interrupt is for the run")
		Expect(c.cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Eventually(ctx, c.ended).Should(Receive(MatchError(ContainSubstring("130"))))
		Expect(c.in.Close()).To(Or(Succeed(), MatchError(ContainSubstring("closed"))))
	}, SpecTimeout(3*time.Minute))

	It("knows the run that was under way before it began, and stops it when it is interrupted", Label("RUN-04"), func(ctx SpecContext) {
		t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.On("wait", skeinv1.ScriptStep{Content: "late", Latency: &metav1.Duration{Duration: time.Hour}}), harness.Echo()})
		Expect(t.Say(ctx, "wait")).To(Succeed())
		statuses := func(g Gomega) (all []string) {
			runs, err := t.Runs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			for _, r := range runs {
				all = append(all, string(r.Status))
			}
			return all
		}
		Eventually(ctx, statuses).Should(Equal([]string{"running"}))
		c := chatWith(t)
		Eventually(ctx, func(g Gomega) { // until it shows what happens
			g.Expect(t.WriteFile(ctx, "/seen.txt", "text/plain", []byte(time.Now().String()))).To(Succeed())
			g.Expect(c.out).To(gbytes.Say("/seen.txt"))
		}).Should(Succeed())
		Expect(c.cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Eventually(ctx, statuses).Should(Equal([]string{"stopped"}))
		c.types("hello")
		Eventually(ctx, c.out).Should(gbytes.Say("echo: hello"))
		Expect(c.in.Close()).To(Succeed())
		Eventually(ctx, c.ended).Should(Receive(BeNil()))
	}, SpecTimeout(3*time.Minute))

	It("asks about calls that waited for approval before it began", Label("RUN-11"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		Expect(t.Say(ctx, "first")).To(Succeed())
		awaiting(ctx, golang(t), 1)
		c := chatWith(t)
		Eventually(ctx, c.out).Should(gbytes.Say(`Approve set_value\(.*"a".*\)\? Answer y, or n with a reason`))
		c.types("y")
		Eventually(ctx, c.out).Should(gbytes.Say("the tool said"))
		Expect(t.Value(ctx, "a")).To(MatchJSON("1"))
		Expect(c.in.Close()).To(Succeed())
		Eventually(ctx, c.ended).Should(Receive(BeNil()))
	}, SpecTimeout(3*time.Minute))

	It("takes no line of a script for a message while a call waits for approval", Label("RUN-11"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		Expect(t.Say(ctx, "first")).To(Succeed())
		awaiting(ctx, golang(t), 1)
		c := chatWith(t)
		c.types("what came in today?")
		Eventually(ctx, c.ended).Should(Receive(MatchError(ContainSubstring("exit status 1"))))
		Expect(c.out).To(gbytes.Say(`"what came in today\?" is no answer`))
		awaiting(ctx, golang(t), 1)
	}, SpecTimeout(3*time.Minute))
})

// approvedValues makes a thread that sets a value when it hears first or second, once a person approves.
func approvedValues(ctx context.Context) *harness.Thread {
	GinkgoHelper()
	ns := namespace(ctx)
	prompt := harness.Prompt(ns, "prompt", "model", "builtin:kv")
	prompt.Spec.Tools[0].RequiresApproval = true
	create(ctx, harness.Scripted(ns, "model",
		harness.On("first", harness.Calls("set_value", map[string]any{"key": "a", "value": 1})), harness.On("second", harness.Calls("set_value", map[string]any{"key": "b", "value": 2})),
		harness.After("set_value", harness.Answer("the tool said {{ .Last.Content }}"))),
		prompt, harness.Agent(ns, "agent", "prompt"), harness.NewThread(ns, "thread", "agent"))
	return ready(ctx, cluster.Thread(ns, "thread"))
}
