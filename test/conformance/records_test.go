package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// runtimeAs returns the Go client of a user, or of the cluster's administrator when the name is empty.
func runtimeAs(user string) *runtimeclient.Client {
	GinkgoHelper()
	cfg := rest.CopyConfig(cluster.Config)
	if user != "" {
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	c, err := runtimeclient.New(cfg)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// echoing makes a thread that repeats what it is told, and gives it by both clients.
func echoing(ctx context.Context, edit ...func(*skeinv1.ThreadSpec)) (*harness.Thread, *runtimeclient.Thread) {
	GinkgoHelper()
	t := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()}, edit...)
	return t, runtimeAs("").Thread(t.Namespace, t.Name)
}

// send makes a request with headers and gives its body, and whether it was an answer given before.
func send(ctx context.Context, t *harness.Thread, method, sub, body string, headers ...string) (string, error) {
	req := t.Request(method, sub).SetHeader("Content-Type", "application/json").Body([]byte(body)).MaxRetries(0)
	for i := 0; i < len(headers); i += 2 {
		req = req.SetHeader(headers[i], headers[i+1])
	}
	raw, err := req.DoRaw(ctx)
	return string(raw), err
}

// conflictVersion gives the version that a conflict says the thread has.
func conflictVersion(err error) string {
	GinkgoHelper()
	Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	Expect(found).To(BeTrue())
	Expect(cause.Field).To(Equal("v"))
	return cause.Message
}

var _ = Describe("Records of threads", func() {
	It("keep the fields that people and programs set", Label("THR-14"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		record, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(record).To(And(HaveField("Archived", false), HaveField("Draft", ""), HaveField("NextMessageID", int64(1)), HaveField("MainThreadID", ""), HaveField("OriginThreadID", "")))
		say(ctx, raw, 1, "hello")

		title, draft, mode, auto, tokens := "Orders", "dear", "smart", true, int64(4096)
		trees, tags := []json.RawMessage{json.RawMessage(`{"uri":"file:///repo"}`)}, []string{"model:x"}
		record, err = t.Update(ctx, runtimev1.ThreadPatch{Title: &title, Draft: &draft, AgentMode: &mode, AutoSubmitDraft: &auto, MaxTokens: &tokens,
			Workspace: &runtimev1.WorkspacePatch{Trees: &trees, Tags: &tags}})
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			Expect(record.Title).To(Equal("Orders"))
			Expect(record.ThreadFields).To(And(HaveField("Draft", "dear"), HaveField("AutoSubmitDraft", true), HaveField("AgentMode", "smart"),
				HaveField("MaxTokens", int64(4096)), HaveField("NextMessageID", int64(3)), HaveField("Workspace.Tags", tags), HaveField("Workspace.Trees", HaveLen(1))))
			manager.Kill()
			Expect(manager.Start(ctx)).To(Succeed())
			Eventually(ctx, func() (err error) { record, err = t.Get(ctx); return err }).Should(Succeed())
		}
		_, err = send(ctx, raw, http.MethodPatch, "", `{"draft":null,"workspace":{"tags":null}}`)
		Expect(err).NotTo(HaveOccurred())
		record, err = t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(record).To(And(HaveField("Draft", ""), HaveField("AgentMode", "smart"), HaveField("Workspace.Tags", BeEmpty()), HaveField("Workspace.Trees", HaveLen(1))))

		for range 2 { // recorded once per name, with the first arguments
			skill, err := t.ActivateSkill(ctx, "sql", json.RawMessage(`{"db":"orders"}`))
			Expect(err).NotTo(HaveOccurred())
			Expect(skill.Arguments).To(MatchJSON(`{"db":"orders"}`))
		}
		_, err = t.ActivateSkill(ctx, "sql", json.RawMessage(`{"db":"other"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Get(ctx)).To(HaveField("ActivatedSkills", HaveLen(1)))

		for _, body := range []string{`{"maxTokens":-1}`, `{"archived":"yes"}`, `{"nextMessageId":7}`, `{"workspace":{"trees":[1]}}`, `{"title":"` + strings.Repeat("x", 2000) + `"}`} {
			_, err = send(ctx, raw, http.MethodPatch, "", body)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", body, err)
		}
	}, SpecTimeout(3*time.Minute))

	It("say the title that the Thread object says, and no other", Label("THR-14"), func(ctx SpecContext) {
		_, t := echoing(ctx, func(s *skeinv1.ThreadSpec) { s.Title = "Declared" })
		other := "Other"
		_, err := t.Update(ctx, runtimev1.ThreadPatch{Title: &other})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("spec.title")))
		Expect(t.Get(ctx)).To(HaveField("Title", "Declared"))
	}, SpecTimeout(2*time.Minute))

	It("have a version that grows, and refuse a change that has not seen it", Label("THR-11"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		record, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(record.V).To(BeZero())
		draft := "a"
		record, err = t.Update(ctx, runtimev1.ThreadPatch{Draft: &draft, V: &record.V})
		Expect(err).NotTo(HaveOccurred())
		Expect(record.V).To(Equal(int64(1)))
		stale := int64(0)
		draft = "b"
		_, err = t.Update(ctx, runtimev1.ThreadPatch{Draft: &draft, V: &stale})
		Expect(conflictVersion(err)).To(Equal("1"))
		_, err = t.Expecting(0).Inject(ctx, runtimev1.NewMessage{Content: "lost"})
		Expect(conflictVersion(err)).To(Equal("1"))
		_, err = raw.Request(http.MethodPut, "kv/k?v=0").SetHeader("Content-Type", "application/json").Body([]byte("1")).DoRaw(ctx)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		_, err = t.Expecting(1).Inject(ctx, runtimev1.NewMessage{Content: "kept"})
		Expect(err).NotTo(HaveOccurred())
		record, err = t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(record).To(And(HaveField("V", int64(2)), HaveField("Draft", "a"), HaveField("MessageCount", int64(1))))

		// Of many that have seen the same version, one wins.
		var wg sync.WaitGroup
		won := make([]bool, 8)
		for i := range won {
			wg.Go(func() {
				defer GinkgoRecover()
				text := fmt.Sprint(i)
				_, err := t.Update(ctx, runtimev1.ThreadPatch{Draft: &text, V: &record.V})
				won[i] = err == nil
			})
		}
		wg.Wait()
		count := 0
		for _, w := range won {
			if w {
				count++
			}
		}
		Expect(count).To(Equal(1))
	}, SpecTimeout(2*time.Minute))

	It("name no channel of delivery, anywhere", Label("THR-17"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		say(ctx, raw, 1, "hello")
		record, err := raw.Request(http.MethodGet, "").DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		list, err := runtimeAs("").History(ctx, raw.Namespace, runtimeclient.HistoryOptions{})
		Expect(err).NotTo(HaveOccurred())
		history, err := json.Marshal(list)
		Expect(err).NotTo(HaveOccurred())
		crd, err := cluster.Kubectl(ctx, "get", "crd", "threads.skein.dev", "-o", "jsonpath={.spec.versions[*].schema.openAPIV3Schema.properties.spec.properties}")
		Expect(err).NotTo(HaveOccurred())
		for _, text := range []string{string(record), string(history), crd} {
			for _, word := range []string{"channel", "telegram", "slack", "delivery"} {
				Expect(strings.ToLower(text)).NotTo(ContainSubstring(`"`+word), word)
			}
		}
		_, err = t.Inject(ctx, runtimev1.NewMessage{Content: "x"})
		Expect(err).NotTo(HaveOccurred())
		_, err = send(ctx, raw, http.MethodPost, "messages", `{"content":"x","channel":"telegram"}`)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*time.Minute))

	It("fail on what is missing or bad, are empty where nothing is, and show nothing of how they are stored", Label("THR-18"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		nobody := runtimeAs("").Thread(raw.Namespace, "nobody")
		_, err := nobody.Get(ctx)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		_, err = nobody.Messages(ctx, runtimeclient.MessageOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		for _, sub := range []string{"messages?limit=0", "messages?order=up", "messages?nonsense=1", "runs?limit=9999", "files?prefix=/../x"} {
			_, err = raw.Request(http.MethodGet, sub).DoRaw(ctx)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", sub, err)
		}
		_, err = send(ctx, raw, http.MethodPost, "messages", `{`)
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)

		Expect(t.Message(ctx, "none")).To(BeNil())
		Expect(raw.Value(ctx, "none")).To(MatchJSON("null"))
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Messages", BeEmpty()))
		Expect(t.Runs(ctx, runtimeclient.Page{})).To(HaveField("Runs", BeEmpty()))

		say(ctx, raw, 1, "hello")
		Expect(raw.WriteFile(ctx, "/a.txt", "text/plain", []byte("x"))).To(Succeed())
		for _, sub := range []string{"", "messages", "files", "runs", "events?follow=false", "queue"} {
			body, err := raw.Request(http.MethodGet, sub).DoRaw(ctx)
			Expect(err).NotTo(HaveOccurred(), sub)
			for _, detail := range []string{"sqlite", "postgres", "skein.db", manager.Dir, "sha256", "digest", "rowid", "epoch"} {
				Expect(strings.ToLower(string(body))).NotTo(ContainSubstring(strings.ToLower(detail)), sub)
			}
		}
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("Writers of threads", func() {
	It("are one at a time, shut runs out, and lose their writes once they have let go", Label("THR-12"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		lease, err := t.Acquire(ctx, 10*time.Minute)
		Expect(err).NotTo(HaveOccurred())
		_, err = t.Acquire(ctx, time.Minute)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		writer := t.Holding(lease)
		_, err = writer.Inject(ctx, runtimev1.NewMessage{Content: "by the writer"})
		Expect(err).NotTo(HaveOccurred())
		Expect(raw.Say(ctx, "waits for the writer")).To(Succeed())

		manager.Kill() // the lease outlives the process
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := writer.Renew(ctx, 10*time.Minute); return err }).Should(Succeed())
		Consistently(ctx, func() ([]runtimev1.Run, error) { return raw.Runs(ctx) }, "1s").Should(BeEmpty(), "no run starts while somebody writes")

		for range 2 {
			Expect(writer.Release(ctx)).To(Succeed())
		}
		_, err = writer.Inject(ctx, runtimev1.NewMessage{Content: "too late"})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		_, err = writer.Renew(ctx, time.Minute)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(texts(settled(ctx, raw, 1))).To(Equal([]string{"user: by the writer", "user: waits for the writer", "assistant: echo: waits for the writer"}))

		// A holder that sleeps past the end of its lease, while another takes over, writes nothing afterwards.
		var sleeper *runtimev1.Lease
		Eventually(ctx, func() (err error) { sleeper, err = t.Acquire(ctx, time.Second); return err }).Should(Succeed())
		var next *runtimev1.Lease
		Eventually(ctx, func() (err error) { next, err = t.Acquire(ctx, time.Minute); return err }).Should(Succeed())
		Expect(next.Epoch).To(BeNumerically(">", sleeper.Epoch))
		_, err = t.Holding(sleeper).Inject(ctx, runtimev1.NewMessage{Content: "asleep"})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		_, err = t.Holding(next).Inject(ctx, runtimev1.NewMessage{Content: "awake"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Holding(next).Release(ctx)).To(Succeed())
	}, SpecTimeout(3*time.Minute))
})

var _ = Describe("Writes under an idempotency key", func() {
	It("happen once, over repeats, side by side and over a crash", Label("MSG-10"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		const header = runtimev1.HeaderIdempotencyKey
		first, err := send(ctx, raw, http.MethodPost, "messages", `{"content":"once"}`, header, "k1")
		Expect(err).NotTo(HaveOccurred())
		again, err := send(ctx, raw, http.MethodPost, "messages", `{"content":"once"}`, header, "k1")
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(first))
		refused, err := send(ctx, raw, http.MethodPost, "messages", `{"content":"another"}`, header, "k1")
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(refused).To(ContainSubstring("another request"))

		draft := "kept"
		record, err := t.Once("k2").Update(ctx, runtimev1.ThreadPatch{Draft: &draft})
		Expect(err).NotTo(HaveOccurred())
		manager.Kill()
		Expect(manager.Start(ctx)).To(Succeed())
		Eventually(ctx, func() error { _, err := t.Get(ctx); return err }).Should(Succeed())
		_, err = send(ctx, raw, http.MethodPost, "messages", `{"content":"once"}`, header, "k1")
		Expect(err).NotTo(HaveOccurred())
		repeated, err := t.Once("k2").Update(ctx, runtimev1.ThreadPatch{Draft: &draft})
		Expect(err).NotTo(HaveOccurred())
		Expect(repeated.V).To(Equal(record.V), "the answer is the first one, not a new one")

		bodies := make([]string, 10)
		var wg sync.WaitGroup
		for i := range bodies {
			wg.Go(func() {
				defer GinkgoRecover()
				var err error
				bodies[i], err = send(ctx, raw, http.MethodPost, "queue", `{"content":"all at once"}`, header, "k3")
				Expect(err).NotTo(HaveOccurred())
			})
		}
		wg.Wait()
		Expect(bodies).To(HaveEach(Equal(bodies[0])))
		Expect(texts(settled(ctx, raw, 1))).To(Equal([]string{"user: once", "user: all at once", "assistant: echo: all at once"}))
	}, SpecTimeout(3*time.Minute))

	It("happen once wherever the process dies while they come", Label("MSG-10"), func(ctx SpecContext) {
		raw, t := echoing(ctx)
		const writes, kills = 40, 6
		var answered atomic.Int64
		done := make(chan struct{})
		go func() { // the client: repeats each write until it is answered
			defer GinkgoRecover()
			defer close(done)
			for i := range writes {
				Eventually(ctx, func() error {
					_, err := send(ctx, raw, http.MethodPost, "messages", fmt.Sprintf(`{"content":"m%d"}`, i), runtimev1.HeaderIdempotencyKey, fmt.Sprint("w", i))
					return err
				}).WithTimeout(3 * time.Minute).Should(Succeed()) // the machine may take its time for every start
				answered.Add(1)
			}
		}()
		// Each process lives until it has answered some writes, however fast it is, and dies in the middle of the next.
		rng := rand.New(rand.NewPCG(seed(), 11))
		for i := range kills {
			Eventually(ctx, answered.Load).WithTimeout(3 * time.Minute).WithPolling(time.Millisecond).Should(BeNumerically(">=", i*writes/kills+1))
			<-time.After(time.Duration(rng.IntN(10_000)) * time.Microsecond) // the random point, not a wait for anything
			manager.Kill()
			Expect(manager.Start(ctx)).To(Succeed())
		}
		Eventually(ctx, done).WithTimeout(3 * time.Minute).Should(BeClosed())
		page, err := t.Messages(ctx, runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: 1000}})
		Expect(err).NotTo(HaveOccurred())
		var said []string
		for _, m := range page.Messages {
			said = append(said, *m.Content)
		}
		var want []string
		for i := range writes {
			want = append(want, fmt.Sprint("m", i))
		}
		Expect(said).To(Equal(want))
	}, SpecTimeout(6*time.Minute))
})
