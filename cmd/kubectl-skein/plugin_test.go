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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("kubectl skein", func() {
	var c command
	var st *thread.State
	var obj *skeinv1.Thread

	BeforeEach(func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		obj, st, err = env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())
		c = command{ctx: context.Background(), ns: ns}
	})

	It("sends, waits for the answer, and shows the conversation", Label("MSG-05"), func() {
		got := c.run("send", "hello", "good morning", "--wait", "--timeout=2m")
		Expect(got).To(Equal(outputs{out: "echo: good morning\n"}))
		got = c.run("messages", "hello")
		Expect(got.code).To(BeZero(), got.err)
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		Expect(lines).To(HaveLen(4))
		Expect(lines[0]).To(MatchRegexp(`^\d\d:\d\d:\d\d user: good morning$`))
		Expect(lines[1]).To(HaveSuffix(`assistant calls look({"x":1})`))
		Expect(lines[2]).To(HaveSuffix("look: seen"))
		Expect(lines[3]).To(HaveSuffix("assistant: echo: good morning"))

		var list runtimev1.MessageList
		got = c.run("messages", st.ID(), "-o", "json")
		Expect(json.Unmarshal([]byte(got.out), &list)).To(Succeed())
		Expect(list.Messages).To(HaveLen(4))
		got = c.run("messages", "hello", "--all", "-o", "yaml")
		Expect(yaml.Unmarshal([]byte(got.out), &list)).To(Succeed())
		Expect(list.Messages).To(HaveLen(4))
	})

	It("sends from standard input, with files, without waiting", func() {
		file := filepath.Join(GinkgoT().TempDir(), "orders.csv")
		Expect(os.WriteFile(file, []byte("a,b\n"), 0o600)).To(Succeed())
		c.stdin = "from a pipe"
		got := c.run("send", "hello", "-", "--file", file, "-f", file+":/in/x.csv")
		Expect(got.out).To(MatchRegexp(`^message/queued-\S+ queued\n$`), got.err)
		Eventually(func() string { return c.run("messages", "hello").out }).Should(ContainSubstring("user (file /orders.csv, file /in/x.csv): from a pipe"))
	})

	It("shows the answer of the message's own run, not of other runs", Label("MSG-05"), func() {
		Expect(c.run("send", "hello", "in a crowd", "--wait", "--timeout=2m")).To(Equal(outputs{out: "echo: in a crowd\n"}))
	})

	It("answers the repeat of a message as the first time", func() {
		for range 2 {
			got := c.run("send", "hello", "once", "--wait", "--idempotency-key=k", "--timeout=2m")
			Expect(got).To(Equal(outputs{out: "echo: once\n"}))
		}
		Expect(strings.Count(c.run("messages", "hello").out, "user: once")).To(Equal(1))
	})

	It("fails when the run does", func() {
		got := c.run("send", "hello", "fail", "--wait", "--timeout=2m")
		Expect(got.code).To(Equal(exitFailed))
		Expect(got.err).To(Equal("error: run failed: ModelTimeout: the model took too long\n"))
	})

	It("follows a conversation", func(ctx SpecContext) {
		Expect(c.run("send", "hello", "before", "--wait", "--timeout=2m").code).To(BeZero())
		watching, stop := context.WithCancel(ctx)
		defer stop()
		out := &lockedBuffer{}
		done := make(chan int, 1)
		go func() {
			streams := genericiooptions.IOStreams{Out: out, ErrOut: out}
			done <- run(watching, streams, []string{"--kubeconfig", kubeconfig, "-n", c.ns, "watch", "hello"})
		}()
		Eventually(out.String).Should(ContainSubstring("echo: before"))
		Expect(c.run("send", "hello", "after").code).To(BeZero())
		Eventually(out.String).Should(And(ContainSubstring("user: after"), ContainSubstring("assistant: echo: after"), ContainSubstring("run succeeded after 2 steps")))
		Expect(st.Emit(ctx, "tick", []byte(`{"n":1}`))).To(Succeed())
		Eventually(out.String).Should(ContainSubstring(`event tick {"n":1}`))
		Expect(strings.Count(out.String(), "user: before")).To(Equal(1))
		stop()
		Eventually(done).Should(Receive(Equal(130)))
	}, SpecTimeout(3*patience))

	It("follows a thread for programs: each event as JSON on a line", func(ctx SpecContext) {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		w := command{ctx: watching, ns: c.ns}.start("watch", "hello", "-o", "json")
		Eventually(func() string { // until it follows
			Expect(c.run("send", "hello", "again", "--wait").code).To(BeZero())
			return w.out.String()
		}).Should(ContainSubstring(runtimev1.EventRunEnded))
		stop()
		Eventually(w.code).Should(Receive(Equal(130)))
		for line := range strings.Lines(w.out.String()) {
			var e runtimev1.Event
			Expect(json.Unmarshal([]byte(line), &e)).To(Succeed(), line)
			Expect(e.Seq).To(BeNumerically(">", 0))
		}
		Expect(c.run("watch", "hello", "-o", "json", "--tail=3").err).To(ContainSubstring("--tail shows messages, and --output=json prints events"))
	}, SpecTimeout(3*patience))

	It("shows the tree again when something changes", func(ctx SpecContext) {
		tree(ctx, c.ns, obj)
		watching, stop := context.WithCancel(ctx)
		defer stop()
		out := &lockedBuffer{}
		done := make(chan int, 1)
		go func() {
			streams := genericiooptions.IOStreams{Out: out, ErrOut: out}
			done <- run(watching, streams, []string{"--kubeconfig", kubeconfig, "-n", c.ns, "tree", "--watch"})
		}()
		Eventually(out.String).Should(ContainSubstring("Thread/hello"))
		Expect(out.String()).NotTo(ContainSubstring("Thread/later"))
		later := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "later"}, Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "helper"}}}
		Expect(env.Client.Create(ctx, later)).To(Succeed())
		Eventually(out.String).Should(ContainSubstring("Thread/later"))
		stop()
		Eventually(done).Should(Receive(Equal(130)))
	}, SpecTimeout(3*patience))

	It("shows the tree of a thread", func(ctx SpecContext) {
		child := tree(ctx, c.ns, obj)
		got := c.run("tree")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(MatchRegexp(`(?m)^NAME\s+STATUS\s+DETAILS\s+AGE
Thread/hello\s+Running\s+agent helper, 3 messages.*
├─Subagent/audit\s+running\s+auditor, blocking.*
│ └─Thread/audit\s+Pending\s+agent auditor, ReferenceNotFound: no such Agent.*
├─ScheduledEffect/remind\s+Pending\s+reminder, in \d+m.*
└─Pod/sandbox\s+Pending\s+sandbox of pool default.*
$`))
		got = c.run("tree", "thrd_"+strings.ReplaceAll(string(obj.UID), "-", ""))
		Expect(got.out).To(ContainSubstring("Thread/hello"), got.err)
		got = c.run("tree", child)
		Expect(got.out).NotTo(ContainSubstring("Thread/hello"), got.err)
		Expect(got.out).To(ContainSubstring("Thread/audit"))
		Expect(c.run("tree", "absent").err).To(ContainSubstring("not found"))
	})

	It("says that there is no such Webhook, and how many deliveries it sends again", Label("EVT-05"), func(ctx SpecContext) {
		for _, args := range [][]string{{"webhook", "deliveries", "absent"}, {"webhook", "redeliver", "--dead", "--webhook=absent"}} {
			got := c.run(args...)
			Expect(got.code).To(Equal(exitError), args[1])
			Expect(got.err).To(ContainSubstring(`"absent" not found`), args[1])
		}
		Expect(c.run("webhook", "redeliver", "--dead")).To(Equal(outputs{out: "deliveries sent again: 0\n"}))
	})

	It("copies, lists and removes files", func() {
		dir := GinkgoT().TempDir()
		local := filepath.Join(dir, "a.txt")
		Expect(os.WriteFile(local, []byte("text"), 0o600)).To(Succeed())
		Expect(c.run("files", "cp", local, "hello:/data/").out).To(Equal("hello:/data/a.txt written (4 B)\n"))
		Expect(c.run("files", "ls", "hello", "-R").out).To(And(ContainSubstring("/data/ "), MatchRegexp(`(?m)^/data/a.txt\s+4 B\s+text/plain`)))
		Expect(c.run("files", "ls", "hello", "/data/a.txt", "-o", "name").out).To(Equal("/data/a.txt\n"))
		missing := c.run("files", "ls", "hello", "/nowhere")
		Expect(missing.code).To(Equal(exitError))
		Expect(missing.err).To(ContainSubstring("has no folder /nowhere"))
		Expect(c.run("files", "cp", "hello:/data/a.txt", filepath.Join(dir, "b.txt")).err).To(BeEmpty())
		Expect(os.ReadFile(filepath.Join(dir, "b.txt"))).To(BeEquivalentTo("text"))
		Expect(c.run("files", "cp", "hello:/data/a.txt", "-").out).To(Equal("text"))
		Expect(c.run("files", "cp", local, "hello:/two\nlines").err).To(BeEmpty())
		Expect(c.run("files", "ls", "hello").out).To(MatchRegexp(`(?m)^/two\\nlines +4 B `))
		Expect(c.run("files", "cp", local, "hello:/../x").err).To(Equal("error: \"/../x\" leads out of its folder: write it without \"..\"\n"))
		Expect(c.run("import", dir, "--thread=hello").err).To(Equal("error: " + dir + " is a folder: name a file\n"))
		c.stdin = "piped"
		Expect(c.run("files", "cp", "-", "hello:/p").out).To(ContainSubstring("5 B"))
		Expect(c.run("files", "rm", "hello", "/p").out).To(Equal("hello:/p removed\n"))
		got := c.run("files", "cp", "hello:/p", filepath.Join(dir, "p"))
		Expect(got.err).To(ContainSubstring("has no file /p"))
		Expect(filepath.Join(dir, "p")).NotTo(BeAnExistingFile())
		Expect(c.run("files", "cp", "x", "y").err).To(ContainSubstring("THREAD:/path"))
	})

	It("shows what code reports as it comes, and ends it when interrupted", Label("COD-04"), func() {
		var out, errOut lockedBuffer
		ctx, interrupt := context.WithCancel(c.ctx)
		code := make(chan int, 1)
		go func() {
			defer GinkgoRecover()
			streams := genericiooptions.IOStreams{In: strings.NewReader("for (;;);"), Out: &out, ErrOut: &errOut}
			code <- run(ctx, streams, []string{"--kubeconfig", kubeconfig, "-n", c.ns, "code", "hello", "-f", "-"})
		}()
		Eventually(errOut.String).Should(Equal("report: \"on\"\n"))
		Expect(code).NotTo(Receive())
		interrupt()
		Eventually(code).Should(Receive(Equal(130)))
		Eventually(echoes.ended).Should(Receive(MatchError(ContainSubstring("interrupted"))))
	})

	It("runs code", func() {
		file := filepath.Join(GinkgoT().TempDir(), "sum.mjs")
		Expect(os.WriteFile(file, []byte("export default 1"), 0o600)).To(Succeed())
		got := c.run("code", "hello", "-f", file, "--fn", "f", "--arg", "[1]", "--arg", `"x"`)
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(MatchJSON(`{"fn":"f","args":[[1],"x"],"language":"javascript"}`))
		Expect(got.err).To(Equal("warn: careful\n"))
		lib := filepath.Join(filepath.Dir(file), "lib", "a.ts")
		Expect(os.Mkdir(filepath.Dir(lib), 0o700)).To(Succeed())
		Expect(os.WriteFile(lib, []byte("export {}"), 0o600)).To(Succeed())
		got = c.run("run-code", "hello", "-f", file, "--global", "limit=5", "--module", lib, "--memory-limit", "16Mi")
		Expect(got.out).To(MatchJSON(`{"fn":"","args":null,"language":"javascript","limit":5,"modules":{"./lib/a.ts":"export {}"},"memory":16777216}`), got.err)
		for flag, bad := range map[string]string{"--global": "limit", "--memory-limit": "much", "--module": "nowhere.ts"} {
			Expect(c.run("code", "hello", "-f", file, flag, bad).code).To(Equal(1), flag)
		}
		Expect(c.run("code", "hello", "-f", file, "-o", "json").out).To(ContainSubstring(`"careful"`))
		c.stdin = "throw 1"
		got = c.run("code", "hello", "-f", "-")
		Expect(got.code).To(Equal(1))
		Expect(got.err).To(ContainSubstring("error: the code ended as error: Error: no"))
		Expect(c.run("code", "hello", "-f", file, "--arg", "x").err).To(ContainSubstring("not JSON"))
		Expect(c.run("code", "hello").err).To(ContainSubstring("-f FILE"))
	})

	It("calls tools", Label("TOL-01"), func() {
		Expect(c.run("tool", "hello", "add", "--args", `{"a":1}`)).To(Equal(outputs{out: "add({\"a\":1})\n"}))
		Expect(c.run("tool", "hello", "add")).To(Equal(outputs{out: "add({})\n"}))
		Expect(c.run("tool", "hello", "add", "--queue")).To(Equal(outputs{out: "tool/add queued\n"}))
		Expect(c.run("tool", "hello", "bad")).To(Equal(outputs{code: 1, err: "error: the tool failed: no good\n"}))
		Expect(c.run("tool", "hello", "bad", "-o", "json").out).To(ContainSubstring(`"error": "no good"`))
		Expect(c.run("tool", "hello", "add", "--args", "nope").err).To(ContainSubstring("--args=nope is not a JSON object"))
	})

	It("makes requests to endpoints", Label("END-01"), func() {
		got := c.run("endpoint", "hello", "/report/7?format=csv&v=1")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(And(ContainSubstring(`"method":"GET","path":["report","7"],"query":"format=csv\u0026v=1"`)))
		got = c.run("endpoint", "hello", "/report", "-d", `{"n":1}`, "-H", "X-A: 1", "-i")
		Expect(got.out).To(And(HavePrefix("200 OK\n"), ContainSubstring("Skein-Endpoint: echo\n"), ContainSubstring(`"method":"POST"`), ContainSubstring(`"body":"{\"n\":1}"`),
			ContainSubstring(`["content-type","application/json"]`), ContainSubstring(`["x-a","1"]`)), got.err)
		c.stdin = "piped"
		Expect(c.run("endpoint", "hello", "/report", "-X", "put", "-d", "@-").out).To(And(ContainSubstring(`"method":"PUT"`), ContainSubstring(`"body":"piped"`)))
		got = c.run("endpoint", "hello", "/teapot")
		Expect(got.code).To(Equal(1))
		Expect(got.out).To(ContainSubstring("teapot"), "what it answered is shown all the same")
		Expect(got.err).To(ContainSubstring("the endpoint echo answered 418"))
		Expect(c.run("endpoint", "hello", "/none").err).To(ContainSubstring("(NotFound): no endpoint has the path /none"))
		Expect(c.run("endpoint", "hello", "/x", "-X", "GET", "-d", "x").err).To(ContainSubstring("has no body"))
		Expect(c.run("endpoint", "hello", "/x", "-H", "nope").err).To(ContainSubstring("--header=nope"))
		Expect(c.run("endpoint", "hello", "https://elsewhere.example/x").err).To(ContainSubstring("is not a path"))
	})

	It("refuses to notify the parent of a thread without one", Label("SUB-05"), func(ctx SpecContext) {
		child, _, err := env.Thread(ctx, c.ns, "child")
		Expect(err).NotTo(HaveOccurred())
		Expect(c.run("notify", child.Name, "halfway").err).To(ContainSubstring("has no parent"))
		Expect(c.run("status", child.Name)).To(Equal(outputs{}))
		Expect(c.run("status", child.Name, "counting").err).To(ContainSubstring("has no parent"))
	})

	It("emits events", Label("EVT-01"), func(ctx SpecContext) {
		Expect(c.run("emit", "hello", "progress", "--data", `{"step":3}`)).To(Equal(outputs{out: "event/progress emitted\n"}))
		Expect(c.run("emit", "hello", "two words").err).To(ContainSubstring("letters, digits"))
		Expect(c.run("emit", "hello", "x", "--data", "{").err).To(ContainSubstring("--data={ is not JSON"))
		events, err := env.Threads.Store().Events(ctx, st.ID(), 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(events).To(ConsistOf(And(HaveField("Type", "event:progress"), HaveField("Data", MatchJSON(`{"step":3}`)))))
	})

	It("stops and terminates", Label("THR-05"), func() {
		Expect(c.run("stop", "hello").out).To(Equal("thread/hello stopped\n"))
		Expect(c.run("stop", "hello", "-o", "name").out).To(Equal("thread.skein.dev/hello\n"))
		Expect(c.run("stop", "hello", "-o", "yaml")).To(Equal(outputs{code: 1, err: "error: --output=yaml: give name, or leave it out\n"}))
		Expect(c.run("terminate", "hello").out).To(Equal("thread/hello terminated\n"))
		got := c.run("send", "hello", "x")
		Expect(got.code).To(Equal(exitRefused))
		Expect(got.err).To(And(HavePrefix("Error from server (Gone): "), ContainSubstring("terminated")))
	})

	It("says what is wrong in kubectl's manner", func() {
		got := c.run("messages", "absent")
		Expect(got.code).To(Equal(1))
		Expect(got.err).To(Equal("Error from server (NotFound): threads.runtime.skein.dev \"absent\" not found: check the name and the namespace; kubectl get threads lists those that exist\n"))
		Expect(c.run("messages").err).To(ContainSubstring("THREAD is missing"))
		Expect(c.run("send", "hello", "two", "words").err).To(ContainSubstring("quote a text"))
		Expect(c.run("messages", "hello", "-o", "table").err).To(ContainSubstring("give json, yaml, wide or name"))
		Expect(c.run("messages", "hello", "--limit=0").err).To(ContainSubstring("from 1 to 1000"))
		Expect(c.run("messages", "hello", "--nonsense").err).To(ContainSubstring("unknown flag"))

		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "nobody")
		_, err := env.Kubeconfig("nobody", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(c.run("messages", "hello").err).To(And(HavePrefix("Error from server (Forbidden): "), ContainSubstring("skein-conversation-reader")))
	})

	It("shows the part of a tree that the user may list", Label("K8S-04"), func(ctx SpecContext) {
		tree(ctx, c.ns, obj)
		c.kubeconfig = filepath.Join(GinkgoT().TempDir(), "viewer")
		_, err := env.Kubeconfig("viewer", c.kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Allow(ctx, c.ns, "viewer", rbacv1.PolicyRule{
			APIGroups: []string{"skein.dev"}, Resources: []string{"threads", "subagents", "scheduledeffects"}, Verbs: []string{"list"},
		})).To(Succeed())
		got := c.run("tree")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(ContainSubstring("Subagent/audit"))
		Expect(got.err).To(ContainSubstring("you may not list them"))
	})
})

// tree creates a subagent with its thread, an effect and a pod below a thread.
func tree(ctx context.Context, ns string, root *skeinv1.Thread) (child string) {
	GinkgoHelper()
	below := func(name, kind string, uid metav1.Object) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "skein.dev/v1alpha1", Kind: kind, Name: uid.GetName(), UID: uid.GetUID(),
		}}}
	}
	root.Status = skeinv1.ThreadStatus{Phase: "Running", Agent: "helper", Messages: 3}
	Expect(env.Client.Status().Update(ctx, root)).To(Succeed())
	sub := &skeinv1.Subagent{ObjectMeta: below("audit", "Thread", root), Spec: skeinv1.SubagentSpec{
		ParentRef: skeinv1.LocalRef{Name: root.Name}, AgentRef: skeinv1.LocalRef{Name: "auditor"}, Name: "auditor", Blocking: true,
	}}
	Expect(env.Client.Create(ctx, sub)).To(Succeed())
	sub.Status.Entry = &skeinv1.ChildStatus{Reference: "audit", Name: "auditor", Status: "running"}
	Expect(env.Client.Status().Update(ctx, sub)).To(Succeed())
	t := &skeinv1.Thread{ObjectMeta: below("audit", "Subagent", sub), Spec: skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "auditor"}}}
	Expect(env.Client.Create(ctx, t)).To(Succeed())
	t.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "ReferenceNotFound", Message: "no such Agent", LastTransitionTime: metav1.Now()}}
	Expect(env.Client.Status().Update(ctx, t)).To(Succeed())
	e := &skeinv1.ScheduledEffect{ObjectMeta: below("remind", "Thread", root), Spec: skeinv1.ScheduledEffectSpec{
		ThreadRef: &skeinv1.LocalRef{Name: root.Name}, Effect: "reminder", After: &metav1.Duration{Duration: time.Hour},
	}}
	Expect(env.Client.Create(ctx, e)).To(Succeed())
	e.Status = skeinv1.ScheduledEffectStatus{Phase: "Pending", ScheduledAt: time.Now().Add(30 * time.Minute).UnixMicro()}
	Expect(env.Client.Status().Update(ctx, e)).To(Succeed())
	p := &corev1.Pod{ObjectMeta: below("sandbox", "Thread", root), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	p.Labels = map[string]string{skeinv1.LabelThreadID: string(root.UID), skeinv1.LabelPool: "default"}
	Expect(env.Client.Create(ctx, p)).To(Succeed())
	return t.Name
}
