package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/auth/reviewtest"
)

// answer is what a request got.
type answer struct {
	code       int
	retryAfter string
	body       string
}

// roundTrip is a function that is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("more requests than may wait for reviews", Label("K8S-12"), func() {
	const many = 600 // more than may wait
	var reviews *reviewtest.Server
	var e *testEnv
	var log string
	var ended sync.WaitGroup
	BeforeEach(func() {
		dir := GinkgoT().TempDir()
		policy := filepath.Join(dir, "policy.yaml")
		log = filepath.Join(dir, "audit.log")
		Expect(os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600)).To(Succeed())
		audit := genericoptions.NewAuditOptions()
		audit.PolicyFile, audit.LogOptions.Path = policy, log
		Expect(errors.Join(audit.Validate()...)).To(Succeed())

		reviews = reviewtest.NewServer()
		DeferCleanup(reviews.Close)
		e = newEnv(func(o *Options) {
			o.Audit, o.Authenticator, o.Authorizer, o.Kubeconfig = audit, nil, nil, &rest.Config{Host: reviews.URL}
		})
		e.thread("hello")
		DeferCleanup(func() {
			reviews.Release()
			ended.Wait()
		})
	})

	ask := func(ctx context.Context, token, path string, headers ...string) answer {
		GinkgoHelper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+path, nil)
		Expect(err).NotTo(HaveOccurred())
		req.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := e.http.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		Expect(err).NotTo(HaveOccurred())
		return answer{resp.StatusCode, resp.Header.Get("Retry-After"), string(body)}
	}
	// flood sends requests until one is refused for a reason, and returns how the others are answered.
	flood := func(why string, send func(n int) answer) (refused answer, others chan answer) {
		GinkgoHelper()
		others = make(chan answer, many)
		for n := range many {
			ended.Go(func() {
				defer GinkgoRecover()
				others <- send(n)
			})
		}
		Eventually(others).Should(Receive(&refused, WithTransform(func(a answer) string { return a.body }, ContainSubstring(why))), "while none is reviewed")
		return refused, others
	}
	expectRefusal := func(a answer, message string) {
		GinkgoHelper()
		Expect(a.code).To(Equal(http.StatusTooManyRequests), a.body)
		Expect(a.retryAfter).To(Equal("1"))
		var s metav1.Status
		Expect(json.Unmarshal([]byte(a.body), &s)).To(Succeed(), a.body)
		Expect(s.Kind).To(Equal("Status"))
		Expect(s.Reason).To(Equal(metav1.StatusReasonTooManyRequests))
		Expect(s.Message).To(ContainSubstring(message))
		Expect(s.Details.Causes).To(ContainElement(HaveField("Type", runtimev1.CauseFlowControl)))
	}
	audited := func() string {
		data, err := os.ReadFile(log)
		Expect(err).NotTo(HaveOccurred())
		return string(data)
	}

	It("are answered with 429, and clients of theirs with tokens that were accepted are served meanwhile", func(ctx SpecContext) {
		Expect(ask(ctx, "calm", at("hello", "")).code).To(Equal(http.StatusOK))
		refused, others := flood("tokens", func(n int) answer { return ask(ctx, "forged-"+strconv.Itoa(n), at("hello", "")) })
		expectRefusal(refused, `requests from the address "127.0.0.1/32" wait until the API server has reviewed their tokens: try again later`)
		Expect(ask(ctx, "calm", at("hello", "")).code).To(Equal(http.StatusOK))
		expectRefusal(ask(ctx, "new", at("hello", "/events"), "Accept", "text/event-stream"), "reviewed their tokens")
		expectRefusal(ask(ctx, "new", at("hello", "/code"), "Connection", "Upgrade", "Upgrade", "websocket"), "reviewed their tokens")
		Eventually(audited).Should(And(ContainSubstring(`"code":429`), ContainSubstring("skein.dev/flow-control"), Not(ContainSubstring(`"code":401`))))

		reviews.Release()
		ended.Wait()
		close(others)
		for a := range others {
			Expect(a.code).To(BeElementOf(http.StatusTooManyRequests, http.StatusUnauthorized))
		}
		Expect(ask(ctx, "new", at("hello", "")).code).To(Equal(http.StatusOK))
	})

	It("are answered with 429 when they wait for rights", func(ctx SpecContext) {
		Expect(ask(ctx, "flood", "/livez").code).To(Equal(http.StatusOK), "needs a review of the token only")
		refused, others := flood("rights", func(n int) answer { return ask(ctx, "flood", at("thread-"+strconv.Itoa(n), "")) })
		expectRefusal(refused, `requests of the user "flood" wait until the API server has reviewed their rights: try again later`)
		expectRefusal(ask(ctx, "flood", at("hello", "/events"), "Accept", "text/event-stream"), "reviewed their rights")
		expectRefusal(ask(ctx, "flood", at("hello", "/code"), "Connection", "Upgrade", "Upgrade", "websocket"), "reviewed their rights")
		expectRefusal(ask(ctx, "flood", at("hello", ""), "Impersonate-User", "calm"), "reviewed their rights")
		Expect(ask(ctx, "calm", at("hello", "")).code).To(Equal(http.StatusOK))
		Eventually(audited).Should(And(ContainSubstring(`"code":429`), Not(ContainSubstring(`"code":500`)), Not(ContainSubstring(`"code":403`))))

		reviews.Release()
		ended.Wait()
		close(others)
		for a := range others {
			Expect(a.code).To(BeElementOf(http.StatusTooManyRequests, http.StatusForbidden))
		}
	})

	It("come again, and are answered, when they are those of our client", func(ctx SpecContext) {
		refused, _ := flood("tokens", func(n int) answer { return ask(ctx, "forged-"+strconv.Itoa(n), at("hello", "")) })
		expectRefusal(refused, "reviewed their tokens")
		told := make(chan int, many)
		cfg := rest.CopyConfig(e.config)
		cfg.BearerToken = "new"
		cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil {
					told <- resp.StatusCode
				}
				return resp, err
			})
		}
		c, err := runtimeclient.New(cfg)
		Expect(err).NotTo(HaveOccurred())
		t := c.Thread("ns", "hello")
		got := make(chan error, 2)
		ended.Go(func() {
			_, err := t.Get(ctx)
			got <- err
		})
		ended.Go(func() {
			for _, err := range t.Events(ctx, runtimeclient.EventOptions{NoFollow: true}) {
				if err != nil {
					got <- err
					return
				}
			}
			got <- nil
		})
		for range 2 {
			Eventually(told).Should(Receive(Equal(http.StatusTooManyRequests)))
		}
		reviews.Release()
		for range 2 {
			Eventually(got).Should(Receive(BeNil()))
		}
		ended.Wait() // the context of the requests ends with the spec
	})
})
