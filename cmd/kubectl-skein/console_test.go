package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console"
)

var _ = Describe("kubectl skein console", Label("CON-01"), func() {
	It("serves a page until it is interrupted, with the rights of the kubeconfig and of --as", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, st, err := env.Thread(ctx, ns, "hello")
		Expect(err).NotTo(HaveOccurred())

		browse := func(ctx context.Context, args ...string) (get func(path string) string, address string, client *http.Client, stop func() int) {
			running, interrupt := context.WithCancel(ctx)
			DeferCleanup(interrupt)
			out, errOut, code := &lockedBuffer{}, &lockedBuffer{}, make(chan int, 1)
			go func() {
				code <- run(running, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut},
					append([]string{"--kubeconfig", kubeconfig, "-n", ns, "console"}, args...))
			}()
			Eventually(ctx, out.String).Should(MatchRegexp(`^http://127\.0\.0\.1:\d+/login\?token=\w+\n$`), errOut.String())
			jar, err := cookiejar.New(nil)
			Expect(err).NotTo(HaveOccurred())
			client = &http.Client{Jar: jar}
			address, _, _ = strings.Cut(out.String(), "/login")
			get = func(path string) string {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
				Expect(err).NotTo(HaveOccurred())
				res, err := client.Do(r)
				Expect(err).NotTo(HaveOccurred())
				defer func() { _ = res.Body.Close() }()
				text, err := io.ReadAll(res.Body)
				Expect(err).NotTo(HaveOccurred())
				return string(text)
			}
			Expect(get(strings.TrimSpace(out.String()))).To(ContainSubstring("<title>Skein</title>"))
			return get, address, client, func() int {
				interrupt()
				var got int
				Eventually(ctx, code).Should(Receive(&got))
				return got
			}
		}
		get, address, client, stop := browse(ctx)
		Expect(get(address + "/api/session")).To(And(ContainSubstring(`"namespace":"`+ns+`"`), ContainSubstring(`"user":"admin"`)))
		Expect(get(address + "/api/namespaces")).To(And(ContainSubstring(`"`+ns+`"`), ContainSubstring(`"complete":true`)))
		Expect(get(address + "/api/rights?namespace=" + ns)).To(And(ContainSubstring(`"send":true`), Not(ContainSubstring("missing"))))
		thread := address + "/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/hello"
		Expect(get(thread)).To(ContainSubstring(st.ID()))

		for _, path := range []string{thread + "/observe", thread + "/events", address + "/api/live?namespace=" + ns} {
			conn, _, err := websocket.Dial(ctx, path, &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{"Origin": {address}}})
			Expect(err).NotTo(HaveOccurred(), path)
			defer func() { _ = conn.CloseNow() }()  // it is open while the command ends
			if strings.HasSuffix(path, "/events") { // the thread has none
				continue
			}
			for all := ""; !strings.Contains(all, `"name":"hello"`); {
				_, text, err := conn.Read(ctx)
				Expect(err).NotTo(HaveOccurred())
				all += string(text)
			}
		}
		Expect(stop()).To(Equal(exitInterrupted))

		get, address, _, stop = browse(ctx, "--as=guest", "-A")
		Expect(get(address + "/api/session")).To(And(ContainSubstring(`"namespace":""`), ContainSubstring(`"user":"guest"`)))
		Expect(get(address + "/api/namespaces")).To(MatchJSON(`{"namespaces":["` + ns + `"],"complete":false}`))
		Expect(get(address + "/api/rights?namespace=" + ns)).To(And(ContainSubstring(`"send":false`), ContainSubstring(`"send":"create threads/queue: role skein-conversation-writer"`),
			ContainSubstring(`"approve":"create threads/approvals: role skein-approver"`), ContainSubstring(`"effects":"patch scheduledeffects: role skein-editor"`)))
		Expect(get(address + "/apis/runtime.skein.dev/v1alpha1/namespaces/" + ns + "/threads/hello")).To(ContainSubstring(`"reason":"Forbidden"`))
		Expect(stop()).To(Equal(exitInterrupted))
	}, SpecTimeout(2*patience))

	It("says what is wrong with a port", func(ctx SpecContext) {
		c := command{ctx: ctx, ns: "default"}
		got := c.run("console", "--port=70000")
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring("give a number from 0 to 65535"))
		l, err := console.Listen(0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(l.Close)
		_, port, _ := strings.Cut(l.Addr().String(), ":")
		got = c.run("console", "--port="+port)
		Expect(got.code).To(Equal(exitError))
		Expect(got.err).To(ContainSubstring("choose another one with --port"))
	})

	It("lists threads as kubectl skein list does", func() {
		at := metav1.NewTime(time.UnixMilli(1_800_000_000_000))
		t := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: "orders", UID: "id", CreationTimestamp: at, OwnerReferences: []metav1.OwnerReference{{Kind: "Subagent", Name: "helper-1"}},
		}}
		t.Spec.AgentRef.Name, t.Spec.UserID, t.Spec.Title = "analyst", "ada", "Orders"
		t.Status = skeinv1.ThreadStatus{
			Phase: "Waiting", Messages: 3, QueuedMessages: 1, Parent: "main", LastRun: &skeinv1.RunStatus{Outcome: skeinv1.RunFailed, Reason: "ModelFailed"},
			Conditions: []metav1.Condition{{Type: skeinv1.ConditionExecuting, Status: metav1.ConditionTrue, Reason: skeinv1.ReasonWaitingForApproval, Message: "pay waits"}},
		}
		Expect(threadRow(t)).To(Equal(console.ThreadRow{
			Namespace: "demo", Name: "orders", ID: "id", Title: "Orders", Agent: "analyst", User: "ada", State: "Waiting", Outcome: "Failed", Reason: "ModelFailed", Messages: 3, Queued: 1,
			Parent: "main", Reference: "helper-1", Active: 1_800_000_000_000, Created: 1_800_000_000_000,
			Waits: &console.Wait{Reason: skeinv1.ReasonWaitingForApproval, Message: "pay waits", NeedsPerson: true},
		}))
	})

	It("lists effects as kubectl skein effect list does", func() {
		at := metav1.NewTime(time.UnixMilli(1_800_000_000_000))
		e := &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "daily", UID: "uid", CreationTimestamp: at}}
		e.Spec = skeinv1.ScheduledEffectSpec{ThreadRef: &skeinv1.LocalRef{Name: "orders"}, Message: &skeinv1.EffectMessage{}, Schedules: []string{"@daily"}, Suspend: true}
		e.Status = skeinv1.ScheduledEffectStatus{
			Phase: "Suspended", NextTime: &at, LastOutcome: "Failed", Active: 2,
			Conditions: []metav1.Condition{{Type: skeinv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ReferenceNotFound", Message: "no thread"}},
		}
		Expect(effectRow(e)).To(Equal(console.EffectRow{
			Namespace: "demo", Name: "daily", UID: "uid", Thread: "orders", Does: "sends a message", Schedule: "@daily", Next: 1_800_000_000_000, Outcome: "Failed", Phase: "Suspended", Suspended: true,
			Active: 2, Reason: "ReferenceNotFound", Message: "no thread", Created: 1_800_000_000_000,
		}))
		e.Status.Conditions, e.Status.CompletionTime = nil, &at
		Expect(effectRow(e)).To(And(HaveField("Ready", true), HaveField("Ended", true)))
	})

	It("runs, suspends and resumes effects of the namespace that the page shows", Label("CON-03"), func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		flags := genericclioptions.NewConfigFlags(true)
		flags.KubeConfig = &kubeconfig
		p := &plugin{flags: flags}
		cfg, _, err := p.config()
		Expect(err).NotTo(HaveOccurred())
		c, err := threadObjects(cfg)
		Expect(err).NotTo(HaveOccurred())
		e := &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "daily"}}
		e.Spec = skeinv1.ScheduledEffectSpec{Effect: "remind", Schedules: []string{"@daily"}}
		Expect(c.Create(ctx, e)).To(Succeed())
		o, err := p.consoleOptions(false)
		Expect(err).NotTo(HaveOccurred())

		daily := console.Object{Namespace: ns, Name: "daily", UID: e.UID}
		changed, message, err := o.SuspendEffect(ctx, daily, true)
		Expect([]any{changed, message, err}).To(Equal([]any{true, "", nil}))
		changed, _, err = o.SuspendEffect(ctx, daily, true)
		Expect([]any{changed, err}).To(Equal([]any{false, nil}))
		changed, _, err = o.SuspendEffect(ctx, daily, false)
		Expect([]any{changed, err}).To(Equal([]any{true, nil}))
		_, _, err = o.SuspendEffect(ctx, console.Object{Namespace: ns, Name: "missing", UID: e.UID}, true)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		other := console.Object{Namespace: ns, Name: "daily", UID: "another"}
		_, _, err = o.SuspendEffect(ctx, other, true)
		Expect(err).To(MatchError(ContainSubstring("another one has its name now")))
		_, err = o.RunEffect(ctx, other, "press-1")
		Expect(err).To(MatchError(ContainSubstring("another one has its name now")))
		_, err = o.RunEffect(ctx, daily, "a/b")
		Expect(err).To(MatchError(ContainSubstring("idempotency-key")))

		// answer is the manager: it answers the request that waits.
		answer := func(of func(request string) skeinv1.EffectRequest) {
			defer GinkgoRecover()
			Eventually(ctx, func(g Gomega) {
				_, now, err := p.in(ns).effect(ctx, "daily")
				g.Expect(err).NotTo(HaveOccurred())
				request := now.Annotations[skeinv1.AnnotationRunAt]
				g.Expect(request).NotTo(BeEmpty())
				now.Status.Requests = []skeinv1.EffectRequest{of(request)}
				g.Expect(c.Status().Update(ctx, now)).To(Succeed())
			}).Should(Succeed())
		}
		due := metav1.NewMicroTime(time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC))
		go answer(func(request string) skeinv1.EffectRequest {
			return skeinv1.EffectRequest{Request: request, AnsweredAt: metav1.Now(), Results: []skeinv1.EffectRequestResult{{Time: due, Until: due, Count: 1, Outcome: skeinv1.RequestFired}}}
		})
		lines, err := o.RunEffect(ctx, daily, "press-2")
		Expect(err).NotTo(HaveOccurred())
		Expect(lines).To(Equal([]string{"2027-01-31T09:00:00Z: fires"}))

		_, now, err := p.in(ns).effect(ctx, "daily")
		Expect(err).NotTo(HaveOccurred())
		Expect(mergeEffect(ctx, c, now, map[string]any{"metadata": map[string]any{"annotations": map[string]any{skeinv1.AnnotationRunAt: nil}}})).To(Succeed())
		go answer(func(request string) skeinv1.EffectRequest {
			return skeinv1.EffectRequest{Request: request, AnsweredAt: metav1.Now(), Refused: "it has ended"}
		})
		_, err = o.RunEffect(ctx, daily, "press-3")
		var refusal *console.Error
		Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
		Expect(refusal.Code).To(Equal(http.StatusUnprocessableEntity))
		Expect(refusal.Error()).To(Equal("scheduledeffect/daily refused the request: it has ended"))
		_, err = o.RunEffect(ctx, console.Object{Namespace: ns, Name: "missing", UID: e.UID}, "press-9")
		Expect(errors.As(err, &refusal)).To(BeFalse())
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*patience))

	It("passes a single-use token to the program that opens a browser", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		asked := filepath.Join(dir, "asked")
		Expect(os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\necho \"$1\" > "+asked+"\nexit 3\n"), 0o700)).To(Succeed())
		GinkgoT().Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		running, interrupt := context.WithCancel(ctx)
		DeferCleanup(interrupt)
		out, errOut, code := &lockedBuffer{}, &lockedBuffer{}, make(chan int, 1)
		go func() {
			code <- run(running, genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}, []string{"--kubeconfig", kubeconfig, "console", "--open"})
		}()
		var address []byte
		Eventually(ctx, func() (err error) { address, err = os.ReadFile(asked); return err }).Should(Succeed())
		Eventually(ctx, errOut.String).Should(ContainSubstring("No browser could be opened: exit status 3"))
		printed := strings.TrimSpace(out.String())
		once := strings.TrimSpace(string(address))
		Expect(once).To(HavePrefix(strings.Split(printed, "=")[0]))
		Expect(once).NotTo(Equal(printed))
		for _, want := range []int{http.StatusSeeOther, http.StatusForbidden} {
			c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, once, http.NoBody)
			Expect(err).NotTo(HaveOccurred())
			res, err := c.Do(r)
			Expect(err).NotTo(HaveOccurred())
			Expect(res.Body.Close()).To(Succeed())
			Expect(res.StatusCode).To(Equal(want))
		}
		interrupt()
		Eventually(ctx, code).Should(Receive(Equal(exitInterrupted)))
	})
})
