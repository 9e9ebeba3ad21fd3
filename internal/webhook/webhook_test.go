package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/outbound"
)

func TestWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "Webhooks")
}

var key = []byte("a key of more than sixteen bytes")

var _ = Describe("signatures", Label("EVT-05"), func() {
	now := time.Unix(1_700_000_000, 0)

	It("are those of the specification's example", func() {
		secret, err := Key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		Expect(err).NotTo(HaveOccurred())
		h := http.Header{}
		Sign(h, [][]byte{secret}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
		Expect(h.Get(HeaderSignature)).To(Equal("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="))
	})

	It("verify with any of the keys, and with nothing changed", func() {
		body := []byte(`{"a":1}`)
		signed := func() http.Header {
			h := http.Header{}
			Sign(h, [][]byte{[]byte("another key, an older one"), key}, "msg_1", now, body)
			return h
		}
		id, err := Verify(signed(), [][]byte{key}, now.Add(Tolerance), body)
		Expect(err).NotTo(HaveOccurred())
		Expect(id).To(Equal("msg_1"))
		for name, c := range map[string]struct {
			change func(http.Header)
			want   error
		}{
			"no id":              {func(h http.Header) { h.Del(HeaderID) }, ErrNoID},
			"two ids":            {func(h http.Header) { h.Add(HeaderID, "msg_2") }, ErrNoID},
			"a long id":          {func(h http.Header) { h.Set(HeaderID, strings.Repeat("x", 201)) }, ErrNoID},
			"an id with a space": {func(h http.Header) { h.Set(HeaderID, "msg 1") }, ErrNoID},
			"another id":         {func(h http.Header) { h.Set(HeaderID, "msg_2") }, ErrBadSignature},
			"no time":            {func(h http.Header) { h.Del(HeaderTimestamp) }, ErrNoTime},
			"no number":          {func(h http.Header) { h.Set(HeaderTimestamp, "now") }, ErrNoTime},
			"another time":       {func(h http.Header) { h.Set(HeaderTimestamp, "1700000001") }, ErrBadSignature},
			"no signature":       {func(h http.Header) { h.Del(HeaderSignature) }, ErrNoSignature},
			"of another version": {func(h http.Header) { h.Set(HeaderSignature, strings.ReplaceAll(h.Get(HeaderSignature), "v1,", "v2,")) }, ErrBadSignature},
			"truncated":          {func(h http.Header) { h.Set(HeaderSignature, h.Get(HeaderSignature)[:20]) }, ErrBadSignature},
			"behind many":        {func(h http.Header) { h.Set(HeaderSignature, strings.Repeat("v1,eA== ", 10)+h.Get(HeaderSignature)) }, ErrBadSignature},
		} {
			h := signed()
			c.change(h)
			_, err := Verify(h, [][]byte{key}, now, body)
			Expect(err).To(MatchError(c.want), name)
		}
		for _, at := range []time.Time{now.Add(Tolerance + time.Second), now.Add(-Tolerance - time.Second)} {
			_, err := Verify(signed(), [][]byte{key}, at, body)
			Expect(err).To(MatchError(ErrOld))
		}
		_, err = Verify(signed(), [][]byte{key}, now, []byte(`{"a":2}`))
		Expect(err).To(MatchError(ErrBadSignature))
	})

	It("of GitHub are those of its documentation", func() {
		h := http.Header{}
		h.Set(HeaderGitHubID, "72d3162e-cc78-11e3-81ab-4c9367dc0958")
		h.Set(HeaderGitHubSignature, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
		keys := [][]byte{[]byte("It's a Secret to Everybody")}
		id, err := VerifyGitHub(h, keys, []byte("Hello, World!"))
		Expect(err).NotTo(HaveOccurred())
		Expect(id).To(Equal("72d3162e-cc78-11e3-81ab-4c9367dc0958"))
		_, err = VerifyGitHub(h, keys, []byte("Hello, World?"))
		Expect(err).To(MatchError(ErrBadSignature))
		h.Set(HeaderGitHubSignature, "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
		_, err = VerifyGitHub(h, keys, []byte("Hello, World!"))
		Expect(err).To(MatchError(ErrBadSignature))
	})

	It("refuse keys that are short or not base64", func() {
		for _, text := range []string{"short", "whsec_c2hvcnQ=", "whsec_not base64 at all, but long"} {
			_, err := Key(text)
			Expect(err).To(HaveOccurred(), text)
		}
	})
})

// outbox is a store that has deliveries only.
type outbox struct {
	store.Store

	mu       sync.Mutex
	pending  []store.Delivery
	ends     []store.DeliveryEnd
	notify   func(store.Notification)
	released bool
}

func (o *outbox) Subscribe(fn func(store.Notification)) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notify = fn
	return func() {}
}

func (o *outbox) NextDelivery(context.Context) (time.Duration, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return 0, len(o.pending) > 0, nil
}

func (o *outbox) ClaimDeliveries(_ context.Context, _ string, _ time.Duration, room store.DeliveryCapacity) (claimed []store.Delivery, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(room.Free, max(0, room.Each-room.Busy["w"]), len(o.pending))
	claimed, o.pending = o.pending[:n], o.pending[n:]
	return claimed, nil
}

func (o *outbox) FinishDelivery(_ context.Context, end store.DeliveryEnd) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ends = append(o.ends, end)
	return nil
}

func (o *outbox) ReleaseDeliveries(context.Context, string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.released = true
	return nil
}

func (o *outbox) PruneDeliveries(context.Context, time.Duration, time.Duration) (int64, error) {
	return 0, nil
}

func (o *outbox) ended() []store.DeliveryEnd {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]store.DeliveryEnd{}, o.ends...)
}

// patientOutbox says that an end is about to be recorded, and records it once the sender was stopped.
type patientOutbox struct {
	outbox
	finishing, stopped chan struct{}
}

func (o *patientOutbox) FinishDelivery(ctx context.Context, end store.DeliveryEnd) error {
	close(o.finishing)
	<-o.stopped
	if err := ctx.Err(); err != nil {
		return err
	}
	return o.outbox.FinishDelivery(ctx, end)
}

// fullOutbox has a delivery that is due, for which there is no room.
type fullOutbox struct {
	outbox
	looks atomic.Int64
}

func (*fullOutbox) NextDelivery(context.Context) (time.Duration, bool, error) { return 0, true, nil }

func (o *fullOutbox) ClaimDeliveries(context.Context, string, time.Duration, store.DeliveryCapacity) ([]store.Delivery, error) {
	o.looks.Add(1)
	return nil, nil
}

type oneTarget struct {
	target *Target
	err    error
}

func (t oneTarget) Find(context.Context, string, string, string) (*Target, error) {
	return t.target, t.err
}

var _ = Describe("the sender", Label("EVT-05"), func() {
	var elsewhere string // where to send to instead of the server
	BeforeEach(func() { elsewhere = "" })
	// send runs a sender over a delivery, and returns how its attempt ended.
	send := func(ctx context.Context, server http.HandlerFunc, private string, attempts int, failing error) store.DeliveryEnd {
		GinkgoHelper()
		s := httptest.NewServer(server)
		defer s.Close()
		u, err := url.Parse(cmp.Or(elsewhere, s.URL))
		Expect(err).NotTo(HaveOccurred())
		var open []outbound.Host
		if private != "" {
			open, err = outbound.ParseHosts([]string{private})
			Expect(err).NotTo(HaveOccurred())
		}
		o := &outbox{pending: []store.Delivery{{ID: "w.1", WebhookID: "w", Namespace: "ns", Event: "run.ended", ThreadID: "t", Data: json.RawMessage(`{}`), Attempts: attempts, Epoch: 1}}}
		network := outbound.New(outbound.Policy{Private: open})
		defer network.Close()
		sender := NewSender(Options{
			Store: o, Targets: oneTarget{&Target{URL: u, Keys: [][]byte{key}, MaxAttempts: 3}, failing}, Network: network,
			Clock: clocktesting.NewFakeClock(time.Now()), Log: logr.Discard(), Owner: "a",
		})
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- sender.Start(ctx) }()
		Eventually(o.ended).Should(HaveLen(1))
		cancel()
		Eventually(done).Should(Receive(BeNil()))
		Expect(o.released).To(BeTrue())
		return o.ended()[0]
	}
	answer := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
		}
	}

	It("delivers, retries with growing waits, and gives up", func(ctx SpecContext) {
		Expect(send(ctx, answer(204), "127.0.0.1", 1, nil)).To(And(HaveField("Status", store.DeliveryDelivered), HaveField("Code", 204)))
		again := send(ctx, answer(500), "127.0.0.1", 2, nil)
		Expect(again).To(And(HaveField("Status", store.DeliveryPending), HaveField("Error", ContainSubstring("500"))))
		Expect(again.RetryAfter).To(BeNumerically("~", 20*time.Second, 5*time.Second))
		Expect(send(ctx, answer(500), "127.0.0.1", 3, nil)).To(HaveField("Status", store.DeliveryDead))
		Expect(send(ctx, answer(410), "127.0.0.1", 1, nil)).To(HaveField("Status", store.DeliveryDead), "the server wants no more")
		Expect(send(ctx, answer(429, "Retry-After", "3600"), "127.0.0.1", 1, nil)).To(HaveField("RetryAfter", time.Hour))
		Expect(send(ctx, answer(302, "Location", "http://169.254.169.254/"), "127.0.0.1", 1, nil)).To(HaveField("Code", 302), "it follows no redirects")
		Expect(send(ctx, answer(204), "127.0.0.1", 99, errors.New("the Secret is missing"))).To(And(HaveField("Status", store.DeliveryPending), HaveField("Error", "the Secret is missing")))
	}, SpecTimeout(2*time.Minute))

	It("counts what became of its attempts", Label("K8S-06"), func(ctx SpecContext) {
		counted := func(status store.DeliveryStatus) float64 {
			return testutil.ToFloat64(sent.WithLabelValues("run.ended", string(status)))
		}
		for status, code := range map[store.DeliveryStatus]int{store.DeliveryDelivered: 204, store.DeliveryPending: 500, store.DeliveryDead: 410} {
			before := counted(status)
			send(ctx, answer(code), "127.0.0.1", 1, nil)
			Expect(counted(status)).To(Equal(before+1), string(status))
		}
	}, SpecTimeout(2*time.Minute))

	It("reaches public addresses only, unless an administrator opened others", func(ctx SpecContext) {
		called := false
		end := send(ctx, func(http.ResponseWriter, *http.Request) { called = true }, "", 1, nil)
		Expect(end).To(And(HaveField("Status", store.DeliveryDead), HaveField("Error", ContainSubstring("no webhook may reach: a loopback"))), "no attempt can succeed")
		Expect(called).To(BeFalse())
		elsewhere = "http://10.0.0.1"
		Expect(send(ctx, answer(204), "", 1, nil)).To(And(HaveField("Status", store.DeliveryPending), HaveField("Error", ContainSubstring("not public"))), "the namespace may open it")
	}, SpecTimeout(2*time.Minute))

	It("records what arrived also when it is stopped meanwhile, so that it is not sent again", func(ctx SpecContext) {
		server := httptest.NewServer(answer(204))
		defer server.Close()
		u, err := url.Parse(server.URL)
		Expect(err).NotTo(HaveOccurred())
		open, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		network := outbound.New(outbound.Policy{Private: open})
		defer network.Close()
		o := &patientOutbox{finishing: make(chan struct{}), stopped: make(chan struct{})}
		o.pending = []store.Delivery{{ID: "w.1", WebhookID: "w", Namespace: "ns", Event: "run.ended", Data: json.RawMessage(`{}`), Attempts: 1, Epoch: 1}}
		sender := NewSender(Options{
			Store: o, Targets: oneTarget{&Target{URL: u, Keys: [][]byte{key}, MaxAttempts: 3}, nil}, Network: network,
			Clock: clocktesting.NewFakeClock(time.Now()), Log: logr.Discard(), Owner: "a",
		})
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- sender.Start(running) }()
		Eventually(o.finishing).Should(BeClosed())
		stop()
		close(o.stopped)
		Eventually(done).Should(Receive(BeNil()))
		Expect(o.ended()).To(ConsistOf(HaveField("Status", store.DeliveryDelivered)))
	}, SpecTimeout(2*time.Minute))

	It("looks again soon while what is due finds no room, because something else may become due that does", func(ctx SpecContext) {
		o := &fullOutbox{}
		clock := clocktesting.NewFakeClock(time.Now())
		sender := NewSender(Options{Store: o, Clock: clock, Log: logr.Discard(), Owner: "a"})
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- sender.Start(running) }()
		for looks := int64(1); looks <= 3; looks++ {
			Eventually(o.looks.Load).Should(Equal(looks))
			Eventually(clock.HasWaiters).Should(BeTrue())
			clock.Step(claimAgain)
		}
		cancel()
		Eventually(done).Should(Receive(BeNil()))
	})

	It("lets a request that is under way finish when it is stopped, so that it is sent once", func(ctx SpecContext) {
		came, goOn := make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(came)
			<-goOn
		}))
		defer server.Close()
		u, err := url.Parse(server.URL)
		Expect(err).NotTo(HaveOccurred())
		open, err := outbound.ParseHosts([]string{"127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		network := outbound.New(outbound.Policy{Private: open})
		defer network.Close()
		o := &outbox{pending: []store.Delivery{{ID: "w.1", WebhookID: "w", Namespace: "ns", Event: "run.ended", Data: json.RawMessage(`{}`), Attempts: 1, Epoch: 1}}}
		sender := NewSender(Options{
			Store: o, Targets: oneTarget{&Target{URL: u, Keys: [][]byte{key}, MaxAttempts: 3}, nil}, Network: network,
			Clock: clocktesting.NewFakeClock(time.Now()), Log: logr.Discard(), Owner: "a",
		})
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- sender.Start(running) }()
		Eventually(came).Should(BeClosed())
		stop()
		close(goOn)
		Eventually(done).Should(Receive(BeNil()))
		Expect(o.ended()).To(ConsistOf(And(HaveField("Status", store.DeliveryDelivered), HaveField("Code", 200))))
		Expect(o.released).To(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("waits longer after each attempt, up to six hours", func() {
		last := time.Duration(0)
		for attempts := 1; attempts < 20; attempts++ {
			wait := backoff(attempts)
			Expect(wait).To(BeNumerically("<", longestWait*5/4))
			if attempts < 6 {
				Expect(wait).To(BeNumerically(">", last))
			}
			last = wait
		}
	})
})
