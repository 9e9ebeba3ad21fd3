package flow_test

import (
	"context"
	"fmt"
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
	serve := func(who string, groups []string, info *apirequest.RequestInfo) int {
		ctx := apirequest.WithUser(context.Background(), &user.DefaultInfo{Name: who, Groups: groups})
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(apirequest.WithRequestInfo(ctx, info), http.MethodGet, "/", nil))
		return w.Code
	}
	// ask makes a request and returns its status. Requests to the subresource events last until hold is closed.
	ask := func(who, namespace, resource, subresource string, groups ...string) int {
		return serve(who, groups, &apirequest.RequestInfo{IsResourceRequest: true, Namespace: namespace, Resource: resource, Subresource: subresource})
	}
	// askSlowly searches until hold is closed.
	askSlowly := func(who string) int {
		return serve(who, nil, &apirequest.RequestInfo{IsResourceRequest: true, Resource: "searches", Name: "slow"})
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
			if info, _ := apirequest.RequestInfoFrom(r.Context()); info.Subresource == "events" || info.Resource == "slow" || info.Name == "slow" {
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

	Context("with more users than it remembers", func() {
		BeforeEach(func() { limits = flow.Limits{UserRate: 10} })
		It("forgets those that were not here for longest, so that its memory is bounded", func() {
			for range 30 {
				Expect(ask("early", "a", "threads", "")).To(Equal(200))
			}
			Expect(ask("early", "a", "threads", "")).To(Equal(429))
			for n := range 10_000 {
				Expect(ask(fmt.Sprint("user-", n), "a", "threads", "")).To(Equal(200))
				if n%5000 == 0 {
					for range 30 {
						ask("late", "a", "threads", "")
					}
				}
			}
			Expect(ask("early", "a", "threads", "")).To(Equal(200))
			Expect(ask("late", "a", "threads", "")).To(Equal(429))
		})
	})

	Context("with service accounts, of which a tenant has as many as it likes", func() {
		BeforeEach(func() { limits = flow.Limits{UserRate: 10, UserOpen: 2, UserSearches: 60} })
		account := func(namespace string, n int) string {
			return fmt.Sprintf("system:serviceaccount:%s:made-up-%d", namespace, n)
		}
		It("counts those of a namespace as one user in rates", func() {
			for n := range 30 {
				Expect(ask(account("flood", n), "flood", "threads", "")).To(Equal(200))
			}
			Expect(ask(account("flood", 30), "flood", "threads", "")).To(Equal(429))
			Expect(refused).To(ContainSubstring(`"system:serviceaccounts:flood" makes more than 10 requests a second`))
			Expect(ask(account("calm", 0), "calm", "threads", "")).To(Equal(200))
		})
		It("counts their searches as those of one user", func() {
			for n := range 10 {
				Expect(ask(account("flood", n), "", "searches", "")).To(Equal(200))
			}
			Expect(ask(account("flood", 10), "", "searches", "")).To(Equal(429))
			Expect(ask(account("calm", 0), "", "searches", "")).To(Equal(200))
		})
		It("counts their open requests that name no namespace as those of one user", func() {
			defer close(hold)
			for n := range 2 {
				go ask(account("flood", n), "", "slow", "")
				Eventually(began).Should(Receive())
			}
			Expect(ask(account("flood", 2), "", "lookups", "")).To(Equal(429))
			Expect(ask(account("flood", 2), "flood", "threads", "")).To(Equal(200), "a namespace has a limit of its own")
			Expect(ask(account("calm", 0), "", "lookups", "")).To(Equal(200))
		})
		It("counts their open requests to a namespace of others as those of one user", func() {
			defer close(hold)
			for n := range 2 {
				go ask(account("flood", n), "calm", "slow", "")
				Eventually(began).Should(Receive())
			}
			Expect(ask(account("flood", 2), "calm", "threads", "")).To(Equal(429))
			Expect(ask(account("calm", 0), "calm", "threads", "")).To(Equal(200))
		})
	})

	Context("with a limit of searches of all users", func() {
		BeforeEach(func() { limits = flow.Limits{SearchesOpen: 16} })
		It("gives no user more than a quarter of them", func() {
			defer close(hold)
			for range 4 {
				go askSlowly("flood")
				Eventually(began).Should(Receive())
			}
			Expect(ask("flood", "", "searches", "")).To(Equal(429))
			Expect(refused).To(ContainSubstring(`4 searches of the user "flood" are under way`))
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
