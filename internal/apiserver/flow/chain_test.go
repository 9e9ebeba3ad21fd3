package flow_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

var _ = Describe("What the filters of a chain answer", Label("K8S-12"), func() {
	full := func(ctx context.Context) {
		GinkgoHelper()
		_, err := flow.NewSemaphores(1, 0, "requests of %q wait for a test").Acquire(ctx, "one")
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		flow.RecordRefusal(ctx, err)
	}
	failed := func(w http.ResponseWriter, code int) {
		w.Header().Set("Content-Length", "6")
		http.Error(w, "failed", code)
	}
	serve := func(filter func(next http.Handler) http.HandlerFunc, handler http.HandlerFunc) (code int, body string) {
		c := flow.New(flow.Limits{}, clock.RealClock{}, nil, func(w http.ResponseWriter, _ *http.Request, err *apierrors.StatusError) {
			w.WriteHeader(int(err.ErrStatus.Code))
			_, _ = w.Write([]byte(err.ErrStatus.Message))
		})
		w := httptest.NewRecorder()
		c.WrapChain(handler, func(next http.Handler) http.Handler { return filter(next) }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		Expect(w.Header()).NotTo(HaveKey("Content-Length"))
		return w.Code, w.Body.String()
	}
	handle := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) }

	DescribeTable("is 429 when a queue is full, also when the filter answers with another error", func(code int) {
		got, body := serve(func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				full(r.Context())
				failed(w, code)
			}
		}, handle)
		Expect(got).To(Equal(http.StatusTooManyRequests))
		Expect(body).To(Equal(`0 requests of "one" wait for a test: try again later, or make fewer requests at once`))
	}, Entry("wrong credentials", 401), Entry("missing rights", 403), Entry("a fault of the server", 500))

	It("is unchanged otherwise", func() {
		code, body := serve(func(http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "failed", http.StatusUnauthorized) }
		}, handle)
		Expect([]any{code, body}).To(Equal([]any{http.StatusUnauthorized, "failed\n"}))
	})

	It("is unchanged when a handler answers", func() {
		tried := func(next http.Handler) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				full(r.Context()) // one of two ways to a right
				next.ServeHTTP(w, r)
			}
		}
		code, body := serve(tried, handle)
		Expect([]any{code, body}).To(Equal([]any{http.StatusOK, "done"}))
		code, body = serve(tried, func(w http.ResponseWriter, r *http.Request) {
			full(r.Context())
			http.Error(w, "no such thread", http.StatusNotFound)
		})
		Expect([]any{code, body}).To(Equal([]any{http.StatusNotFound, "no such thread\n"}))
	})
})

var _ = Describe("A request with large headers", Label("K8S-12"), func() {
	serve := func(change func(r *http.Request)) (code int, message string, reached bool) {
		c := flow.New(flow.Limits{}, clock.RealClock{}, nil, func(w http.ResponseWriter, _ *http.Request, err *apierrors.StatusError) {
			w.WriteHeader(int(err.ErrStatus.Code))
			_, _ = w.Write([]byte(err.ErrStatus.Message))
		})
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
		r := httptest.NewRequest(http.MethodGet, "/apis", nil)
		change(r)
		w := httptest.NewRecorder()
		c.WrapChain(handler, func(next http.Handler) http.Handler { return next }).ServeHTTP(w, r)
		return w.Code, w.Body.String(), reached
	}
	const most = 32 << 10
	fill := func(name string, n int) func(r *http.Request) {
		return func(r *http.Request) { r.Header.Set(name, strings.Repeat("x", n)) }
	}
	const refused = "the URL and the headers of the request have %d bytes, and at most 32768 are taken: send what is long in the body"

	DescribeTable("is refused before it reaches a filter", func(size int, change func(r *http.Request)) {
		code, message, reached := serve(change)
		Expect([]any{code, message, reached}).To(Equal([]any{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf(refused, size), false}))
	},
		Entry("one header", most+1, fill("X-Long", most+1-len("/apis")-len("X-Long"))),
		Entry("many headers", len("/apis")+4000*10, func(r *http.Request) {
			for range 4000 {
				r.Header.Add("X-Short", "abc")
			}
		}),
		Entry("the URL", most+1, func(r *http.Request) { r.RequestURI = "/" + strings.Repeat("x", most) }),
		Entry("the headers of a front proxy, from a client without a certificate", most+len("/apis")+len("X-Remote-Group"), fill("X-Remote-Group", most)))

	DescribeTable("is served", func(change func(r *http.Request)) {
		code, _, reached := serve(change)
		Expect([]any{code, reached}).To(Equal([]any{http.StatusOK, true}))
	},
		Entry("with as much as may be", fill("X-Long", most-len("/apis")-len("X-Long"))),
		Entry("with the groups of a user that a front proxy names", func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
			fill("X-Remote-Group", 2*most)(r)
		}))
})
