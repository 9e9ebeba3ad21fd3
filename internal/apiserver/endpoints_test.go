package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/redact"
)

var _ = Describe("endpoints", Label("END-01"), func() {
	var e *testEnv
	var asked endpoints.Request
	var secrets *redact.Registry
	BeforeEach(func() {
		secrets = redact.NewRegistry(nil)
		e = newEnv(func(o *Options) { o.Secrets = secrets })
		e.thread("hello")
		asked = endpoints.Request{}
	})

	// answer makes every request get this answer.
	answer := func(status int, headers [][2]string, pieces ...string) {
		e.engine.endpoint = func(_ context.Context, req endpoints.Request, to endpoints.Answer) error {
			asked = req
			if err := to.Head("report", status, headers); err != nil {
				return err
			}
			for _, p := range pieces {
				if err := to.Write([]byte(p)); err != nil {
					return err
				}
			}
			return nil
		}
	}

	It("give code the request, without what would let it act for the caller", func() {
		answer(200, nil, "ok")
		resp, body := e.do("POST", at("hello", "/endpoints/report/a%20b?v=x&q=1"), strings.NewReader("body"), "X-A", "1", "Cookie", "c=1", "X-Remote-User", "root",
			"Impersonate-User", "", "X-Forwarded-For", "10.0.0.1", "Skein-Lease", "", "Proxy-Authorization", "x", "Content-Type", "text/csv")
		Expect(resp.StatusCode).To(Equal(200), body)
		Expect(asked.Method).To(Equal("POST"))
		Expect(asked.Path).To(Equal([]string{"report", "a b"}))
		Expect(asked.User).To(Equal("alice"))
		Expect(string(asked.Body)).To(Equal("body"))
		Expect(asked.Reads).To(BeFalse())
		u, err := url.Parse(asked.URL)
		Expect(err).NotTo(HaveOccurred())
		Expect(u.EscapedPath()).To(HaveSuffix("/threads/hello/endpoints/report/a%20b"))
		Expect(u.Query()).To(Equal(url.Values{"v": {"x"}, "q": {"1"}}))
		names := map[string]string{}
		for _, h := range asked.Headers {
			names[h[0]] = h[1]
		}
		Expect(names).To(And(HaveKeyWithValue("x-a", "1"), HaveKeyWithValue("content-type", "text/csv")))
		for _, private := range []string{"authorization", "cookie", "x-remote-user", "impersonate-user", "x-forwarded-for", "skein-lease", "proxy-authorization", "connection"} {
			Expect(names).NotTo(HaveKey(private))
		}
	})

	DescribeTable("take any method, under its right", Label("K8S-04"), func(method, verb string) {
		answer(200, nil, "ok")
		resp, body := e.do(method, at("hello", "/endpoints/x"), nil)
		Expect(resp.StatusCode).To(Equal(200), body)
		Expect(asked.Method).To(Equal(method))
		Expect(e.rights.last()).To(Equal("alice " + verb + " threads/endpoints ns/hello"))
		resp, _ = e.do(method, at("hello", "/endpoints/x"), nil, "Authorization", "Bearer bob")
		Expect(resp.StatusCode).To(Equal(403))
	},
		Entry("GET", "GET", "get"), Entry("HEAD", "HEAD", "get"), Entry("OPTIONS", "OPTIONS", "get"), Entry("POST", "POST", "create"),
		Entry("PUT", "PUT", "update"), Entry("PATCH", "PATCH", "patch"), Entry("DELETE", "DELETE", "delete"),
	)

	It("send one byte for each character of a header, also to a repeat", func() {
		e.engine.endpoint = func(_ context.Context, _ endpoints.Request, to endpoints.Answer) error {
			return to.Head("report", 200, [][2]string{{"x-name", "Müller"}, {"x-utf8", "Å\u0081ukasz"}})
		}
		for range 2 {
			resp, _ := e.do("POST", at("hello", "/endpoints/x"), strings.NewReader("{}"), "Idempotency-Key", "bytes")
			Expect(resp.Header.Get("X-Name")).To(Equal("M\xfcller"))
			Expect(resp.Header.Get("X-Utf8")).To(Equal("Łukasz"))
		}
	})

	It("give the answer as the code made it, but for what would speak for the API", func() {
		answer(418, [][2]string{{"content-type", "text/html"}, {"x-b", "2"}, {"set-cookie", "a=1"}, {"connection", "close"}, {"content-length", "1"}, {"access-control-allow-origin", "*"},
			{"content-security-policy", "default-src 'none'"}, {"bad name", "x"}, {"Www-Authenticate", "Basic"}, {"Transfer-Encoding", "chunked"}}, "<b>", "tea</b>")
		resp, body := e.do("GET", at("hello", "/endpoints/x"), nil)
		Expect(resp.StatusCode).To(Equal(418))
		Expect(body).To(Equal("<b>tea</b>"))
		h := resp.Header
		Expect(h.Get("Content-Type")).To(Equal("text/html"))
		Expect(h.Get("X-B")).To(Equal("2"))
		Expect(h.Get(runtimev1.HeaderEndpoint)).To(Equal("report"))
		Expect(h.Values("Content-Security-Policy")).To(Equal([]string{"default-src 'none'", "sandbox"}))
		Expect(h.Get("X-Content-Type-Options")).To(Equal("nosniff"))
		for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Www-Authenticate", "Bad name"} {
			Expect(h).NotTo(HaveKey(name))
		}
		answer(200, nil, "x")
		resp, _ = e.do("GET", at("hello", "/endpoints"), nil)
		Expect(resp.Header.Get("Content-Type")).To(Equal("application/octet-stream"))
		Expect(asked.Path).To(BeEmpty())
		answer(204, nil)
		resp, _ = e.do("DELETE", at("hello", "/endpoints/x"), nil)
		Expect(resp.StatusCode).To(Equal(204))
		answer(200, nil, "a body that HEAD does not have")
		resp, body = e.do("HEAD", at("hello", "/endpoints/x"), nil)
		Expect(resp.StatusCode).To(Equal(200))
		Expect(body).To(BeEmpty())
	})

	It("show no secrets, in headers and in bodies that come in pieces", Label("ENV-03"), func() {
		secrets.Register("ns", "KEY", "hunter2-canary")
		answer(200, [][2]string{{"x-key", "hunter2-canary"}}, "the key is hunt", "er2-can", "ary, and more")
		resp, body := e.do("GET", at("hello", "/endpoints/x"), nil)
		Expect(resp.Header.Get("X-Key")).To(Equal("[redacted]"))
		Expect(body).To(Equal("the key is [redacted], and more"))
		answer(200, nil, "it ends with hunt")
		_, body = e.do("GET", at("hello", "/endpoints/x"), nil)
		Expect(body).To(Equal("it ends with hunt"))
		e.engine.endpoint = func(context.Context, endpoints.Request, endpoints.Answer) error {
			return &endpoints.Error{Endpoint: "report", Message: "its code failed: Error: hunter2-canary"}
		}
		Expect(e.status("GET", at("hello", "/endpoints/x"), "").Message).To(Equal("ThreadEndpoint report: its code failed: Error: [redacted]"))
	})

	It("stream, and cut the connection where the code fails half way", func() {
		first := make(chan struct{})
		e.engine.endpoint = func(_ context.Context, _ endpoints.Request, to endpoints.Answer) error {
			Expect(to.Head("report", 200, nil)).To(Succeed())
			Expect(to.Write([]byte("first"))).To(Succeed())
			<-first
			return errors.New("its code failed")
		}
		req, err := http.NewRequest("GET", e.base+at("hello", "/endpoints/x"), nil)
		Expect(err).NotTo(HaveOccurred())
		req.Header.Set("Authorization", "Bearer alice")
		resp, err := e.http.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		piece := make([]byte, 5)
		_, err = io.ReadFull(resp.Body, piece)
		Expect(err).NotTo(HaveOccurred(), "it comes before the code is done")
		Expect(string(piece)).To(Equal("first"))
		close(first)
		_, err = io.ReadAll(resp.Body)
		Expect(err).To(HaveOccurred(), "a part is not taken for the whole")
	})

	It("bound what they take, and refuse paths that could be taken for others", func() {
		answer(200, nil, "ok")
		s := e.status("POST", at("hello", "/endpoints/x"), strings.Repeat("x", endpoints.MaxRequest+1))
		Expect(s.Reason).To(Equal(metav1.StatusReasonRequestEntityTooLarge))
		Expect(s.Message).To(ContainSubstring("8388608"))
		Expect(asked.Method).To(BeEmpty(), "the code was not asked")
		resp, _ := e.do("POST", at("hello", "/endpoints/x"), bytes.NewReader(make([]byte, endpoints.MaxRequest)))
		Expect(resp.StatusCode).To(Equal(200))
		Expect(asked.Body).To(HaveLen(endpoints.MaxRequest))
	})

	DescribeTable("say what went wrong", func(failure error, code int, reason metav1.StatusReason, cause OmegaMatcher) {
		e.engine.endpoint = func(context.Context, endpoints.Request, endpoints.Answer) error { return failure }
		s := e.status("GET", at("hello", "/endpoints/x"), "")
		Expect(int(s.Code)).To(Equal(code))
		Expect(s.Reason).To(Equal(reason))
		Expect(s.Message).To(ContainSubstring("why"))
		Expect(s.Details.Causes).To(cause)
	},
		Entry("the code", &endpoints.Error{Endpoint: "r", Message: "why"}, 500, metav1.StatusReasonInternalError, ConsistOf(HaveField("Type", runtimev1.CauseEndpointFailed))),
		Entry("too slow", &endpoints.Error{Endpoint: "r", Message: "why", Timeout: true}, 504, metav1.StatusReasonTimeout, ConsistOf(HaveField("Type", runtimev1.CauseEndpointFailed))),
		Entry("its sandbox lost", &endpoints.Error{Endpoint: "r", Message: "why", Lost: true}, 503, metav1.StatusReasonServiceUnavailable, Not(BeEmpty())),
		Entry("no such path", &definition.UnknownError{Message: "why"}, 404, metav1.StatusReasonNotFound, BeEmpty()),
		Entry("not compiled", &definition.NotReadyError{Reason: "CompileFailed", Message: "why"}, 503, metav1.StatusReasonServiceUnavailable, BeEmpty()),
	)

	It("tell which methods a path has", func() {
		e.engine.endpoint = func(_ context.Context, req endpoints.Request, _ endpoints.Answer) error {
			return &definition.MethodError{Method: req.Method, Allow: []string{"GET", "HEAD", "OPTIONS"}}
		}
		resp, body := e.do("DELETE", at("hello", "/endpoints/x"), nil)
		Expect(resp.StatusCode).To(Equal(405))
		Expect(resp.Header.Get("Allow")).To(Equal("GET, HEAD, OPTIONS"))
		Expect(body).To(ContainSubstring("it answers GET, HEAD, OPTIONS"))
		resp, body = e.do("OPTIONS", at("hello", "/endpoints/x"), nil)
		Expect(resp.StatusCode).To(Equal(204))
		Expect(resp.Header.Get("Allow")).To(Equal("GET, HEAD, OPTIONS"))
		Expect(body).To(BeEmpty())
	})

	It("are called once under an idempotency key, and answer a repeat as the first time", Label("MSG-10"), func() {
		times := 0
		e.engine.endpoint = func(_ context.Context, req endpoints.Request, to endpoints.Answer) error {
			times++
			Expect(req.Key).To(Equal("k"))
			Expect(to.Head("report", 201, [][2]string{{"x-b", "2"}, {"content-type", "text/plain"}})).To(Succeed())
			Expect(to.Write([]byte("made "))).To(Succeed())
			return to.Write([]byte("once"))
		}
		audits := map[string]bool{}
		for i := range 2 {
			resp, body := e.do("POST", at("hello", "/endpoints/x?v=7"), strings.NewReader("{}"), "Idempotency-Key", "k")
			audits[resp.Header.Get("Audit-Id")] = true
			Expect(resp.StatusCode).To(Equal(201))
			Expect(body).To(Equal("made once"))
			Expect(resp.Header.Get("X-B")).To(Equal("2"))
			Expect(resp.Header.Get(runtimev1.HeaderEndpoint)).To(Equal("report"))
			Expect(resp.Header.Get("Content-Security-Policy")).To(Equal("sandbox"))
			Expect(resp.Header.Get(runtimev1.HeaderIdempotentReplayed)).To(Equal([]string{"", "true"}[i]))
		}
		Expect(times).To(Equal(1))
		Expect(audits).To(HaveLen(2), "a repeat is a request of its own in the audit log")
	})

	It("give the Go client any answer of the code, and redirects are not followed", func(ctx SpecContext) {
		t := e.client().Thread("ns", "hello")
		answer(422, [][2]string{{"x-b", "2"}}, "no")
		resp, err := t.Endpoint(ctx, runtimeclient.EndpointRequest{Method: "post", Path: "/report/a b", Query: url.Values{"v": {"1"}}, Header: http.Header{"X-A": {"1"}}, Body: strings.NewReader("in")})
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(io.ReadAll(resp.Body)).To(BeEquivalentTo("no"))
		Expect(resp.StatusCode).To(Equal(422))
		Expect(asked.Path).To(Equal([]string{"report", "a b"}))
		Expect(string(asked.Body)).To(Equal("in"))
		Expect(asked.Headers).To(ContainElement([2]string{"x-a", "1"}))

		answer(302, [][2]string{{"location", e.base + "/elsewhere"}})
		resp, err = t.Endpoint(ctx, runtimeclient.EndpointRequest{Path: "/"})
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(resp.StatusCode).To(Equal(302), "it is not followed, with the caller's credentials")
		Expect(asked.Path).To(BeEmpty())

		e.engine.endpoint = func(context.Context, endpoints.Request, endpoints.Answer) error {
			return &definition.UnknownError{Message: "no endpoint has the path /x"}
		}
		_, err = t.Endpoint(ctx, runtimeclient.EndpointRequest{Path: "/x"})
		Expect(err).To(And(MatchError(runtimeclient.ErrNotFound), MatchError(ContainSubstring("no endpoint has the path"))))
		_, err = t.Endpoint(ctx, runtimeclient.EndpointRequest{Path: "/a/../b"})
		Expect(err).To(MatchError(runtimeclient.ErrInvalid))
	})
})
