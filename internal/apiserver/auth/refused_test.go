package auth

import (
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

var _ = Describe("A request whose review finds the queue full", Label("K8S-12"), func() {
	full := flow.NewSemaphores(1, 0, "requests of %q wait for a test")

	DescribeTable("is answered with 429, also when the filter reports another error", func(ctx SpecContext, review func(r *http.Request) error) {
		control := flow.New(flow.Limits{}, clock.RealClock{}, nil, func(w http.ResponseWriter, _ *http.Request, err *apierrors.StatusError) {
			w.WriteHeader(int(err.ErrStatus.Code))
		})
		filter := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			Expect(review(r)).To(Satisfy(apierrors.IsTooManyRequests))
			w.WriteHeader(http.StatusInternalServerError)
		})
		w := httptest.NewRecorder()
		control.WrapChain(http.NotFoundHandler(), func(http.Handler) http.Handler { return filter }).ServeHTTP(w, request(ctx, "10.0.0.1:1000", "new"))
		Expect(w.Code).To(Equal(http.StatusTooManyRequests))
	},
		Entry("of its token", func(r *http.Request) error {
			_, _, err := (&limitedAuthenticator{addresses: full, users: full, accepted: newAcceptedTokens()}).AuthenticateRequest(r)
			return err
		}),
		Entry("of its rights", func(r *http.Request) error {
			l := &limitedAuthorizer{free: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), semaphores: full}
			_, _, err := l.Authorize(r.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "ada"}})
			return err
		}))
})
