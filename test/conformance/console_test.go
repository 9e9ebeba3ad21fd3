package conformance

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	chromium "github.com/skein-dev/skein/test/browser"
	"github.com/skein-dev/skein/test/harness"
)

var consoleAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/login\?token=\S+`)

// serveConsole starts kubectl skein console and returns the address that it prints.
func serveConsole(ctx context.Context, args ...string) string {
	GinkgoHelper()
	address, _ := startConsole(ctx, args...)
	return address
}

// startConsole is serveConsole with a function that interrupts the console and waits for its end.
func startConsole(ctx context.Context, args ...string) (address string, end func(context.Context)) {
	GinkgoHelper()
	out := gbytes.NewBuffer()
	cmd := exec.Command(harness.Bin("kubectl-skein"), append([]string{"--kubeconfig", cluster.Kubeconfig, "console"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	Expect(cmd.Start()).To(Succeed())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	end = func(ctx context.Context) {
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		Eventually(ctx, ended).Should(BeClosed(), "an interrupt ends the console")
	}
	DeferCleanup(func(ctx SpecContext) { end(ctx) }, NodeTimeout(patience))
	Eventually(ctx, func() []byte { return out.Contents() }).Should(MatchRegexp(consoleAddress.String()))
	return consoleAddress.FindString(string(out.Contents())), end
}

// openConsole opens the console with the namespace ns.
func openConsole(ctx context.Context, ns string, args ...string) *chromium.Page {
	GinkgoHelper()
	return chromium.Open(ctx, serveConsole(ctx, append([]string{"-n", ns}, args...)...))
}

// openThread opens a thread in the list, as a person would.
func openThread(ctx context.Context, p *chromium.Page, name string) {
	GinkgoHelper()
	p.By("link", name).Click(ctx)
	p.By("heading", name).Wait(ctx)
}

// part opens a part of the thread that is shown.
func part(ctx context.Context, p *chromium.Page, name string) {
	GinkgoHelper()
	link := p.By("navigation", "Parts of the thread").By("link", name)
	Eventually(ctx, func(g Gomega) {
		link.Click(ctx) // which misses when the page moves at this moment
		g.Expect(link.Attribute(ctx, "aria-current")).To(Equal("page"))
	}).Should(Succeed())
}

// bindRole installs ClusterRoles of config/rbac and binds them to a user in a namespace.
func bindRole(ctx context.Context, ns, user string, roles ...string) {
	GinkgoHelper()
	for _, role := range roles {
		applyRole(ctx, role)
		create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "console-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		})
	}
}

var _ = Describe("The console", func() {
	It("lists threads by state, and follows what changes", Label("CON-01"), func(ctx SpecContext) {
		t := approvedValues(ctx)
		ns := t.Namespace
		create(ctx, harness.NewThread(ns, "calm", "agent"), harness.NewThread(ns, "done", "agent"), harness.NewThread(ns, "lost", "missing"))
		ready(ctx, cluster.Thread(ns, "calm"))
		Expect(ready(ctx, cluster.Thread(ns, "done")).Terminate(ctx)).To(Succeed())
		Expect(t.Say(ctx, "first")).To(Succeed())

		p := openConsole(ctx, ns)
		p.Test("total").See(ctx, "4 threads")
		rows := p.Test("thread-row")
		rows.Containing("calm").See(ctx, "Idle")
		rows.Containing("done").See(ctx, "Terminated")
		rows.Containing("lost").See(ctx, "Not ready")
		rows.Containing("thread").See(ctx, "WaitingForApproval")
		p.By("navigation", "Views").By("link", "Approvals (1)").Wait(ctx)

		By("choosing states")
		states := p.By("group", "Only threads in these states")
		states.By("button", "Waiting 1").Click(ctx)
		p.Test("total").See(ctx, "1 thread")
		rows.Containing("calm").Gone(ctx)
		states.By("button", "Idle 1").Click(ctx)
		p.Test("total").See(ctx, "2 threads")
		states.By("button", "Waiting 1").Click(ctx)
		states.By("button", "Idle 1").Click(ctx)
		p.Test("total").See(ctx, "4 threads")

		By("finding by name")
		p.By("searchbox", "Find threads by name, title, agent or user").Fill(ctx, "MISSING")
		p.Test("total").See(ctx, "1 thread")
		rows.Containing("lost").Wait(ctx)
		p.By("searchbox", "Find threads by name, title, agent or user").Fill(ctx, "")

		By("threads that come, change and go while the page is open")
		create(ctx, harness.NewThread(ns, "later", "agent"))
		rows.Containing("later").See(ctx, "Idle")
		Expect(cluster.Thread(ns, "later").Terminate(ctx)).To(Succeed())
		rows.Containing("later").See(ctx, "Terminated")
		Expect(cluster.Thread(ns, "later").Delete(ctx)).To(Succeed())
		rows.Containing("later").Gone(ctx)
		_, err := cluster.Plugin(ctx, "-n", ns, "archive", "calm")
		Expect(err).NotTo(HaveOccurred())
		rows.Containing("calm").Gone(ctx)
		p.By("checkbox", "Archived").Click(ctx)
		rows.Containing("calm").See(ctx, "archived")
	}, SpecTimeout(5*patience))

	It("shows a conversation as it happens, with tool calls, files, state and cost", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		goOn := make(chan struct{})
		server := harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
			if last := req.Messages[len(req.Messages)-1]; last.Role == "user" {
				harness.CallTool(w, "m", "call-1", "write_file", `{"path":"/report.txt","content":"three orders"}`)
				return
			}
			harness.SayWhen(w, "m", goOn, "It is **written**", ", and that is all.")
		})
		DeferCleanup(server.Close)
		model := harness.OpenAI(ns, "model", server.URL, "")
		model.Spec.Pricing = &skeinv1.ModelPricing{Input: "1000", Output: "2000"}
		t := converseWith(ctx, ns, model, []string{"builtin:files"})
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		p.See(ctx, "There is no message yet.")
		p.By("textbox", "Message to thread").Type(ctx, "write the report")
		p.By("button", "Send the message to thread").Click(ctx)

		By("the text that the model is writing")
		p.Test("draft").See(ctx, "It is written")
		Expect(p.Test("draft").CSS("strong").Text(ctx)).To(Equal("written"))
		p.By("heading", "thread").Wait(ctx)
		p.Test("tool-call").See(ctx, "write_file")
		p.Test("tool-call").See(ctx, "done")
		close(goOn)
		p.Test("draft").Gone(ctx)
		p.See(ctx, "It is written, and that is all.")
		Expect(p.By("textbox", "Message to thread").Value(ctx)).To(BeEmpty())

		By("the call with its arguments and its result")
		p.Test("tool-call").CSS("summary").Click(ctx)
		p.Test("tool-call").See(ctx, `"content": "three orders"`)
		p.Test("tool-result").Wait(ctx)

		By("what it cost")
		p.Test("fact-Cost with subagents").See(ctx, "$0.0400") // 20 tokens read and 10 written
		p.Test("fact-Tokens").See(ctx, "20 read, 10 written")
		p.Test("fact-Last run").See(ctx, "succeeded, 2 steps")

		By("files, and state")
		part(ctx, p, "Files")
		p.By("button", "Show /report.txt").Click(ctx)
		p.Test("file-text").See(ctx, "three orders")
		p.By("link", "/report.txt").Click(ctx)
		Expect(string(p.Downloaded(ctx, "report.txt"))).To(Equal("three orders"))
		Expect(t.WriteFile(ctx, "/folder/later.txt", "text/plain", []byte("more"))).To(Succeed())
		p.By("link", "/folder/later.txt").Wait(ctx)
		part(ctx, p, "State")
		p.See(ctx, "The thread has no key-values.")
		Expect(t.SetValue(ctx, "color", `{"name":"red"}`)).To(Succeed())
		p.By("region", "Key-values").See(ctx, `"name": "red"`)
	}, SpecTimeout(5*patience))

	It("goes on where it was when the connection or the console comes back", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		p := openConsole(ctx, ns)
		openThread(ctx, p, "thread")
		say(ctx, t, 1, "before")
		p.See(ctx, "before")
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		p.Allow("WebSocket", "Failed to load resource") // the browser reports the connections that were refused meanwhile
		say(ctx, t, 2, "after")
		p.By("region", "Messages").See(ctx, "after")
		Expect(p.By("region", "Messages").Text(ctx)).To(And(ContainSubstring("before"), ContainSubstring("after")))
	}, SpecTimeout(5*patience))

	It("serves twenty pages at once, which all send and all show every message once", Label("CON-01"), func(ctx SpecContext) {
		const pages = 20
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		address := serveConsole(ctx, "-n", ns)
		open := make([]*chromium.Page, pages)
		var each []OmegaMatcher
		for i := range pages {
			each = append(each, ContainSubstring("\nfrom page %02d.", i))
		}
		showAll := And(each...)
		for i := range open {
			open[i] = chromium.Open(ctx, address)
			openThread(ctx, open[i], "thread")
			open[i].By("textbox", "Message to thread").Type(ctx, fmt.Sprintf("from page %02d.", i))
		}
		for _, p := range open {
			p.Allow("429") // a queue is full, and the page sends the message again after the pause that the server asks for
			p.Press(ctx, "Enter")
		}
		Eventually(ctx, func(g Gomega) {
			all := strings.Join(texts(must(t.Messages(ctx))), "\n")
			for i := range pages {
				g.Expect(strings.Count(all, fmt.Sprintf("user: from page %02d.", i))).To(Equal(1), all)
			}
		}).Should(Succeed())
		for _, p := range open {
			Eventually(ctx, func() string { return p.By("region", "Messages").Text(ctx) }).Should(showAll)
			p.Test("outgoing").Gone(ctx)
		}
	}, SpecTimeout(5*patience))

	It("says that the console has ended, and goes on with the next one on the same port once its address is opened", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		port := strconv.Itoa(must(scratch.Port()))
		address, end := startConsole(ctx, "-n", ns, "--port", port)
		p := chromium.Open(ctx, address)
		p.By("link", "thread").Wait(ctx)
		p.Allow("load", "WebSocket")
		end(ctx)
		p.See(ctx, "Is kubectl skein console still running?")
		p.By("link", "thread").Wait(ctx)

		address, _ = startConsole(ctx, "-n", ns, "--port", port)
		p.See(ctx, "open the address that")
		p.Open(ctx, address)
		p.By("navigation", "Views").Wait(ctx)
		p.See(ctx, "Live")
		p.By("link", "thread").Wait(ctx)
	}, SpecTimeout(5*patience))

	It("shows and does what the viewer may, and says which right is missing", Label("CON-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "a secret plan")

		By("a user without any right")
		p := openConsole(ctx, ns, "--as", "con-none")
		p.Allow("Failed to load resource", "WebSocket")
		p.See(ctx, "skein-viewer")
		Expect(p.Text(ctx)).NotTo(ContainSubstring("secret plan"))

		By("a user who may see the objects, and not the conversation")
		bindRole(ctx, ns, "con-viewer", "skein-viewer")
		p = openConsole(ctx, ns, "--as", "con-viewer")
		p.Allow("Failed to load resource", "WebSocket")
		openThread(ctx, p, "thread")
		p.See(ctx, `User "con-viewer" cannot get resource`)
		p.See(ctx, "skein-conversation-reader")
		Expect(p.Text(ctx)).NotTo(ContainSubstring("secret plan"))

		By("a user who may read, and not write")
		bindRole(ctx, ns, "con-reader", "skein-viewer", "skein-conversation-reader")
		p = openConsole(ctx, ns, "--as", "con-reader")
		openThread(ctx, p, "thread")
		p.See(ctx, "a secret plan")
		Expect(p.By("button", "Send the message to thread").Attribute(ctx, "title")).To(ContainSubstring("skein-conversation-writer"))
		Expect(p.By("textbox", "Message to thread").Attribute(ctx, "placeholder")).To(ContainSubstring("threads/queue"))
		Expect(p.By("button", "Send the message to thread").Attribute(ctx, "aria-disabled")).To(Equal("true"))
	}, SpecTimeout(5*patience))
})

// applyRole installs a ClusterRole of config/rbac.
func applyRole(ctx context.Context, role string) {
	GinkgoHelper()
	file := strings.ReplaceAll(strings.TrimPrefix(role, "skein-"), "-", "_") + "_role.yaml"
	_, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(harness.Root(), "config", "rbac", file))
	Expect(err).NotTo(HaveOccurred())
}
