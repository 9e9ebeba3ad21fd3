package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// reviewer is an API server that answers reviews. Those that a flood caused wait until release is called.
type reviewer struct {
	held chan struct{}
	once sync.Once

	mu         sync.Mutex
	busy, peak int // reviews that a flood caused
}

// release lets the flood's reviews end.
func (v *reviewer) release() { v.once.Do(func() { close(v.held) }) }

func (v *reviewer) flooded() {
	v.mu.Lock()
	v.busy++
	v.peak = max(v.peak, v.busy)
	v.mu.Unlock()
	<-v.held
	v.mu.Lock()
	v.busy--
	v.mu.Unlock()
}

func (v *reviewer) counts() [2]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return [2]int{v.busy, v.peak}
}

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch {
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if strings.HasPrefix(review.Spec.Token, "forged") {
			v.flooded()
		} else {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		}
		answer = review
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if strings.Contains(review.Spec.User, "flood") {
			v.flooded()
		} else {
			review.Status.Allowed = true
		}
		answer = review
	case strings.Contains(r.URL.Path, "/configmaps/"):
		answer = corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: authConfigName}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

var _ = Describe("reviews, which all callers share", Label("K8S-12"), func() {
	const many = 200
	var reviews *reviewer
	var clients kubernetes.Interface
	BeforeEach(func() {
		reviews = &reviewer{held: make(chan struct{})}
		kube := httptest.NewServer(reviews)
		DeferCleanup(kube.Close)
		DeferCleanup(reviews.release)
		var err error
		clients, err = kubernetes.NewForConfig(&rest.Config{Host: kube.URL, QPS: -1})
		Expect(err).NotTo(HaveOccurred())
	})

	It("have a queue for each user", func(ctx SpecContext) {
		rights, err := delegateAuthorization(clients)
		Expect(err).NotTo(HaveOccurred())
		ask := func(who, thread string) authorizer.Decision {
			GinkgoHelper()
			d, _, err := rights.Authorize(ctx, authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: who}, Verb: "get", ResourceRequest: true, Resource: "threads", Name: thread,
			})
			Expect(err).NotTo(HaveOccurred())
			return d
		}
		var ended sync.WaitGroup
		for n := range many {
			ended.Go(func() {
				defer GinkgoRecover()
				Expect(ask(fmt.Sprintf("system:serviceaccount:flood:made-up-%d", n%10), fmt.Sprint(n))).To(Equal(authorizer.DecisionNoOpinion))
			})
		}
		Eventually(reviews.counts).Should(HaveExactElements(rightsAtOnce, rightsAtOnce))
		Expect(ask("calm", "t")).To(Equal(authorizer.DecisionAllow))
		gone, leave := context.WithCancel(ctx)
		leave()
		_, _, err = rights.Authorize(gone, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "system:serviceaccount:flood:x"}, Verb: "get", Resource: "threads"})
		Expect(err).To(MatchError(context.Canceled), "who leaves does not wait")
		reviews.release()
		ended.Wait()
		Expect(reviews.counts()).To(Equal([2]int{0, rightsAtOnce}))
	})

	It("have a queue for each address, also when senders of made-up tokens do not wait for the answer", func(ctx SpecContext) {
		cfg := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
		cfg.SecureServing = &genericapiserver.SecureServingInfo{}
		Expect(delegateAuthentication(cfg, clients)).To(Succeed())
		ask := func(ctx context.Context, address, token string) bool {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis", nil)
			r.RemoteAddr = address
			r.Header.Set("Authorization", "Bearer "+token)
			who, ok, _ := cfg.Authentication.Authenticator.AuthenticateRequest(r)
			return ok && who.User.GetName() == token
		}
		var ended sync.WaitGroup
		gone, leave := context.WithCancel(ctx)
		for n := range many {
			ended.Go(func() { ask(gone, fmt.Sprint("10.0.0.1:", 1000+n), fmt.Sprint("forged-", n)) })
		}
		Eventually(reviews.counts).Should(HaveExactElements(tokensAtOnce, tokensAtOnce))
		leave()
		for n := range many {
			ended.Go(func() { ask(gone, fmt.Sprint("10.0.0.1:", 5000+n), fmt.Sprint("forged-again-", n)) })
		}
		Expect(ask(ctx, "10.0.0.2:1000", "calm")).To(BeTrue())
		reviews.release()
		ended.Wait()
		Expect(reviews.counts()[1]).To(Equal(tokensAtOnce))
	})
})
