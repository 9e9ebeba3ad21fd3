package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const thread = "/apis/runtime.skein.dev/v1alpha1/namespaces/demo/threads/orders"

// counting serves an API server that counts requests and answers them with an empty object.
func counting() (*httptest.Server, *atomic.Int64) {
	n := &atomic.Int64{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	DeferCleanup(s.Close)
	return s, n
}

var _ = Describe("a session", func() {
	It("needs the address that the command printed", Label("CON-01"), func(ctx SpecContext) {
		s, reached := counting()
		b := stranger(optionsFor(s))
		Expect(b.get(ctx, "/")).To(And(HaveField("StatusCode", http.StatusUnauthorized), HaveField("Text", ContainSubstring("open the address"))))
		Expect(b.get(ctx, "/console.js")).To(HaveField("StatusCode", http.StatusUnauthorized))
		Expect(b.get(ctx, "/api/session")).To(haveStatus(http.StatusUnauthorized, "open the address"))
		Expect(b.get(ctx, thread)).To(haveStatus(http.StatusUnauthorized, "open the address"))
		for _, token := range []string{"", "x", b.token + "x", strings.ToLower(b.token)} {
			got := b.get(ctx, "/login?token="+token)
			Expect(got).To(haveStatus(http.StatusForbidden, "the token is not that of this console"), token)
			Expect(got.Header).NotTo(HaveKey("Set-Cookie"))
		}
		Expect(b.get(ctx, "/api/session", "Cookie", "skein-console-"+strings.TrimPrefix(b.base, "http://127.0.0.1:")+"="+b.token)).To(haveStatus(http.StatusUnauthorized, ""))
		Expect(reached.Load()).To(BeZero())

		b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for range 2 { // the address stays valid
			got := b.get(ctx, "/login?token="+b.token)
			Expect(got.StatusCode).To(Equal(http.StatusSeeOther))
			Expect(got.Header.Get("Location")).To(Equal("/"))
			Expect(got.Header.Get("Set-Cookie")).To(And(ContainSubstring("; Path=/"), ContainSubstring("; HttpOnly"), ContainSubstring("; SameSite=Strict"), Not(ContainSubstring(b.token))))
		}
		Expect(b.get(ctx, thread).StatusCode).To(Equal(http.StatusOK))
		Expect(reached.Load()).To(BeEquivalentTo(1))
	})

	It("begins after a link of another site, too", func(ctx SpecContext) {
		s, _ := counting()
		b := stranger(optionsFor(s))
		got := b.get(ctx, "/login?token="+b.token, "Sec-Fetch-Site", "cross-site")
		Expect(got.StatusCode).To(Equal(http.StatusOK))
		Expect(got.Text).To(ContainSubstring(`content="0;url=/"`))
		Expect(b.get(ctx, "/").Text).To(Equal(string(page["index.html"].Data)))
	})

	It("is with this server by its own names only", func(ctx SpecContext) {
		s, reached := counting()
		b := open(optionsFor(s))
		port := strings.TrimPrefix(b.base, "http://127.0.0.1:")
		at, err := url.Parse(b.base)
		Expect(err).NotTo(HaveOccurred())
		cookie := b.client.Jar.Cookies(at)[0].String() // which a browser would send to another name of the address, too, had that set it
		b.client.Jar = nil
		for _, host := range []string{"evil.example", "evil.example:" + port, "127.0.0.1", "127.0.0.1.evil.example:" + port, "[::1]:" + port, "localhost"} {
			Expect(b.get(ctx, thread, "Host", host, "Cookie", cookie)).To(haveStatus(http.StatusMisdirectedRequest, "the console has no host"), host)
			Expect(b.get(ctx, "/login?token="+b.token, "Host", host)).To(haveStatus(http.StatusMisdirectedRequest, ""), host)
		}
		Expect(reached.Load()).To(BeZero())
		Expect(b.get(ctx, thread, "Host", "localhost:"+port, "Cookie", cookie).StatusCode).To(Equal(http.StatusOK))
	})

	DescribeTable("refuses requests of other sites", Label("CON-04"), func(ctx SpecContext, method, path string, headers ...string) {
		s, reached := counting()
		b := open(optionsFor(s))
		Expect(b.do(ctx, method, path, "{}", headers...)).To(haveStatus(http.StatusForbidden, "another site has made this request"))
		Expect(reached.Load()).To(BeZero())
	},
		Entry("a form of another site", "POST", thread+"/queue", "Sec-Fetch-Site", "cross-site"),
		Entry("a form of another server on this machine", "POST", thread+"/stop", "Sec-Fetch-Site", "same-site"),
		Entry("an old browser", "POST", thread+"/queue", "Origin", "http://evil.example"),
		Entry("a page without an origin", "POST", thread+"/queue", "Origin", "null"),
		Entry("an action of the console", "POST", "/api/effects/demo/daily/run", "Origin", "http://127.0.0.1:1"),
		Entry("a picture of another server on this machine", "GET", thread+"/files/a.png?thumbnail=true", "Sec-Fetch-Site", "same-site"),
		Entry("a script of another site", "GET", "/api/session", "Sec-Fetch-Site", "cross-site"),
		Entry("a read with an origin", "GET", "/api/session", "Origin", "http://evil.example"),
	)

	It("lets the page itself write", func(ctx SpecContext) {
		s, reached := counting()
		b := open(optionsFor(s))
		Expect(b.do(ctx, "POST", thread+"/queue", "{}", "Sec-Fetch-Site", "same-origin", "Origin", b.base).StatusCode).To(Equal(http.StatusOK))
		Expect(b.do(ctx, "POST", thread+"/queue", "{}", "Origin", b.base).StatusCode).To(Equal(http.StatusOK))
		Expect(reached.Load()).To(BeEquivalentTo(2))
	})

	DescribeTable("refuses WebSockets of other sites", Label("CON-04"), func(ctx SpecContext, path string) {
		s, reached := counting()
		b := open(optionsFor(s))
		for _, origin := range []string{"http://evil.example", "http://127.0.0.1:1", "null"} {
			_, res, err := b.socket(ctx, path, websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
			Expect(err).To(HaveOccurred(), origin)
			Expect(res.StatusCode).To(Equal(http.StatusForbidden), origin)
		}
		_, res, err := b.socket(ctx, path, websocket.DialOptions{HTTPHeader: http.Header{"Sec-Fetch-Site": {"same-site"}}})
		Expect(err).To(HaveOccurred())
		Expect(res.StatusCode).To(Equal(http.StatusForbidden))
		Expect(reached.Load()).To(BeZero())
	},
		Entry("lists", "/api/live"),
		Entry("a thread", thread+"/observe"),
		Entry("events", thread+"/events"),
	)

	It("serves the files of the page under a strict policy, and nothing beside them", Label("CON-04"), func(ctx SpecContext) {
		s, _ := counting()
		b := open(optionsFor(s))
		got := b.get(ctx, "/")
		Expect(got.Text).To(Equal(string(page["index.html"].Data)))
		for name, value := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			Expect(got.Header.Get(name)).To(Equal(value), name)
		}
		localhost := strings.Replace(b.base, "127.0.0.1", "localhost", 1)
		policy := strings.Split(got.Header.Get("Content-Security-Policy"), "; ")
		Expect(policy).To(ContainElements("default-src 'none'", "script-src "+b.base+"/console.js "+localhost+"/console.js", "style-src "+b.base+"/console.css "+localhost+"/console.css", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"))
		Expect(b.get(ctx, "/console.js").Header.Get("Content-Type")).To(Equal("text/javascript; charset=utf-8"))
		Expect(b.get(ctx, "/dist/a.css").Text).To(Equal("a{}"))
		for _, path := range []string{"/dist", "/notes.go", "/none.js", "/index.html/x", "/session_test.go"} {
			Expect(b.get(ctx, path)).To(haveStatus(http.StatusNotFound, "the console does not use GET "+path))
		}
		Expect(b.do(ctx, "POST", "/", "")).To(haveStatus(http.StatusNotFound, "the console does not use POST /"))
	})

	It("ends with the command, with all that is open", Label("CON-01"), func(ctx SpecContext) {
		c := startCluster()
		held := make(chan struct{})
		c.handle(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("begun"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(held)
		})
		b := open(optionsFor(c.Server))
		conn, _, err := b.socket(ctx, "/api/live?namespace=demo", websocket.DialOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = conn.CloseNow() }()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+thread+"/events", http.NoBody)
		Expect(err).NotTo(HaveOccurred())
		res, err := b.client.Do(req)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = res.Body.Close() }()
		Eventually(ctx, c.watching).Should(Equal(2))

		b.stop()
		Eventually(ctx, b.ended).Should(Receive(BeNil()))
		b.ended <- nil // for the end of the spec
		Eventually(ctx, held).Should(BeClosed())
		Eventually(ctx, c.watching).Should(BeZero())
		Eventually(ctx, func(ctx context.Context) websocket.StatusCode {
			_, _, err := conn.Read(ctx) // first what was on its way
			return websocket.CloseStatus(err)
		}).Should(Equal(websocket.StatusGoingAway))
	})

	It("opens one session for the program that opens a browser", Label("CON-04"), func(ctx SpecContext) {
		s, _ := counting()
		b := stranger(optionsFor(s))
		once := strings.TrimPrefix(b.server.Once(), b.base)
		Expect(once).NotTo(ContainSubstring(b.token))
		Expect(b.get(ctx, once).Text).To(Equal(string(page["index.html"].Data)))
		Expect(b.get(ctx, "/api/session").StatusCode).To(Equal(http.StatusOK))
		b.client.Jar = nil
		Expect(b.get(ctx, once)).To(haveStatus(http.StatusForbidden, "the token is not that of this console"))
		first, second := strings.TrimPrefix(b.server.Once(), b.base), strings.TrimPrefix(b.server.Once(), b.base)
		Expect(b.get(ctx, first).StatusCode).To(Equal(http.StatusForbidden), "a newer one has taken its place")
		Expect(b.get(ctx, second).Request.URL.Path).To(Equal("/"))
		Expect(b.get(ctx, "/login?token=")).To(haveStatus(http.StatusForbidden, ""))
	})
})
