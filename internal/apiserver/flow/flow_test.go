package flow_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

func TestFlow(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Flow control of the runtime API")
}

var _ = Describe("Flow control", Label("K8S-12"), func() {
	var clock *testingclock.FakeClock
	var limits flow.Limits
	var refused string
	var hold chan struct{}
	var began chan struct{}
	var handler http.Handler
	// ask makes a request and returns its status. Requests to the subresource events last until hold is closed.
	ask := func(who, namespace, resource, subresource string, groups ...string) int {
		ctx := apirequest.WithUser(context.Background(), &user.DefaultInfo{Name: who, Groups: groups})
		ctx = apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{IsResourceRequest: true, Namespace: namespace, Resource: resource, Subresource: subresource})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w.Code
	}
	BeforeEach(func() {
		clock, limits, hold, began, refused = testingclock.NewFakeClock(time.Now()), flow.Limits{}, make(chan struct{}), make(chan struct{}, 100), ""
	})
	JustBeforeEach(func() {
		handler = flow.New(limits, clock, func(_ *http.Request, info *apirequest.RequestInfo) bool { return info.Subresource == "events" },
			func(w http.ResponseWriter, _ *http.Request, err *apierrors.StatusError) {
				refused = err.Error()
				Expect(err.ErrStatus.Details.RetryAfterSeconds).To(BeNumerically(">", 0))
				w.WriteHeader(int(err.ErrStatus.Code))
			}).Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if info, _ := apirequest.RequestInfoFrom(r.Context()); info.Subresource == "events" {
				began <- struct{}{}
				<-hold
			}
		}))
	})

	Context("with a rate", func() {
		BeforeEach(func() { limits = flow.Limits{UserRate: 10} })
		It("refuses one user and no other", func() {
			for range 30 {
				Expect(ask("flood", "a", "threads", "")).To(Equal(200))
			}
			Expect(ask("flood", "a", "threads", "")).To(Equal(429))
			Expect(refused).To(ContainSubstring(`"flood" makes more than 10 requests a second: try again later`))
			Expect(ask("calm", "a", "threads", "")).To(Equal(200))
			Expect(ask("flood", "a", "threads", "", "system:masters")).To(Equal(200))
			clock.Step(time.Second)
			Expect(ask("flood", "a", "threads", "")).To(Equal(200))
		})
	})

	It("counts requests that come in on another way with those of the namespace", func() {
		c := flow.New(flow.Limits{UserLasting: 2, NamespaceLasting: 3, UserRate: 10}, clock, nil, nil)
		var ends []func()
		enter := func(who, namespace string) error {
			done, err := c.Enter(who, namespace, true)
			if err == nil {
				ends = append(ends, done)
			}
			return err
		}
		Expect(enter("one", "a")).To(Succeed())
		Expect(enter("one", "a")).To(Succeed())
		Expect(apierrors.IsTooManyRequests(enter("one", "a"))).To(BeTrue(), "its own limit")
		Expect(enter("two", "a")).To(Succeed())
		Expect(enter("two", "a")).To(MatchError(ContainSubstring("namespace")))
		Expect(enter("two", "b")).To(Succeed())
		ends[0]()
		Expect(enter("two", "a")).NotTo(Succeed(), "it has two already")
		Expect(enter("three", "a")).To(Succeed())
		for range 30 {
			done, err := c.Enter("often", "c", false)
			Expect(err).NotTo(HaveOccurred())
			done()
		}
		_, err := c.Enter("often", "c", false)
		Expect(err).To(MatchError(ContainSubstring("more than 10 requests a second")))
	})

	Context("with a number of searches", func() {
		BeforeEach(func() { limits = flow.Limits{UserSearches: 60} })
		It("gives them a budget of their own", func() {
			for range 10 {
				Expect(ask("flood", "", "searches", "")).To(Equal(200))
			}
			Expect(ask("flood", "", "searches", "")).To(Equal(429))
			Expect(ask("flood", "a", "threads", "")).To(Equal(200))
			Expect(ask("calm", "", "searches", "")).To(Equal(200))
		})
	})

	Context("with a number of requests that last", func() {
		BeforeEach(func() { limits = flow.Limits{UserLasting: 3, NamespaceLasting: 4, UserOpen: 1} })
		It("bounds them for a user and for a namespace, apart from others", func() {
			open := func(who, namespace string) {
				go func() {
					defer GinkgoRecover()
					Expect(ask(who, namespace, "threads", "events")).To(Equal(200))
				}()
				Eventually(began).Should(Receive())
			}
			for range 3 {
				open("flood", "a")
			}
			Expect(ask("flood", "a", "threads", "events")).To(Equal(429))
			Expect(ask("flood", "b", "threads", "events")).To(Equal(429))
			Expect(ask("flood", "a", "threads", "")).To(Equal(200))
			open("calm", "a")
			Expect(ask("third", "a", "threads", "events")).To(Equal(429))
			Expect(refused).To(ContainSubstring(`namespace "a"`))
			open("third", "b")
			close(hold)
			Eventually(func() int { return ask("flood", "a", "threads", "events") }).Should(Equal(200))
		})
	})
})
