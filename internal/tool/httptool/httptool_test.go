package httptool_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/httptool"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/tool/tooltest"
)

func TestHTTPTool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "HTTP tools")
}

// seen is a request as a server received it.
type seen struct {
	Method, URI, Body string
	Header            http.Header
}

var _ = Describe("HTTP tools", Label("TOL-02"), func() {
	var (
		host   *tool.Host
		server *httptest.Server
		mu     sync.Mutex
		got    []seen
		answer http.HandlerFunc
		net    *outbound.Network
	)
	ctx := context.Background()
	BeforeEach(func() {
		var closed func() error
		var err error
		host, closed, err = tooltest.NewHost(ctx, GinkgoT().TempDir(), map[string]string{"TOKEN": "s3cr3t/&?="})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(closed)
		got, answer = nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }
		server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			got = append(got, seen{r.Method, r.RequestURI, string(body), r.Header.Clone()})
			mu.Unlock()
			answer(w, r)
		}))
		DeferCleanup(server.Close)
		private, err := outbound.ParseHosts([]string{"127.0.0.1", "localhost"})
		Expect(err).NotTo(HaveOccurred())
		net = outbound.New(outbound.Policy{Private: private})
		DeferCleanup(net.Close)
	})
	call := func(spec skeinv1.HTTPTool, secrets httptool.Secrets, args string) tool.Result {
		GinkgoHelper()
		if strings.HasPrefix(spec.URL, "/") {
			spec.URL = server.URL + spec.URL
		}
		r, err := httptool.Compile(&spec, secrets)
		Expect(err).NotTo(HaveOccurred())
		t := httptool.New(httptool.Spec{Name: "t", Request: r, Timeout: 20 * time.Second}, host, net)
		return t.Call(ctx, tool.Call{ID: "call_1", Name: "t", Arguments: json.RawMessage(args)})
	}
	lastSeen := func() seen {
		GinkgoHelper()
		mu.Lock()
		defer mu.Unlock()
		Expect(got).NotTo(BeEmpty())
		return got[len(got)-1]
	}

	DescribeTable("escape each value for its place", func(spec skeinv1.HTTPTool, args, uri, body string) {
		res := call(spec, httptool.Secrets{}, args)
		Expect(res).To(Equal(tool.Success("fine")))
		Expect(lastSeen().URI).To(Equal(uri))
		Expect(lastSeen().Body).To(Equal(body))
	},
		Entry("in the path", skeinv1.HTTPTool{URL: "/orders/{{arguments.id}}/x"}, `{"id":"a/b?c#d%2f e"}`, "/orders/a%2Fb%3Fc%23d%252f%20e/x", ""),
		Entry("numbers as they are written", skeinv1.HTTPTool{URL: "/o/{{ arguments.n }}?f={{arguments.f}}"}, `{"n":12345678901234567890,"f":1.50}`, "/o/12345678901234567890?f=1.50", ""),
		Entry("in the query", skeinv1.HTTPTool{URL: "/s?q={{ arguments.q }}&x=1"}, `{"q":"a&b=c d"}`, "/s?q=a%26b%3Dc+d&x=1", ""),
		Entry("lists in the query", skeinv1.HTTPTool{URL: "/s?tag={{ arguments.tags }}"}, `{"tags":["a","b c",3]}`, "/s?tag=a&tag=b+c&tag=3", ""),
		Entry("absent arguments in the query, which are left out", skeinv1.HTTPTool{URL: "/s?q={{ arguments.q }}&p=p-{{ arguments.p }}&n=1"}, `{"p":null}`, "/s?n=1", ""),
		Entry("nested arguments", skeinv1.HTTPTool{URL: "/s/{{ arguments.a.b.1 }}"}, `{"a":{"b":["x","y"]}}`, "/s/y", ""),
		Entry("variables", skeinv1.HTTPTool{URL: "/s?t={{ env.TOKEN }}"}, `{}`, "/s?t=s3cr3t%2F%26%3F%3D", ""),
		Entry("the arguments as the body", skeinv1.HTTPTool{Method: "POST", URL: "/s"}, `{"a":[1,"x"]}`, "/s", `{"a":[1,"x"]}`),
		Entry("in JSON", skeinv1.HTTPTool{Method: "POST", URL: "/s", Body: &skeinv1.HTTPBody{Template: `{"v":{{arguments.v}},"s":{{arguments.s}},"in":"<{{arguments.s}}> \"{{arguments.v}}\"","none":{{arguments.none}},"nil":"{{arguments.none}}"}`}},
			`{"v":{"k":[1]},"s":"a\"b\\c\n<&"}`, "/s", `{"v":{"k":[1]},"s":"a\"b\\c\n<&","in":"<a\"b\\c\n<&> \"{\"k\":[1]}\"","none":null,"nil":""}`),
		Entry("in a form", skeinv1.HTTPTool{Method: "POST", URL: "/s", Body: &skeinv1.HTTPBody{Template: `a={{arguments.a}}&b={{arguments.b}}`, ContentType: "application/x-www-form-urlencoded"}}, `{"a":"x&y=z"}`, "/s", "a=x%26y%3Dz&b="),
		Entry("in XML", skeinv1.HTTPTool{Method: "PUT", URL: "/s", Body: &skeinv1.HTTPBody{Template: `<a b="{{arguments.a}}">{{arguments.a}}</a>`, ContentType: "application/xml"}}, `{"a":"<x y=\"z\">"}`, "/s", `<a b="&lt;x y=&#34;z&#34;&gt;">&lt;x y=&#34;z&#34;&gt;</a>`),
		Entry("in text", skeinv1.HTTPTool{Method: "POST", URL: "/s", Body: &skeinv1.HTTPBody{Template: `hello {{arguments.a}}`, ContentType: "text/plain"}}, `{"a":"<you>"}`, "/s", "hello <you>"),
	)

	It("render JSON templates to valid JSON for any values", func() {
		res := call(skeinv1.HTTPTool{Method: "POST", URL: "/s", Body: &skeinv1.HTTPBody{Template: `{"in":"{{arguments.s}}","v":{{arguments.s}}}`}}, httptool.Secrets{}, `{"s":"\"},{\"x\":1 \u2028 {{env.TOKEN}}"}`)
		Expect(res.Status).To(Equal(tool.StatusSuccess))
		Expect(lastSeen().Body).To(MatchJSON(`{"in":"\"},{\"x\":1 \u2028 {{env.TOKEN}}","v":"\"},{\"x\":1 \u2028 {{env.TOKEN}}"}`), "placeholders within values are not filled in")
	})

	DescribeTable("tell the model which arguments are invalid", func(spec skeinv1.HTTPTool, args string, want ...string) {
		res := call(spec, httptool.Secrets{}, args)
		Expect(res.Status).To(Equal(tool.StatusError))
		for _, w := range want {
			Expect(res.Content).To(ContainSubstring(w))
		}
		Expect(got).To(BeEmpty())
	},
		Entry("an empty segment", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}"}, `{"id":""}`, "arguments.id", "must not be empty"),
		Entry("an absent argument", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}"}, `{}`, "arguments.id"),
		Entry("a parent folder", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}/x"}, `{"id":".."}`, `".."`),
		Entry("a parent folder after an escaped slash, which servers may decode", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}/x"}, `{"id":"../admin"}`, `".."`),
		Entry("a parent folder further in", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}/x"}, `{"id":"a/../../admin"}`, `".."`),
		Entry("a parent folder with a backslash", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}/x"}, `{"id":"..\\admin"}`, `".."`),
		Entry("a parent folder that is escaped already", skeinv1.HTTPTool{URL: "/o/{{ arguments.id }}/x"}, `{"id":"..%2Fadmin"}`, `".."`),
		Entry("a parent folder in two pieces", skeinv1.HTTPTool{URL: "/o/{{ arguments.a }}{{ arguments.a }}/x"}, `{"a":"."}`, `".."`),
		Entry("a line break in a header", skeinv1.HTTPTool{URL: "/o", Headers: []skeinv1.ToolHeader{{Name: "X", Value: ptr.To("v {{ arguments.id }}")}}}, `{"id":"a\r\nB: c"}`, "arguments.id", "line break"),
		Entry("a variable that is not set", skeinv1.HTTPTool{URL: "/o?a={{ env.NOT_THERE }}"}, `{}`, "NOT_THERE"),
	)

	DescribeTable("report mistakes in their spec", func(spec skeinv1.HTTPTool, want ...string) {
		_, err := httptool.Compile(&spec, httptool.Secrets{})
		for _, w := range want {
			Expect(err).To(MatchError(ContainSubstring(w)))
		}
	},
		Entry("an unknown placeholder", skeinv1.HTTPTool{URL: "https://x.test/{{ id }}"}, "spec.http.url", "{{ id }}", "{{ arguments.NAME }}"),
		Entry("a placeholder that is not closed", skeinv1.HTTPTool{URL: "https://x.test/{{ arguments.id"}, "spec.http.url"),
		Entry("a placeholder in the host", skeinv1.HTTPTool{URL: "https://x.{{ arguments.id }}/"}, "without placeholders"),
		Entry("a user", skeinv1.HTTPTool{URL: "https://a:b@x.test/"}, "spec.http.auth"),
		Entry("a parent folder", skeinv1.HTTPTool{URL: "https://x.test/a/../b"}, `".."`),
		Entry("a template that is not JSON", skeinv1.HTTPTool{URL: "https://x.test/", Body: &skeinv1.HTTPBody{Template: `{"a": {{ arguments.a }}`}}, "spec.http.body", "JSON"),
		Entry("a header twice", skeinv1.HTTPTool{URL: "https://x.test/", Headers: []skeinv1.ToolHeader{{Name: "x-a", Value: ptr.To("1")}, {Name: "X-A", Value: ptr.To("2")}}}, "spec.http.headers[1]", "twice"),
		Entry("an invalid JSON path", skeinv1.HTTPTool{URL: "https://x.test/", Result: &skeinv1.HTTPResult{JSONPath: "{.a["}}, "spec.http.result"),
		Entry("arguments in the result", skeinv1.HTTPTool{URL: "https://x.test/", Result: &skeinv1.HTTPResult{Template: "{{ arguments.a }}"}}, "{{ body"),
		Entry("an invalid host", skeinv1.HTTPTool{URL: "https://x.test/", AllowedHosts: []string{"https://y"}}, "spec.http.allowedHosts"),
		Entry("an empty secret", skeinv1.HTTPTool{URL: "https://x.test/", Auth: &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{}}}, "auth", "empty"),
	)

	It("send credentials, a signature and the idempotency key", func() {
		spec := skeinv1.HTTPTool{Method: "POST", URL: "/a%20b?x={{ arguments.x }}", Auth: &skeinv1.ToolAuth{Basic: &skeinv1.ToolBasicAuth{Username: "ada"}}, Signing: &skeinv1.HTTPSigning{},
			Headers: []skeinv1.ToolHeader{{Name: "x-key"}, {Name: "X-Note", Value: ptr.To("n {{ arguments.x }}")}, {Name: "X-None", Value: ptr.To("{{ arguments.none }}")}}}
		secrets := httptool.Secrets{Auth: "pass:word", Signing: []byte("the key"), Headers: map[string]string{"x-key": "k-1"}}
		Expect(call(spec, secrets, `{"x":"1"}`).Status).To(Equal(tool.StatusSuccess))
		s := lastSeen()
		Expect(s.Header.Get("Authorization")).To(Equal("Basic " + base64.StdEncoding.EncodeToString([]byte("ada:pass:word"))))
		Expect(s.Header.Get("X-Key")).To(Equal("k-1"))
		Expect(s.Header.Get("X-Note")).To(Equal("n 1"))
		Expect(s.Header).NotTo(HaveKey("X-None"))
		Expect(s.Header.Get("Content-Type")).To(Equal("application/json"))
		digest := sha256.Sum256([]byte(s.Body))
		Expect(s.Header.Get("Content-Digest")).To(Equal("sha-256=:" + base64.StdEncoding.EncodeToString(digest[:]) + ":"))
		mac := hmac.New(sha256.New, []byte("the key"))
		_, _ = fmt.Fprintf(mac, "POST\n/a%%20b?x=1\n%s\n%x", s.Header.Get("Skein-Timestamp"), digest)
		Expect(s.Header.Get("Skein-Signature")).To(Equal("v1=" + hex.EncodeToString(mac.Sum(nil))))
		key := s.Header.Get("Idempotency-Key")
		Expect(key).NotTo(BeEmpty())
		call(spec, secrets, `{"x":"1"}`)
		Expect(lastSeen().Header.Get("Idempotency-Key")).To(Equal(key), "the same call")
		Expect(tool.IdempotencyKey(host.Thread.ID, "call_1")).To(Equal(key))
		Expect(tool.IdempotencyKey(host.Thread.ID, "call_2")).NotTo(Equal(key))
		Expect(tool.IdempotencyKey("other", "call_1")).NotTo(Equal(key))
	})

	DescribeTable("return the selected part of a response", func(r *skeinv1.HTTPResult, want string) {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Total", "7")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"items":[{"name":"a","n":1},{"name":"b","n":2}],"note":"x","big":12345678901234567890}`)
		}
		Expect(call(skeinv1.HTTPTool{URL: "/", Result: r}, httptool.Secrets{}, `{}`)).To(Equal(tool.Success(want)))
	},
		Entry("the whole body", nil, `{"items":[{"name":"a","n":1},{"name":"b","n":2}],"note":"x","big":12345678901234567890}`),
		Entry("a text", &skeinv1.HTTPResult{JSONPath: "{.note}"}, "x"),
		Entry("several values", &skeinv1.HTTPResult{JSONPath: "{.items[*].name}"}, `["a","b"]`),
		Entry("an object", &skeinv1.HTTPResult{JSONPath: "{.items[1]}"}, `{"n":2,"name":"b"}`),
		Entry("no value", &skeinv1.HTTPResult{JSONPath: "{.none}"}, `null`),
		Entry("a template", &skeinv1.HTTPResult{Template: "{{ status }} {{ headers.x-total }} {{ body.items.1.name }} {{ body.big }} {{body.none}}."}, "201 7 b 12345678901234567890 ."),
	)

	It("return every failure as a result", func() {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, "id must be even")
		}
		Expect(call(skeinv1.HTTPTool{URL: "/"}, httptool.Secrets{}, `{}`)).To(Equal(
			tool.Result{Status: tool.StatusError, Content: "the server answered 422 Unprocessable Entity: id must be even", Service: &tool.ServiceFailure{Status: 422}}))
		answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 2000)) }
		res := call(skeinv1.HTTPTool{URL: "/", MaxResponseBytes: ptr.To[int64](1999)}, httptool.Secrets{}, `{}`)
		Expect(res.Status).To(Equal(tool.StatusError))
		Expect(res.Content).To(And(ContainSubstring("1999"), ContainSubstring("maxResponseBytes")))
		Expect(call(skeinv1.HTTPTool{URL: "/", MaxResponseBytes: ptr.To[int64](2000)}, httptool.Secrets{}, `{}`).Status).To(Equal(tool.StatusSuccess))
		answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		before := len(got)
		res = call(skeinv1.HTTPTool{Method: "DELETE", URL: "/?t={{ env.TOKEN }}"}, httptool.Secrets{}, `{}`)
		Expect(got).To(HaveLen(before+1), "the received part is not repeated")
		Expect(res.Status).To(Equal(tool.StatusError))
		Expect(res.Content).To(And(ContainSubstring("127.0.0.1"), Not(ContainSubstring("s3cr3t"))))
		res = call(skeinv1.HTTPTool{URL: "/", Result: &skeinv1.HTTPResult{JSONPath: "{.a}"}}, httptool.Secrets{}, `{}`)
		Expect(res.Status).To(Equal(tool.StatusError))
	})

	DescribeTable("say when the server wants to be asked again", func(header string, want time.Duration) {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		}
		failure := call(skeinv1.HTTPTool{URL: "/"}, httptool.Secrets{}, `{}`).Service
		Expect(failure).To(HaveValue(HaveField("Status", 429)))
		Expect(failure.RetryAfter).To(BeNumerically("~", want, time.Minute))
	},
		Entry("in seconds", "7200", 2*time.Hour),
		Entry("at a time", time.Now().Add(3*time.Hour).UTC().Format(http.TimeFormat), 3*time.Hour),
		Entry("at a time that has passed", time.Now().Add(-3*time.Hour).UTC().Format(http.TimeFormat), time.Duration(0)),
		Entry("in a way that cannot be read", "soon", time.Duration(0)),
		Entry("before now", "-5", time.Duration(0)),
	)

	It("tell a server that did not answer from a request that was not made", func() {
		answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		Expect(call(skeinv1.HTTPTool{URL: "/"}, httptool.Secrets{}, `{}`).Service).To(Equal(&tool.ServiceFailure{}))
		Expect(call(skeinv1.HTTPTool{URL: "http://127.0.0.1:1/"}, httptool.Secrets{}, `{}`).Service).To(Equal(&tool.ServiceFailure{}), "nobody listens")
		Expect(call(skeinv1.HTTPTool{URL: "http://169.254.169.254/"}, httptool.Secrets{}, `{}`).Service).To(BeNil(), "refused")
		Expect(call(skeinv1.HTTPTool{URL: "/{{ arguments.id }}"}, httptool.Secrets{}, `{}`).Service).To(BeNil(), "an argument is missing")
	})

	It("redact secrets before they cut a response, since half a secret would not be found", func() {
		const secret = "0123456789abcdef"
		host.Redact = func(text string) string { return strings.ReplaceAll(text, secret, "[redacted]") }
		for _, at := range []int{4<<10 - 8, 200 - 8} {
			answer = func(w http.ResponseWriter, _ *http.Request) {
				if at > 1000 {
					w.WriteHeader(http.StatusInternalServerError)
				}
				_, _ = io.WriteString(w, strings.Repeat("x", at)+secret+strings.Repeat("y", 1000))
			}
			for _, result := range []*skeinv1.HTTPResult{{JSONPath: "{.a}"}, {Template: "{{ body.a }}"}} {
				res := call(skeinv1.HTTPTool{URL: "/", Result: result}, httptool.Secrets{}, `{}`)
				Expect(res.Status).To(Equal(tool.StatusError))
				Expect(res.Content).To(And(ContainSubstring("x[redac"), Not(ContainSubstring("01234567"))))
			}
		}
	})

	It("report a timeout, and return at once when the call is cancelled", func() {
		release := make(chan struct{})
		DeferCleanup(func() { close(release) })
		arrived := make(chan struct{})
		answer = func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/given" { // the other request may not arrive in time
				close(arrived)
			}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		r, err := httptool.Compile(&skeinv1.HTTPTool{URL: server.URL}, httptool.Secrets{})
		Expect(err).NotTo(HaveOccurred())
		res := httptool.New(httptool.Spec{Request: r, Timeout: 50 * time.Millisecond}, host, net).Call(ctx, tool.Call{ID: "c", Arguments: json.RawMessage(`{}`)})
		Expect(res.Status).To(Equal(tool.StatusError))
		Expect(res.Content).To(And(ContainSubstring("50ms"), ContainSubstring("spec.timeout")))
		r, err = httptool.Compile(&skeinv1.HTTPTool{URL: server.URL + "/given"}, httptool.Secrets{})
		Expect(err).NotTo(HaveOccurred())
		given, giveUp := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			httptool.New(httptool.Spec{Request: r}, host, net).Call(given, tool.Call{ID: "c", Arguments: json.RawMessage(`{}`)})
		}()
		Eventually(arrived).Should(BeClosed())
		giveUp()
		Eventually(done).Should(BeClosed())
	})

	It("write files into the thread", func() {
		png := "\x89PNG\r\n\x1a\n\x00"
		answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			_, _ = io.WriteString(w, png)
		}
		res := call(skeinv1.HTTPTool{URL: "/"}, httptool.Secrets{}, `{}`)
		Expect(res.Status).To(Equal(tool.StatusSuccess))
		Expect(res.Attachments).To(HaveExactElements(And(HaveField("Path", "/attachments/call_1-1.png"), HaveField("MimeType", "image/png"), HaveField("Size", int64(9)))))
		Expect(call(skeinv1.HTTPTool{URL: "/"}, httptool.Secrets{}, `{}`)).To(Equal(res), "a repeat writes the same file")
	})

	Describe("that are redirected", func() {
		var other *httptest.Server
		var otherGot []seen
		BeforeEach(func() {
			otherGot = nil
			other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				otherGot = append(otherGot, seen{r.Method, r.RequestURI, string(body), r.Header.Clone()})
				_, _ = io.WriteString(w, "other")
			}))
			DeferCleanup(other.Close)
		})
		to := func(code int, url string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/end" {
					_, _ = io.WriteString(w, "end")
					return
				}
				w.Header().Set("Location", url)
				w.WriteHeader(code)
			}
		}
		spec := skeinv1.HTTPTool{Method: "POST", URL: "/", Auth: &skeinv1.ToolAuth{Bearer: &skeinv1.ToolSecret{}}, Signing: &skeinv1.HTTPSigning{}, AllowedHosts: []string{"localhost"},
			Headers: []skeinv1.ToolHeader{{Name: "X-Env", Value: ptr.To("{{ env.TOKEN }}")}, {Name: "X-Secret"}, {Name: "X-Plain", Value: ptr.To("p")}, {Name: "Cookie", Value: ptr.To("c=1")}}}
		secrets := httptool.Secrets{Auth: "bearer", Signing: []byte("k"), Headers: map[string]string{"X-Secret": "x"}}

		It("follow within their host, and sign again", func() {
			answer = to(http.StatusTemporaryRedirect, "/end?x=1")
			Expect(call(spec, secrets, `{"a":1}`)).To(Equal(tool.Success("end")))
			s := lastSeen()
			Expect(s.Method + s.URI + s.Body).To(Equal(`POST/end?x=1{"a":1}`))
			Expect(s.Header.Get("Authorization")).To(Equal("Bearer bearer"))
			Expect(s.Header.Get("Skein-Signature")).NotTo(Equal(got[0].Header.Get("Skein-Signature")))
			Expect(s.Header.Get("Idempotency-Key")).To(Equal(got[0].Header.Get("Idempotency-Key")))
			answer = to(http.StatusSeeOther, "/end")
			Expect(call(spec, secrets, `{"a":1}`)).To(Equal(tool.Success("end")))
			Expect(lastSeen().Method + lastSeen().Body).To(Equal("GET"))
		})
		It("send no credentials to another host or port", func() {
			for _, host := range []string{"localhost", "127.0.0.1"} {
				otherGot = nil
				answer = to(http.StatusTemporaryRedirect, strings.Replace(other.URL, "127.0.0.1", host, 1)+"/there")
				Expect(call(spec, secrets, `{"a":1}`)).To(Equal(tool.Success("other")))
				Expect(otherGot).To(HaveLen(1))
				Expect(otherGot[0].Header.Get("X-Plain")).To(Equal("p"))
				for _, name := range []string{"Authorization", "X-Env", "X-Secret", "Cookie", "Skein-Signature", "Skein-Timestamp"} {
					Expect(otherGot[0].Header).NotTo(HaveKey(name), host)
				}
			}
		})
		It("refuse hosts that are not named, private addresses, leaving https, and endless redirects", func() {
			plain := skeinv1.HTTPTool{URL: "/"}
			answer = to(http.StatusFound, strings.Replace(other.URL, "127.0.0.1", "localhost", 1))
			Expect(call(plain, httptool.Secrets{}, `{}`).Content).To(And(ContainSubstring("localhost"), ContainSubstring("allowedHosts")))
			plain.AllowedHosts = []string{"*.internal", "10.0.0.1", "169.254.169.254"}
			answer = to(http.StatusFound, "http://169.254.169.254/latest/meta-data")
			Expect(call(plain, httptool.Secrets{}, `{}`).Content).To(And(ContainSubstring("169.254.169.254"), ContainSubstring("--tool-private-hosts")))
			for _, scheme := range []string{"file:///etc/passwd", "gopher://127.0.0.1/"} {
				answer = to(http.StatusFound, scheme)
				Expect(call(plain, httptool.Secrets{}, `{}`).Status).To(Equal(tool.StatusError))
			}
			answer = to(http.StatusFound, "/again")
			got = nil
			plain.MaxRedirects = ptr.To[int32](2)
			Expect(call(plain, httptool.Secrets{}, `{}`).Content).To(ContainSubstring("more than the 2 times"))
			Expect(got).To(HaveLen(3))
			Expect(otherGot).To(BeEmpty())
		})
	})
})
