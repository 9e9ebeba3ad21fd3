package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = DescribeTable("A delivery that is not taken is refused in words for its sender", Label("EVT-05"), func(ctx SpecContext, err error, code int, says string) {
	p := deliveryProblem(ctx, fmt.Errorf("queue: %w", err))
	Expect(p.status).To(Equal(code))
	Expect(p.message).To(And(ContainSubstring(says), Not(ContainSubstring("agent")), Not(ContainSubstring("conversation")), Not(ContainSubstring("v1/"))))
},
	Entry("while the agent cannot be reached", errUnavailable, 503, "send it again later"),
	Entry("while the store is away", store.ErrUnavailable, 503, "send it again later"),
	Entry("while the thread changes", store.ErrConflict, 503, "send it again later"),
	Entry("when the thread has ended", store.ErrTerminated, 410, "name another one in spec.threadRef"),
	Entry("when too many messages wait", store.ErrQueueFull, 429, "send it again later"),
	Entry("when the message may not be so", &thread.InvalidError{}, 400, "does not take this delivery"),
	Entry("with the text of its own", errUsedID, 409, "another body"),
)

// receivers are the WebhookReceivers of a test, by name.
type receivers map[string]*definitions.Receiver

func (rs receivers) Receiver(_ context.Context, _, name string) (*definitions.Receiver, error) {
	return rs[name], nil
}

var _ = Describe("A WebhookReceiver", Label("EVT-05"), func() {
	const key, most = "a key of 32 bytes, or about that", 12
	// post returns the status of a delivery; key is that of its signature.
	post := func(s *Server, address, key string) int {
		const body = `{"ref": "main"}`
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(body))
		r := httptest.NewRequest(http.MethodPost, "/ns/github/v1/webhook", strings.NewReader(body))
		r.Header.Set("X-GitHub-Delivery", "72d3162e")
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		return ask(s, from(address, r)).StatusCode
	}
	server := func() *Server {
		s := serverOf(nil)
		s.opts.Receivers = receivers{"github": {
			Namespace: "ns", Name: "github", UID: "u", Form: skeinv1.WebhookGitHub, Keys: [][]byte{[]byte(key)}, Thread: "none", MaxBytes: 1000, PerMinute: most,
		}}
		return s
	}

	It("takes what its sender signs, however many forged deliveries come from elsewhere", func() {
		s := server()
		var forged []int
		for i := range 3 * most {
			forged = append(forged, post(s, fmt.Sprintf("192.0.2.%d:1", i%2), "another key"))
		}
		Expect(forged).To(HaveEach(BeElementOf(http.StatusUnauthorized, http.StatusTooManyRequests)))
		Expect(forged).To(ContainElement(http.StatusTooManyRequests), "an address has a rate of its own")
		for i := range most {
			Expect(post(s, "198.51.100.1:1", key)).To(Equal(http.StatusServiceUnavailable), "delivery %d is taken: only its thread does not exist", i)
		}
	})

	It("takes a bounded number of deliveries, from all addresses together", func() {
		s := server()
		for i := range most {
			Expect(post(s, fmt.Sprintf("192.0.2.%d:1", i), key)).To(Equal(http.StatusServiceUnavailable))
		}
		Expect(post(s, "198.51.100.1:1", key)).To(Equal(http.StatusTooManyRequests))
	})
})
