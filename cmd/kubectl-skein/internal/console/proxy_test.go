package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// recorder is an API server that keeps the requests that reach it.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

// recording serves an API server that answers with f.
func recording(f http.HandlerFunc) *recorder {
	r := &recorder{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, req)
		r.mu.Unlock()
		f(w, req)
	}))
	r.EnableHTTP2 = true
	r.StartTLS()
	DeferCleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *recorder) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func empty(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

var _ = Describe("the proxy", func() {
	DescribeTable("forwards what the page uses, with the path as it is", Label("CON-01"), func(ctx SpecContext, method, path string) {
		api := recording(empty)
		b := open(optionsFor(api.Server))
		Expect(b.do(ctx, method, path, "").StatusCode).To(Equal(http.StatusOK))
		Expect(api.requests()).To(ConsistOf(And(HaveField("RequestURI", path), HaveField("Method", method))))
	},
		Entry(nil, "GET", thread),
		Entry(nil, "GET", thread+"/messages?limit=10&before=3"),
		Entry(nil, "GET", thread+"/messages/msg_1"),
		Entry(nil, "GET", thread+"/observe?follow=false"),
		Entry(nil, "GET", thread+"/events?after=latest"),
		Entry(nil, "GET", thread+"/files?path=%2Fa"),
		Entry(nil, "GET", thread+"/files/a/b.txt"),
		Entry("a slash, a space, ? and # in a name", "GET", thread+"/files/a%2Fb%20c%3Fd%23e%25f.txt?stat=true"),
		Entry("other letters", "GET", thread+"/files/%C3%BC%E2%82%AC;x=1,y.txt"),
		Entry("a name that looks escaped", "GET", thread+"/files/%252e%252e"),
		Entry(nil, "HEAD", thread+"/files/a.txt"),
		Entry(nil, "GET", thread+"/runs"),
		Entry(nil, "GET", thread+"/runs/sess_1"),
		Entry(nil, "GET", thread+"/approvals"),
		Entry(nil, "GET", thread+"/usage"),
		Entry(nil, "GET", thread+"/children"),
		Entry(nil, "GET", thread+"/relationships"),
		Entry(nil, "GET", thread+"/execution"),
		Entry(nil, "GET", thread+"/state"),
		Entry(nil, "GET", thread+"/kv"),
		Entry(nil, "GET", thread+"/kv/a%2Fb/c"),
		Entry(nil, "GET", thread+"/queue"),
		Entry(nil, "POST", thread+"/queue"),
		Entry(nil, "POST", thread+"/stop"),
		Entry(nil, "POST", thread+"/continue"),
		Entry(nil, "POST", thread+"/fork"),
		Entry(nil, "POST", thread+"/approvals/call_1"),
		Entry(nil, "POST", thread+"/runs/sess_1/cancel"),
		Entry(nil, "GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/demo/firings/daily"),
	)

	DescribeTable("refuses all other paths", Label("CON-04"), func(ctx SpecContext, method, path string) {
		api := recording(empty)
		b := open(optionsFor(api.Server))
		Expect(b.do(ctx, method, path, "")).To(haveStatus(http.StatusNotFound, "the console does not use"))
		Expect(api.requests()).To(BeEmpty())
	},
		Entry(nil, "GET", "/api/v1/namespaces/demo/secrets"),
		Entry(nil, "GET", "/apis/skein.dev/v1alpha1/namespaces/demo/threads"),
		Entry(nil, "DELETE", "/apis/skein.dev/v1alpha1/namespaces/demo/threads/orders"),
		Entry(nil, "GET", thread+"/env"),
		Entry(nil, "GET", thread+"/env/TOKEN"),
		Entry(nil, "GET", thread+"/export"),
		Entry(nil, "POST", thread+"/code"),
		Entry(nil, "POST", thread+"/destroy"),
		Entry(nil, "POST", thread+"/terminate"),
		Entry(nil, "PUT", thread+"/files/a.txt"),
		Entry(nil, "DELETE", thread+"/files/a.txt"),
		Entry(nil, "PATCH", thread),
		Entry(nil, "POST", thread+"/messages"),
		Entry(nil, "POST", thread+"/runs/sess_1/rerun"),
		Entry(nil, "GET", "/apis/runtime.skein.dev/v1alpha1/namespaces/demo/backups"),
		Entry(nil, "POST", "/apis/runtime.skein.dev/v1alpha1/namespaces/demo/firings/daily/cancel"),
		Entry(nil, "GET", "/version"),
		Entry(nil, "GET", "/metrics"),
	)

	DescribeTable("refuses paths that lead elsewhere", Label("CON-04"), func(ctx SpecContext, path string) {
		api := recording(empty)
		b := open(optionsFor(api.Server))
		Expect(b.get(ctx, path)).To(haveStatus(http.StatusBadRequest, ""))
		Expect(b.get(ctx, path).Header).NotTo(HaveKey("Location"))
		Expect(api.requests()).To(BeEmpty())
	},
		Entry(nil, thread+"/messages/../../../../../../api/v1/secrets"),
		Entry(nil, thread+"/files/../env"),
		Entry(nil, thread+"/files/%2e%2e/env"),
		Entry(nil, thread+"/files/%2E./env"),
		Entry(nil, thread+"/files/a%2F..%2F..%2Fenv"),
		Entry(nil, thread+"/files/a%2f%2e%2e%2fenv"),
		Entry(nil, thread+"/files/./a"),
		Entry(nil, thread+"/files//etc/passwd"),
		Entry(nil, thread+"/files/%2Fetc"),
		Entry(nil, thread+"/files/"),
		Entry(nil, thread+"/files/a%00b"),
		Entry(nil, thread+"/files/a%0d%0aX:y"),
		Entry(nil, "/apis/runtime.skein.dev/v1alpha1/namespaces/demo/threads/orders%2Fenv"),
		Entry(nil, "/apis/runtime.skein.dev/v1alpha1/namespaces/demo%2Fthreads%2Fother/threads/orders"),
		Entry(nil, thread+"/messages/a%2Fb"),
		Entry(nil, thread+"/runs/%2e%2e"),
		Entry(nil, "//evil.example/api"),
	)

	It("uses the credentials of the kubeconfig, and none of the browser", Label("CON-01"), func(ctx SpecContext) {
		api := recording(empty)
		o := optionsFor(api.Server)
		o.Config.Impersonate = rest.ImpersonationConfig{UserName: "ada", Groups: []string{"readers"}}
		b := open(o)
		got := b.get(ctx, thread, "Authorization", "Bearer browser", "Impersonate-User", "root", "Impersonate-Group", "system:masters", "Impersonate-Extra-a", "b", "X-Remote-User", "root",
			"X-Forwarded-For", "10.0.0.1", "Cookie", "other=1", "Origin", b.base, "Referer", b.base+"/x", "User-Agent", "browser", "Proxy-Authorization", "x", "Accept", "text/plain", "If-None-Match", "e")
		Expect(got.StatusCode).To(Equal(http.StatusOK))
		h := api.requests()[0].Header
		Expect(h.Get("Authorization")).To(Equal("Bearer viewer"))
		Expect(h["Impersonate-User"]).To(Equal([]string{"ada"}))
		Expect(h["Impersonate-Group"]).To(Equal([]string{"readers"}))
		Expect(h.Get("User-Agent")).NotTo(Equal("browser"))
		Expect(h.Get("Accept")).To(Equal("text/plain"))
		Expect(h.Get("If-None-Match")).To(Equal("e"))
		for _, name := range []string{"Cookie", "Origin", "Referer", "Impersonate-Extra-A", "X-Remote-User", "X-Forwarded-For", "Proxy-Authorization"} {
			Expect(h).NotTo(HaveKey(name))
		}
		Expect(api.requests()[0].Host).To(Equal(strings.TrimPrefix(api.URL, "https://")))
	})

	It("reaches an API server whose address has a path", func(ctx SpecContext) {
		api := recording(empty)
		o := optionsFor(api.Server)
		o.Config.Host += "/clusters/a%2Fb"
		b := open(o)
		Expect(b.get(ctx, thread+"/files/c%2Fd").StatusCode).To(Equal(http.StatusOK))
		Expect(api.requests()[0].RequestURI).To(Equal("/clusters/a%2Fb" + thread + "/files/c%2Fd"))
	})

	It("lets no content of a thread be a page of the console", Label("CON-04"), func(ctx SpecContext) {
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			for name, value := range map[string]string{
				"Set-Cookie": "skein-console-1=x", "Access-Control-Allow-Origin": "*", "Content-Security-Policy": "default-src *", "Refresh": "0;url=/", "Cache-Control": "public",
				"Content-Disposition": "inline", "Service-Worker-Allowed": "/", "Clear-Site-Data": `"*"`, "X-Content-Type-Options": "", "Www-Authenticate": "Basic",
				"Link": "</a>; rel=preload", "Skein-File-Record": "{}", "Etag": `"1"`,
			} {
				w.Header().Set(name, value)
			}
			_, _ = w.Write([]byte("<script>alert(1)</script>"))
		})
		b := open(optionsFor(api.Server))
		for _, path := range []string{thread, thread + "/files/page.html", thread + "/files/a%22%0b%C3%BC.html"} {
			if strings.Contains(path, "%0b") {
				Expect(b.get(ctx, path)).To(haveStatus(http.StatusBadRequest, ""))
				continue
			}
			got := b.get(ctx, path)
			Expect(got.StatusCode).To(Equal(http.StatusOK))
			Expect(got.Text).To(Equal("<script>alert(1)</script>"))
			Expect(got.Header["Content-Security-Policy"]).To(Equal([]string{"sandbox; default-src 'none'"}))
			Expect(got.Header["X-Content-Type-Options"]).To(Equal([]string{"nosniff"}))
			Expect(got.Header["Cache-Control"]).To(Equal([]string{"no-store"}))
			Expect(got.Header["Etag"]).To(Equal([]string{`"1"`}))
			for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Refresh", "Service-Worker-Allowed", "Clear-Site-Data", "Www-Authenticate", "Link"} {
				Expect(got.Header).NotTo(HaveKey(name))
			}
		}
		Expect(b.get(ctx, thread).Header).NotTo(HaveKey("Content-Disposition"))
		Expect(b.get(ctx, thread+"/files/a/page.html").Header["Content-Disposition"]).To(Equal([]string{"attachment; filename=page.html"}))
		Expect(b.get(ctx, thread+"/files/%C3%BC%20.html").Header.Get("Content-Disposition")).To(HavePrefix("attachment; filename*=utf-8''"))
		Expect(b.get(ctx, thread+"/files/page.html?thumbnail=true")).To(haveStatus(http.StatusBadGateway, `a thumbnail of the type \"text/html\"`))
	})

	It("shows thumbnails that are images", func(ctx SpecContext) {
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ".txt") {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header().Set("Content-Type", map[bool]string{true: "image/svg+xml", false: "image/png"}[strings.HasSuffix(r.URL.Path, ".svg")])
			_, _ = w.Write([]byte("bytes"))
		})
		b := open(optionsFor(api.Server))
		got := b.get(ctx, thread+"/files/a.png?thumbnail=true")
		Expect(got.Text).To(Equal("bytes"))
		Expect(got.Header).NotTo(HaveKey("Content-Disposition"))
		Expect(b.get(ctx, thread+"/files/a.png").Header["Content-Disposition"]).To(Equal([]string{"attachment; filename=a.png"}))
		Expect(b.get(ctx, thread+"/files/a.txt?thumbnail=true").StatusCode).To(Equal(http.StatusNoContent))
		Expect(b.get(ctx, thread+"/files/a.svg?thumbnail=true").StatusCode).To(Equal(http.StatusBadGateway))
	})

	It("says in its own words what is wrong on the way", func(ctx SpecContext) {
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/usage"):
				w.Header().Set("Www-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
			case strings.HasSuffix(r.URL.Path, "/runs"):
				http.Redirect(w, r, "https://evil.example/", http.StatusFound)
			case r.Method == http.MethodPost:
				_, _ = io.Copy(io.Discard, r.Body)
			default:
				w.WriteHeader(http.StatusTeapot)
				_, _ = w.Write([]byte("short"))
			}
		})
		b := open(optionsFor(api.Server))
		Expect(b.get(ctx, thread)).To(And(HaveField("StatusCode", http.StatusTeapot), HaveField("Text", "short")))
		unknown := b.get(ctx, thread+"/usage")
		Expect(unknown).To(haveStatus(http.StatusBadGateway, "does not accept the credentials of the kubeconfig"))
		Expect(unknown.Header).NotTo(HaveKey("Www-Authenticate"))
		Expect(b.get(ctx, thread+"/runs")).To(haveStatus(http.StatusBadGateway, "another address"))
		Expect(b.do(ctx, http.MethodPost, thread+"/queue", strings.Repeat("x", 1<<20+1))).To(haveStatus(http.StatusRequestEntityTooLarge, "write less"))
		api.CloseClientConnections()
		api.Listener.Close()
		Expect(b.get(ctx, thread)).To(haveStatus(http.StatusBadGateway, "the API server did not answer"))
	})

	It("sends each part of a stream at once", Label("CON-01"), func(ctx SpecContext) {
		next := make(chan string)
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for text := range next {
				_, _ = w.Write([]byte(text))
				_ = http.NewResponseController(w).Flush()
			}
		})
		b := open(optionsFor(api.Server))
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+thread+"/events", http.NoBody)
		Expect(err).NotTo(HaveOccurred())
		send := func(text string) {
			select {
			case next <- text:
			case <-ctx.Done():
			}
		}
		go send("data: 1\n\n") // Do returns after the head of the answer, which comes with the first part
		res, err := b.client.Do(r)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = res.Body.Close() }()
		got := make([]byte, 9)
		_, err = io.ReadFull(res.Body, got)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal("data: 1\n\n"))
		send("data: 2\n\n")
		_, err = io.ReadFull(res.Body, got)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal("data: 2\n\n"))
		close(next)
		rest, err := io.ReadAll(res.Body)
		Expect(err).NotTo(HaveOccurred())
		Expect(rest).To(BeEmpty())
	})

	It("forwards WebSockets with the right credentials", Label("CON-01"), func(ctx SpecContext) {
		const observe = "v1alpha1.observe.runtime.skein.dev"
		api := recording(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{observe}})
			if err != nil {
				return
			}
			defer func() { _ = conn.CloseNow() }()
			_, text, err := conn.Read(r.Context())
			if err == nil {
				_ = conn.Write(r.Context(), websocket.MessageText, append([]byte("echo "), text...))
				_ = conn.Close(websocket.StatusNormalClosure, "the end")
			}
		})
		b := open(optionsFor(api.Server))
		conn, _, err := b.socket(ctx, thread+"/observe?include=messages", websocket.DialOptions{
			Subprotocols: []string{"base64url.bearer.authorization.k8s.io.YnJvd3Nlcg", observe},
			HTTPHeader:   http.Header{"Authorization": {"Bearer browser"}, "Impersonate-User": {"root"}},
		})
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = conn.CloseNow() }()
		Expect(conn.Subprotocol()).To(Equal(observe))
		Expect(conn.Write(ctx, websocket.MessageText, []byte("hello"))).To(Succeed())
		_, text, err := conn.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(Equal("echo hello"))
		_, _, err = conn.Read(ctx)
		Expect(websocket.CloseStatus(err)).To(Equal(websocket.StatusNormalClosure))

		r := api.requests()[0]
		Expect(r.RequestURI).To(Equal(thread + "/observe?include=messages"))
		Expect(r.ProtoMajor).To(Equal(1))
		Expect(r.Header.Get("Authorization")).To(Equal("Bearer viewer"))
		Expect(r.Header["Sec-Websocket-Protocol"]).To(Equal([]string{observe}))
		for _, name := range []string{"Cookie", "Origin", "Impersonate-User"} {
			Expect(r.Header).NotTo(HaveKey(name))
		}
	})

	It("lets connections become WebSockets of threads only", Label("CON-04"), func(ctx SpecContext) {
		api := recording(empty)
		b := open(optionsFor(api.Server))
		_, res, err := b.socket(ctx, thread+"/messages", websocket.DialOptions{})
		Expect(err).To(HaveOccurred())
		Expect(res.StatusCode).To(Equal(http.StatusBadRequest))
		Expect(b.get(ctx, thread+"/observe", "Connection", "Upgrade", "Upgrade", "SPDY/3.1")).To(haveStatus(http.StatusBadRequest, "can only become a WebSocket"))
		Expect(b.get(ctx, "/api/live")).To(haveStatus(http.StatusUpgradeRequired, "is a WebSocket"))
		Expect(api.requests()).To(BeEmpty())
	})

	It("passes a refusal of a WebSocket on", func(ctx SpecContext) {
		api := recording(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","message":"you may not"}`))
		})
		b := open(optionsFor(api.Server))
		_, res, err := b.socket(ctx, thread+"/observe", websocket.DialOptions{})
		Expect(err).To(HaveOccurred())
		Expect(res.StatusCode).To(Equal(http.StatusForbidden))
	})

	It("ends a request when the browser does", func(ctx SpecContext) {
		begun, ended := make(chan struct{}), make(chan struct{})
		api := recording(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		b := open(optionsFor(api.Server))
		leaving, leave := context.WithCancel(ctx)
		go func() {
			defer leave()
			select {
			case <-begun:
			case <-ctx.Done():
			}
		}()
		r, err := http.NewRequestWithContext(leaving, http.MethodGet, b.base+thread, http.NoBody)
		Expect(err).NotTo(HaveOccurred())
		_, err = b.client.Do(r)
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).To(BeAssignableToTypeOf(&url.Error{}))
		Eventually(ctx, ended).Should(BeClosed())
	})
})
