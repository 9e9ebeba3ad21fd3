package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/skein-dev/skein/internal/apiserver/auth/reviewtest"
)

// request returns a request with a token.
func request(ctx context.Context, address, token string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

var _ = Describe("reviews, which all callers share", Label("K8S-12"), func() {
	const many = 200
	var reviews *reviewtest.Server
	var clients kubernetes.Interface
	BeforeEach(func() {
		reviews = reviewtest.NewServer()
		DeferCleanup(reviews.Close)
		var err error
		clients, err = kubernetes.NewForConfig(&rest.Config{Host: reviews.URL, QPS: -1})
		Expect(err).NotTo(HaveOccurred())
	})

	Context("of rights", func() {
		var rights authorizer.Authorizer
		BeforeEach(func() {
			var err error
			rights, err = delegateAuthorization(clients)
			Expect(err).NotTo(HaveOccurred())
		})
		ask := func(ctx context.Context, who, thread string) (authorizer.Decision, error) {
			d, _, err := rights.Authorize(ctx, authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: who}, Verb: "get", ResourceRequest: true, Resource: "threads", Name: thread,
			})
			return d, err
		}

		It("have a queue for each user", func(ctx SpecContext) {
			var ended sync.WaitGroup
			for n := range many {
				ended.Go(func() {
					defer GinkgoRecover()
					Expect(ask(ctx, fmt.Sprintf("system:serviceaccount:flood:made-up-%d", n%10), fmt.Sprint(n))).To(Equal(authorizer.DecisionNoOpinion))
				})
			}
			Eventually(reviews.Counts).Should(HaveExactElements(rightsAtOnce, rightsAtOnce))
			Expect(ask(ctx, "calm", "t")).To(Equal(authorizer.DecisionAllow))
			gone, leave := context.WithCancel(ctx)
			leave()
			_, err := ask(gone, "system:serviceaccount:flood:x", "t")
			Expect(err).To(MatchError(context.Canceled), "who leaves does not wait")
			reviews.Release()
			ended.Wait()
			Expect(reviews.Counts()).To(Equal([2]int{0, rightsAtOnce}))
		})

		It("refuse more requests than may wait, with an error that says why", func(ctx SpecContext) {
			var ended sync.WaitGroup
			refused := make(chan error, 1)
			for n := range maxWaiting + 1 {
				ended.Go(func() {
					if _, err := ask(ctx, "flood", fmt.Sprint(n)); err != nil {
						refused <- err
					}
				})
			}
			var err error
			Eventually(refused).Should(Receive(&err))
			Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(`400 requests of the user "flood" wait until the API server has reviewed their rights: try again later`)))
			Expect(ask(ctx, "calm", "t")).To(Equal(authorizer.DecisionAllow))
			masters := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "flood", Groups: []string{user.SystemPrivilegedGroup}}, Verb: "get", Resource: "threads"}
			decision, _, err := rights.Authorize(ctx, masters)
			Expect(decision, err).To(Equal(authorizer.DecisionAllow), "needs no review")
			reviews.Release()
			ended.Wait()
			Expect(refused).To(BeEmpty(), "only one was too many")
		})
	})

	It("of tokens have a queue for each address, also when senders of made-up ones do not wait for the answer", func(ctx SpecContext) {
		cfg := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
		cfg.SecureServing = &genericapiserver.SecureServingInfo{}
		Expect(delegateAuthentication(cfg, clients)).To(Succeed())
		ask := func(ctx context.Context, address, token string) bool {
			who, ok, _ := cfg.Authentication.Authenticator.AuthenticateRequest(request(ctx, address, token))
			return ok && who.User.GetName() == token
		}
		var ended sync.WaitGroup
		gone, leave := context.WithCancel(ctx)
		for n := range many {
			ended.Go(func() { ask(gone, fmt.Sprint("10.0.0.1:", 1000+n), fmt.Sprint("forged-", n)) })
		}
		Eventually(reviews.Counts).Should(HaveExactElements(tokensAtOnce, tokensAtOnce))
		leave()
		for n := range many {
			ended.Go(func() { ask(gone, fmt.Sprint("10.0.0.1:", 5000+n), fmt.Sprint("forged-again-", n)) })
		}
		Expect(ask(ctx, "10.0.0.2:1000", "calm")).To(BeTrue())
		reviews.Release()
		ended.Wait()
		Expect(reviews.Counts()[1]).To(Equal(tokensAtOnce))
	})
})

// tokens is an authenticator that caches nothing. It accepts each token as the name of a user, and removes it from the request as those of
// k8s.io/apiserver do. It refuses forged ones when release is closed.
type tokens struct {
	began   chan string
	release chan struct{}
}

func (t *tokens) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if name := r.Header.Get("X-Certificate"); name != "" {
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
	}
	token := tokenOf(r)
	t.began <- token
	if strings.HasPrefix(token, "forged") {
		<-t.release
		return nil, false, errors.New("invalid bearer token")
	}
	r.Header.Del("Authorization")
	r.Header.Del("Sec-Websocket-Protocol")
	return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, true, nil
}

var _ = Describe("tokens from one address", Label("K8S-12"), func() {
	var inner *tokens
	var limited authenticator.Request
	var ended sync.WaitGroup
	var refused chan error
	const address = "[2001:db8::1]:1000"
	BeforeEach(func() {
		inner = &tokens{began: make(chan string, 2*maxWaiting), release: make(chan struct{})}
		limited, refused = limitReviews(inner), make(chan error, 2*maxWaiting)
		DeferCleanup(func() {
			close(inner.release)
			ended.Wait()
		})
	})
	ask := func(r *http.Request) error {
		_, ok, err := limited.AuthenticateRequest(r)
		if err == nil && !ok {
			return errors.New("no identity is known")
		}
		return err
	}
	// flood sends made-up tokens, one more than may wait, from addresses of one client.
	flood := func(ctx context.Context) {
		GinkgoHelper()
		for n := range maxWaiting + 1 {
			ended.Go(func() {
				if err := ask(request(ctx, fmt.Sprintf("[2001:db8::%x]:1000", n+2), fmt.Sprint("forged-", n))); apierrors.IsTooManyRequests(err) {
					refused <- err
				}
			})
		}
		var err error
		Eventually(refused).Should(Receive(&err))
		Expect(err).To(MatchError(ContainSubstring(`400 requests from the address "2001:db8::/64" wait until the API server has reviewed their tokens: try again later`)))
	}

	It("do not delay one that was accepted before, although its answer is no longer cached", func(ctx SpecContext) {
		Expect(ask(request(ctx, address, "calm"))).To(Succeed())
		flood(ctx)
		Expect(ask(request(ctx, address, "calm"))).To(Succeed())
		Expect(ask(request(ctx, "10.0.0.9:1", "calm"))).To(Succeed(), "from wherever it comes")
		r := request(ctx, address, "ignored")
		r.Header.Del("Authorization")
		r.Header.Set("Sec-Websocket-Protocol", "v1, "+webSocketToken+base64.RawURLEncoding.EncodeToString([]byte("calm")))
		Expect(ask(r)).To(Succeed(), "and however it is sent")
		Expect(apierrors.IsTooManyRequests(ask(request(ctx, address, "new")))).To(BeTrue(), "nothing tells it from a made-up one")
	})

	It("are accepted only when they were reviewed", func(ctx SpecContext) {
		r := request(ctx, address, "forged-by-ada")
		r.Header.Set("X-Certificate", "ada")
		Expect(ask(r)).To(Succeed(), "for its certificate")
		flood(ctx)
		ended.Go(func() { refused <- ask(request(ctx, address, "forged-by-ada")) })
		Eventually(refused).Should(Receive(Satisfy(apierrors.IsTooManyRequests)))
	})

	It("that were accepted share a queue with those of the same user only", func(ctx SpecContext) {
		const account = "system:serviceaccount:flood:made-up-"
		accepted := newAcceptedTokens()
		limited.(*limitedAuthenticator).accepted = accepted
		for n := range maxWaiting { // revoked since
			accepted.add(fmt.Sprint("forged-", n), fmt.Sprint(account, n))
		}
		accepted.add("calm", "calm")
		for n := range maxWaiting {
			ended.Go(func() { _ = ask(request(ctx, address, fmt.Sprint("forged-", n))) })
		}
		for range tokensAtOnce {
			Eventually(inner.began).Should(Receive())
		}
		var next string
		ended.Go(func() { _ = ask(request(ctx, address, "calm")) })
		Eventually(inner.began).Should(Receive(&next))
		Expect(next).To(Equal("calm"))
		Expect(inner.began).To(BeEmpty(), "no further one of the other user is under review")
		Expect(ask(request(ctx, address, "new"))).To(Succeed())
	})
})
