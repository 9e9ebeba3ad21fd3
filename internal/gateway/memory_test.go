package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing/iotest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/webhook"
)

var _ = Describe("The memory of the gateway", Label("K8S-12", "IDS-03"), func() {
	var s *Server
	var budget *membudget.Budget
	BeforeEach(func() {
		budget = membudget.New(8<<20, time.Millisecond)
		s = serverOf(func(g *definitions.Gateway) { g.Limits.PerAddress = 10_000 })
		s.opts.Memory = budget
		other := *s.opts.Gateways.(declared)["ns/chat"]
		other.Namespace = "other"
		s.opts.Gateways.(declared)["other/chat"] = &other
	})

	// hoard takes all that a namespace may have.
	hoard := func(namespace string, leave int64) *membudget.Account {
		a := budget.Open(namespace)
		Expect(a.TryDraw(4<<20 - leave)).To(Succeed())
		return a
	}
	post := func(path string, body io.Reader) (int, string) {
		GinkgoHelper()
		r := httptest.NewRequest(http.MethodPost, path, body)
		r.Header.Set("Content-Type", "application/json")
		got := ask(s, r)
		text, err := io.ReadAll(got.Body)
		Expect(err).NotTo(HaveOccurred())
		return got.StatusCode, string(text)
	}

	It("is drawn for bodies from their namespace, and returned", func() {
		held := hoard("ns", 0)
		for _, path := range []string{"/ns/chat/v1/message", "/ns/chat/v1/chat/completions"} {
			code, text := post(path, strings.NewReader(`{"content": "x"}`))
			Expect(code).To(Equal(429), text)
			Expect(text).To(ContainSubstring("send this again in a moment"))
			Expect(text).NotTo(ContainSubstring("MiB"), "people outside learn nothing of the namespace")
		}
		code, _ := post("/other/chat/v1/message", strings.NewReader(`{}`))
		Expect(code).To(Equal(400), "another namespace has room")
		held.Close()
		code, _ = post("/ns/chat/v1/message", strings.NewReader(`{}`))
		Expect(code).To(Equal(400))
		code, _ = post("/ns/chat/v1/message", io.MultiReader(strings.NewReader(`{`), iotest.ErrReader(errors.New("cut off"))))
		Expect(code).To(Equal(400))
		Expect(budget.Used()).To(BeZero())
	})

	It("is drawn for what a body becomes when it is decoded", func() {
		small := `{"model":"agent","messages":[` + strings.TrimSuffix(strings.Repeat("{},", 50<<10), ",") + `]}`
		code, text := post("/ns/chat/v1/chat/completions", strings.NewReader(small))
		Expect(code).To(Equal(413), text)
		Expect(budget.Used()).To(BeZero())
	})

	Describe("of WebhookReceivers", Label("EVT-05"), func() {
		key := []byte("a key of a receiver that is long enough")
		deliver := func(body string, keys ...[]byte) *http.Response {
			r := httptest.NewRequest(http.MethodPost, "/ns/orders/v1/webhook", strings.NewReader(body))
			webhook.Sign(r.Header, keys, "delivery-1", time.Now(), []byte(body))
			return ask(s, r)
		}
		var made *receives
		BeforeEach(func() {
			made = &receives{budget: budget}
			s.opts.Receivers, s.opts.Received = made, made
			made.receiver = definitions.Receiver{
				Namespace: "ns", Name: "orders", UID: "1", Form: skeinv1.WebhookStandard, Keys: [][]byte{key}, Agent: "agent", MaxBytes: 250_000, PerMinute: 1000,
			}
		})

		It("is drawn for deliveries, forged ones too, and returned", func() {
			held := hoard("ns", 0)
			got := deliver(`{"a":1}`, key)
			Expect(got.StatusCode).To(Equal(429))
			Expect(got.Header.Get("Retry-After")).To(Equal("1"))
			held.Close()
			Expect(deliver(`{"a":1}`, []byte("another key that is just as long")).StatusCode).To(Equal(401))
			Expect(budget.Used()).To(BeZero())
		})

		It("is drawn for the messages that they become", func() {
			body := `"` + strings.Repeat("x", 100<<10) + `"`
			Expect(deliver(body, key).StatusCode).To(Equal(503), "nothing makes its thread here")
			Expect(made.used).To(BeNumerically(">=", 4*len(body)))
			Expect(budget.Used()).To(BeZero())
			held := hoard("ns", 1<<20)
			text := strings.Repeat("x", 150_000)
			Expect(deliver(text, key).StatusCode).To(Equal(429), "each byte of a text may need six")
			held.Close()
			Expect(deliver(text, key).StatusCode).To(Equal(503))
			Expect(budget.Used()).To(BeZero())
		})
	})

	It("is drawn for the pages and the messages of an answer", func(ctx SpecContext) {
		events := &logged{}
		events.add(store.EventMessageCreated, "run", "asked", store.Message{Role: store.RoleUser})
		for range 10 {
			text := strings.Repeat("x", 100<<10)
			events.add(store.EventMessageCreated, "run", "said", store.Message{Role: store.RoleAssistant, Content: &text})
		}
		s.opts.Threads, s.tails = thread.NewService(thread.Options{Store: events}), tailsOf(events)
		follow := func() (*follower, error) {
			work, done := budget.Begin(ctx, "ns")
			defer done()
			f := &follower{server: s, threadID: "t", answer: &Answer{MessageID: "asked"}, shared: s.tails.Follow(work, "t", int64(len(events.events)))}
			defer f.shared.Close()
			err := f.read(work, &wholeSink{})
			events.used = budget.Used()
			return f, err
		}
		f, err := follow()
		Expect(err).NotTo(HaveOccurred())
		Expect(f.answer.Messages).To(HaveLen(10))
		Expect(events.used).To(BeNumerically(">=", 10*2*100<<10), "the messages of an answer are kept until it is whole")
		Expect(budget.Used()).To(BeZero())

		held := hoard("ns", 2<<20)
		_, err = follow()
		Expect(membudget.Refused(err)).To(BeTrue(), "%v", err)
		held.Close()
		Eventually(budget.Used).Should(BeZero(), "the reader that was stopped gives back what it held")
	})

	It("is that of one reader for all who wait in a conversation", Label("EVT-02"), func(ctx SpecContext) {
		events := &logged{}
		s.opts.Threads, s.tails = thread.NewService(thread.Options{Store: events}), tailsOf(events)
		said := func(text string) {
			events.add(store.EventMessageCreated, "run", text, store.Message{Role: store.RoleAssistant, Content: &text})
		}
		events.add(store.EventMessageCreated, "run", "asked", store.Message{Role: store.RoleUser})
		said("one")
		const waiting = 20
		sinks := make([]*reportingSink, waiting)
		for i := range sinks {
			sinks[i] = &reportingSink{told: make(chan string, 10)}
			q := &request{Request: httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), answer: httptest.NewRecorder(), gateway: s.opts.Gateways.(declared)["ns/chat"]}
			go func() {
				defer GinkgoRecover()
				Expect(s.await(q, sinks[i], "t", 0, "asked")).To(Succeed())
			}()
		}
		for _, to := range sinks {
			Eventually(to.told, time.Minute).Should(Receive(Equal("one")))
		}
		reads := events.reads.Load()
		said("two")
		events.add(store.EventRunEnded, "run", "", store.Message{Status: runtimev1.RunSucceeded})
		events.notify()
		for _, to := range sinks {
			Eventually(to.told, time.Minute).Should(Receive(Equal("two")))
			Eventually(to.told, time.Minute).Should(Receive(Equal("the end: one\n\ntwo")))
		}
		Expect(events.reads.Load() - reads).To(BeEquivalentTo(1))
	}, SpecTimeout(2*time.Minute))

	It("hides from clients why a run failed", func() {
		why := `(error: Post "http://models.internal:8080/v1": connection refused)`
		for status, want := range map[store.MessageStatus]string{store.MessageFailed: failedAnswer, store.MessageCompleted: why} {
			m, ok := visibleMessage(&store.Message{Role: store.RoleAssistant, Status: status, Content: &why})
			Expect(ok).To(BeTrue())
			Expect(m.Content).To(Equal(want))
		}
	})

	It("is short when a client waits: the client is told that its message is taken", func(ctx SpecContext) {
		hoard("ns", 0)
		s.opts.Threads, s.tails = thread.NewService(thread.Options{Store: &logged{}}), tailsOf(&logged{})
		work, done := budget.Begin(ctx, "ns")
		defer done()
		w := httptest.NewRecorder()
		q := &request{Request: httptest.NewRequestWithContext(work, http.MethodPost, "/", nil), answer: w, gateway: s.opts.Gateways.(declared)["ns/chat"]}
		Expect(s.await(q, &wholeSink{server: s, request: q}, "t", 0, "asked")).To(Succeed())
		Expect(w.Code).To(Equal(503))
		Expect(w.Body.String()).To(ContainSubstring("the agent works on: GET v1/messages has it later"))
	})
})

// reportingSink reports what it gets of an answer.
type reportingSink struct{ told chan string }

func (*reportingSink) delta(piece) error { return nil }
func (*reportingSink) ping() error       { return nil }

func (t *reportingSink) message(m Message) error {
	t.told <- m.Content
	return nil
}

func (t *reportingSink) end(a *Answer, _ *problem) { t.told <- "the end: " + a.text() }

// receives has one WebhookReceiver, and makes no threads.
type receives struct {
	receiver definitions.Receiver
	budget   *membudget.Budget
	used     int64
}

func (r *receives) Receiver(context.Context, string, string) (*definitions.Receiver, error) {
	return &r.receiver, nil
}

func (r *receives) CreateReceivedThread(context.Context, *definitions.Receiver, string) (string, error) {
	r.used = r.budget.Used()
	return "", errUnavailable
}

// logged is a store that has a log only.
type logged struct {
	store.Store
	used  int64
	reads atomic.Int64

	mu          sync.Mutex
	events      []store.Event
	subscribers []func(store.Notification)
}

func (l *logged) add(kind, run, message string, m store.Message) {
	m.ID = message
	data, err := json.Marshal(m)
	Expect(err).NotTo(HaveOccurred())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, store.Event{Seq: int64(len(l.events) + 1), Type: kind, RunID: run, MessageID: message, Data: data})
}

func (l *logged) SubscribeThread(_ string, fn func(store.Notification)) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers = append(l.subscribers, fn)
	return func() {}
}

func (l *logged) notify() {
	l.mu.Lock()
	all := l.subscribers
	l.mu.Unlock()
	for _, fn := range all {
		fn(store.Notification{})
	}
}

func (l *logged) Events(_ context.Context, _ string, after int64, limit int) ([]store.Event, error) {
	l.reads.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.events[after:]
	return rest[:min(limit, len(rest))], nil
}
