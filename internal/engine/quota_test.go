package engine_test

import (
	"encoding/json"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// limited are quotas of the namespace of tests, which can be changed.
type limited struct {
	mu   sync.Mutex
	have store.Quotas
}

func (l *limited) set(r store.QuotaResource, hard int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.have = store.Quotas{r: {Hard: hard, By: `ThreadQuota "team"`}}
}

func (l *limited) of(namespace string) store.Quotas {
	l.mu.Lock()
	defer l.mu.Unlock()
	if namespace == "other" {
		return nil
	}
	return l.have
}

var _ = Describe("Quotas of a namespace", Label("K8S-11"), func() {
	It("bound the runs under way on two replicas together; the others wait, say so and follow", func(ctx SpecContext) {
		const many, most = 20, 3
		w := newWorld()
		quotas := &limited{}
		quotas.set(store.QuotaRunningThreads, most)
		w.Store.LimitNamespaces(quotas.of)
		var mu sync.Mutex
		running, highest := 0, 0
		answer := make(chan struct{})
		faults := func(point string) {
			switch point {
			case "model.before":
				mu.Lock()
				running++
				highest = max(highest, running)
				mu.Unlock()
				<-answer
			case "model.after":
				mu.Lock()
				running--
				mu.Unlock()
			}
		}
		w.Definitions.Put("echo", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
		var ids []string
		for range many {
			ids = append(ids, makeThread(ctx, w, "echo"))
		}
		apart := makeThread(ctx, w, "echo", func(n *thread.NewThread) { n.Namespace = "other" })
		everywhere := &tenants{Definitions: w.Definitions, hold: make(chan struct{})}
		close(everywhere.hold)
		release := sync.OnceFunc(func() { close(answer) })
		for _, owner := range []string{"a", "b"} {
			start(w, func(o *engine.Options) {
				o.Owner, o.Quotas, o.Faults, o.Definitions = owner, quotas.of, faults, everywhere
			})
		}
		DeferCleanup(release)
		for _, id := range append(ids, apart) {
			send(ctx, w, id, "hello")
		}
		under := func() int {
			mu.Lock()
			defer mu.Unlock()
			return running
		}
		waiting := func() (n int) {
			for _, id := range ids {
				if t, err := w.Store.Thread(ctx, id); err == nil && t.Waits != "" {
					Expect(t.Waits).To(And(ContainSubstring(`ThreadQuota "team"`), ContainSubstring("3 threads that run at once")))
					n++
				}
			}
			return n
		}
		Eventually(under).WithContext(ctx).Should(Equal(most+1), "those of the quota, and the other namespace's")
		Eventually(waiting).WithContext(ctx).Should(Equal(many - most))
		release()
		for _, id := range append(ids, apart) {
			Expect(rest(ctx, w, id)).To(HaveField("Status", store.RunSucceeded))
		}
		Expect(highest).To(BeNumerically("<=", most+1))
		Eventually(waiting).WithContext(ctx).Should(BeZero())
	}, NodeTimeout(manyPlays))

	It("end a run under way with a reason once the day's tokens are used up, and let the next one wait", func(ctx SpecContext) {
		w := newWorld()
		w.Models = spender{}
		quotas := &limited{}
		quotas.set(store.QuotaTokens, 250)
		w.Store.LimitNamespaces(quotas.of)
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinKV))
		start(w, func(o *engine.Options) { o.Quotas = quotas.of })
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		r := rest(ctx, w, id)
		Expect(r).To(And(HaveField("Status", store.RunFailed), HaveField("Reason", skeinv1.ReasonQuotaExceeded), HaveField("Steps", 3)))
		Expect(r.Message).To(ContainSubstring("wait until midnight UTC"))
		send(ctx, w, id, "again")
		Eventually(func() string { t, _ := w.Store.Thread(ctx, id); return t.Waits }).WithContext(ctx).Should(ContainSubstring("tokens a day"))
		Expect(w.Store.Inbox(ctx, id)).To(HaveLen(1), "the message is not lost")
		quotas.set(store.QuotaTokens, 500)
		Eventually(func() int { rs, _ := w.Store.Runs(ctx, id, 0, 0); return len(rs) }).WithContext(ctx).Should(Equal(2))
		Expect(rest(ctx, w, id)).To(HaveField("Steps", 2), "300 were used before")
	})

	It("let no run begin once the bytes of messages are used up, keep what waits, and cut no run short", func(ctx SpecContext) {
		w := newWorld()
		w.Models = spender{}
		quotas := &limited{}
		quotas.set(store.QuotaMessageBytes, 1)
		w.Store.LimitNamespaces(quotas.of)
		w.Definitions.Put("agent", enginetest.Builtin(skeinv1.BuiltinKV), func(a *definition.Agent) { a.Spec.Limits = &skeinv1.RunLimits{MaxTokens: ptr.To[int64](250)} })
		start(w, func(o *engine.Options) { o.Quotas = quotas.of })
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "go")
		Expect(rest(ctx, w, id)).To(And(HaveField("Reason", skeinv1.ReasonMaxTokensReached), HaveField("Steps", 3)), "it goes on to its own limit")
		said, err := w.Messages(ctx, id)
		Expect(err).NotTo(HaveOccurred())

		By("refusing a message from outside, and keeping one that the system sends")
		Expect(w.Send(ctx, id, "again")).To(MatchError(ContainSubstring(`its quota of 1 bytes of messages (ThreadQuota "team"): delete messages or Threads`)))
		payload, err := json.Marshal(store.Message{ID: "waits", Role: store.RoleUser, Content: ptr.To("again")})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Store.Apply(ctx, id, nil, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxMessage, Payload: payload}})).To(Succeed())
		Eventually(func() string { t, _ := w.Store.Thread(ctx, id); return t.Waits }).WithContext(ctx).Should(ContainSubstring("bytes of messages"))
		Expect(w.Store.Inbox(ctx, id)).To(HaveLen(1), "the message is not lost")
		Expect(w.Messages(ctx, id)).To(Equal(said))

		By("making room, by which the run begins")
		Expect(w.Store.Apply(ctx, id, nil, &store.Truncate{Index: -1})).To(Succeed())
		Eventually(func() int { rs, _ := w.Store.Runs(ctx, id, 0, 0); return len(rs) }).WithContext(ctx).Should(Equal(2))
		Expect(rest(ctx, w, id)).To(HaveField("Steps", 3))
	})
})
