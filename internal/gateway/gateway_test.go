package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/lookup"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/test/access"
)

// TestRightsHaveARowForEachPath compares the rows of docs/rights.md with the paths that are served.
func TestRightsHaveARowForEachPath(t *testing.T) {
	table, err := access.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	served := map[access.Row]bool{
		{Door: "Gateway", Resource: webhookPath, Verb: http.MethodPost}: true, {Door: "Gateway", Resource: modelsPath, Verb: http.MethodGet}: true,
	}
	for path, p := range paths {
		served[access.Row{Door: "Gateway", Resource: path, Verb: p.method}] = true
	}
	for method := range endpointMethods {
		served[access.Row{Door: "Gateway", Resource: endpointsPath + "/{path}", Verb: method}] = true
	}
	for r := range served {
		if table[r] == nil {
			t.Errorf("%s has no row for %s: add it", access.Page, r)
		}
	}
	for r := range table {
		if r.Door == "Gateway" && !served[r] {
			t.Errorf("%s has a row for %s, which is not served", access.Page, r)
		}
	}
}

func TestGateway(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Gateway")
}

// declared are gateways of a test, by namespace and name.
type declared map[string]*definitions.Gateway

func (d declared) Find(_ context.Context, namespace, name string) (*definitions.Gateway, error) {
	if g, ok := d[namespace+"/"+name]; ok {
		return g, nil
	}
	return nil, &definition.NotReadyError{Reason: skeinv1.ReasonReferenceNotFound, Message: "a message with names"}
}

// serverOf returns a server with one gateway, chat of the namespace ns. It has no conversations.
func serverOf(edit func(*definitions.Gateway), proxies ...string) *Server {
	GinkgoHelper()
	keys, err := ids.NewKeyring([]byte("a key of 32 bytes, or about that"))
	Expect(err).NotTo(HaveOccurred())
	g := &definitions.Gateway{
		Namespace: "ns", Name: "chat", Agent: "agent", IDs: ids.Source{Keys: keys}, AnswerTimeout: time.Minute,
		Limits: definitions.DefaultGatewayLimits(),
	}
	if edit != nil {
		edit(g)
	}
	scheme := runtime.NewScheme()
	Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
	s := &Server{
		opts: Options{Gateways: declared{"ns/chat": g}, Engine: room{}}, limits: newLimiters(), hooks: newHookRates(),
		headerTime: headerTime, requestTime: requestTime, pingTime: pingTime, connections: maxConnections,
		finder: &lookup.Finder{Reader: fake.NewClientBuilder().WithScheme(scheme).Build()},
	}
	for _, p := range proxies {
		s.opts.TrustedProxies = append(s.opts.TrustedProxies, netip.MustParsePrefix(p))
	}
	return s
}

func ask(s *Server, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	s.serve(w, r)
	return w.Result()
}

func get(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/ns/chat/v1/messages", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// from makes a request come from an address.
func from(address string, r *http.Request) *http.Request {
	r.RemoteAddr = address
	return r
}

var _ = Describe("A gateway", Label("IDS-03"), func() {
	It("answers each request with ids, and in a way that is safe in a browser", func() {
		for _, r := range []*http.Request{
			get(), httptest.NewRequest(http.MethodGet, "/ns/chat/v1/none", nil), httptest.NewRequest(http.MethodPut, "/ns/chat/v1/messages", nil),
			httptest.NewRequest(http.MethodPost, "/ns/chat/v1/message", strings.NewReader("{")),
		} {
			got := ask(serverOf(nil), r)
			Expect(got.Header.Get("x-thread-id")).To(HavePrefix("thrd_"))
			Expect(got.Cookies()).To(HaveLen(1))
			Expect(got.Header.Get("x-session-id")).To(HavePrefix("sess_"))
			Expect(got.Header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
			Expect(got.Header.Get("Content-Security-Policy")).To(ContainSubstring("sandbox"))
			Expect(got.Header.Get("Content-Type")).To(Equal("application/json"))
		}
	})

	It("says nothing about gateways that are not there or not ready", func() {
		for _, path := range []string{"/", "/ns", "/ns/chat", "/ns/other/v1/messages", "/NS/chat/v1/messages", "/../chat/v1/messages", "/ns/" + strings.Repeat("a", 1<<16) + "/v1/messages"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL.Path = path
			got := ask(serverOf(nil), r)
			Expect(got.StatusCode).To(Equal(404), path)
			var body errorBody
			Expect(json.NewDecoder(got.Body).Decode(&body)).To(Succeed())
			Expect(body.Error.Message).To(Equal(errNoGateway.message))
		}
	})

	It("lets a user in by the header of a trusted proxy alone", Label("IDS-06"), func() {
		users := func(g *definitions.Gateway) {
			g.UserHeader, g.UserKey = "X-User-Id", []byte("another key of 32 bytes, or about")
		}
		s := serverOf(users, "10.0.0.0/8")
		got := ask(s, from("10.1.2.3:4", get("X-User-Id", "ada")))
		Expect(got.StatusCode).To(Equal(200))
		id := got.Header.Get("x-thread-id")
		Expect(ask(s, from("10.1.2.3:4", get("X-User-Id", "ada"))).Header.Get("x-thread-id")).To(Equal(id))
		for _, r := range []*http.Request{
			from("192.0.2.1:4", get("X-User-Id", "ada")), from("10.1.2.3:4", get()), from("10.1.2.3:4", get("X-User-Id", "")),
			from("10.1.2.3:4", get("X-User-Id", "ada", "X-User-Id", "bob")), from("10.1.2.3:4", get("X-User-Id", strings.Repeat("a", 254))),
			from("192.0.2.1:4", get("X-User-Id", "ada", "X-Forwarded-For", "10.1.2.3")), from("10.1.2.3:4", get("x-thread-id", id)),
		} {
			got := ask(s, r)
			Expect(got.StatusCode).To(Equal(401))
			Expect(got.Header.Get("x-thread-id")).To(BeEmpty())
		}
		Expect(ask(serverOf(users), from("10.1.2.3:4", get("X-User-Id", "ada"))).StatusCode).To(Equal(401), "no proxy is trusted")
	})

	DescribeTable("knows the address of a client", func(remote, want string, forwarded ...string) {
		r := from(remote, get())
		for _, f := range forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		Expect(serverOf(nil, "10.0.0.0/8", "fd00::/8").address(r).String()).To(Equal(want))
	},
		Entry("that connects itself", "192.0.2.1:4", "192.0.2.1"),
		Entry("that lies about it", "192.0.2.1:4", "192.0.2.1", "198.51.100.1"),
		Entry("behind a proxy", "10.0.0.1:4", "198.51.100.1", "198.51.100.1"),
		Entry("behind two", "10.0.0.1:4", "198.51.100.1", "198.51.100.1, 10.9.9.9"),
		Entry("that lies behind a proxy", "10.0.0.1:4", "198.51.100.1", "1.1.1.1, 198.51.100.1"),
		Entry("in two headers", "10.0.0.1:4", "198.51.100.1", "1.1.1.1", "198.51.100.1"),
		Entry("behind a proxy that says nothing of use", "10.0.0.1:4", "10.0.0.1", "unknown"),
		Entry("of IPv6", "[fd00::1]:4", "2001:db8::1", "2001:db8::1"),
		Entry("of IPv4 in IPv6", "[::ffff:10.0.0.1]:4", "198.51.100.1", "::ffff:198.51.100.1"),
	)

	It("refuses requests beyond a limit, and serves other clients", func() {
		s := serverOf(func(g *definitions.Gateway) { g.Limits.PerAddress, g.Limits.PerThread = 12, 6 })
		status := func(r *http.Request) int { return ask(s, r).StatusCode }
		for range 10 {
			Expect(status(from("192.0.2.1:4", get()))).To(Equal(200))
		}
		got := ask(s, from("192.0.2.1:4", get()))
		Expect(got.StatusCode).To(Equal(429))
		Expect(got.Header.Get("Retry-After")).NotTo(BeEmpty())
		Expect(status(from("192.0.2.2:4", get()))).To(Equal(200))
		for i := range 10 {
			Expect(status(from(fmt.Sprintf("[2001:db8::%x]:4", i), get()))).To(Equal(200))
		}
		Expect(status(from("[2001:db8::ffff]:4", get()))).To(Equal(429), "the same /64")
		l := s.limits.limiterOf(s.opts.Gateways.(declared)["ns/chat"])
		for range 6 {
			Expect(l.request("thrd_a", netip.MustParseAddr("198.51.100.7"))).To(BeEmpty())
		}
		Expect(l.request("thrd_a", netip.MustParseAddr("198.51.100.8"))).To(Equal("this conversation"))
	})

	It("bounds what it remembers of clients", func() {
		l := newLimiters().limiterOf(&definitions.Gateway{Limits: skeinv1.GatewayLimits{PerThread: 1, PerAddress: 1, Total: 1_000_000, NewThreads: 1, Open: 1}})
		for i := range 3 * maxThreads {
			l.request(fmt.Sprint(i), netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		Expect([]int{l.threads.Len(), l.addresses.Len()}).To(Equal([]int{maxThreads, maxAddresses}))
		leave := l.enter()
		Expect(leave).NotTo(BeNil())
		Expect(l.enter()).To(BeNil())
		leave()
		Expect(l.enter()).NotTo(BeNil())
	})
})

var _ = Describe("The name of a Thread", func() {
	g := &definitions.Gateway{Namespace: "ns", Name: "chat"}

	It("follows from gateway and id, and fits a label", func() {
		name := kube.GatewayThread(g, "thrd_a")
		Expect(name).To(MatchRegexp(`^chat-[a-z2-7]{32}$`))
		Expect(kube.GatewayThread(g, "thrd_a")).To(Equal(name))
		Expect(kube.GatewayThread(g, "thrd_A")).NotTo(Equal(name), "ids tell capitals apart, names cannot")
		Expect(kube.GatewayThread(&definitions.Gateway{Namespace: "other", Name: "chat"}, "thrd_a")).NotTo(Equal(name))
		Expect(kube.GatewayThread(&definitions.Gateway{Namespace: "ns", Name: strings.Repeat("a.", 31) + "a"}, "thrd_a")).To(MatchRegexp(`^[-a-z2-7]{1,63}$`))
	})
})

var _ = Describe("The Thread of an id", Label("IDS-04"), func() {
	It("is created once, and a foreign Thread of its name is never used", func(ctx SpecContext) {
		g := &definitions.Gateway{Namespace: "ns", Name: "chat", Agent: "agent"}
		scheme := runtime.NewScheme()
		Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
		c := fake.NewClientBuilder().WithScheme(scheme).Build()
		threads := kube.NewThreads(c, c)
		for range 3 {
			Expect(threads.CreateGatewayThread(ctx, g, "thrd_a", "ada")).To(HaveField("Name", kube.GatewayThread(g, "thrd_a")))
		}
		var list skeinv1.ThreadList
		Expect(c.List(ctx, &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Spec).To(Equal(skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: "agent"}, UserID: "ada"}))

		foreign := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: kube.GatewayThread(g, "thrd_b")}}
		Expect(c.Create(ctx, foreign)).To(Succeed())
		_, err := threads.CreateGatewayThread(ctx, g, "thrd_b", "")
		Expect(err).To(MatchError(kube.ErrOtherThread))
		s := serverOf(nil)
		s.finder = &lookup.Finder{Reader: c}
		_, _, err = s.open(&request{Request: get(), gateway: g, id: "thrd_b"})
		Expect(err).To(MatchError(kube.ErrOtherThread))
		Expect(problemOf(ctx, err)).To(Equal(errInternal), "its name is no business of people outside")
	})
})

var _ = Describe("The user of a Thread", Label("IDS-04", "RUN-08"), func() {
	It("is the one that is given, and without one differs between two ids", func(ctx SpecContext) {
		scheme := runtime.NewScheme()
		Expect(skeinv1.AddToScheme(scheme)).To(Succeed())
		c := fake.NewClientBuilder().WithScheme(scheme).Build()
		g := &definitions.Gateway{Namespace: "ns", Name: "chat", Agent: "agent"}
		userOf := func(id, user string) string {
			GinkgoHelper()
			t, err := kube.NewThreads(c, c).CreateGatewayThread(ctx, g, id, user)
			Expect(err).NotTo(HaveOccurred())
			return t.Spec.UserID
		}
		Expect(userOf("thrd_ada", "ada")).To(Equal("ada"))
		first, second := userOf("thrd_a", ""), userOf("thrd_b", "")
		Expect(first).NotTo(BeEmpty(), "threads without a user share one memory")
		Expect(second).NotTo(Or(BeEmpty(), Equal(first)))
		Expect(userOf("thrd_a", "")).To(Equal(first))
		Expect(first).NotTo(ContainSubstring("thrd_a"), "the id does not follow from it")
		Expect(skeinv1.UserLabel(first)).To(Equal(first), "a label selects variables of this conversation")
	})
})

var _ = Describe("A listener", func() {
	It("refuses headers of 10 MB, and goes on", func(ctx SpecContext) {
		s := serverOf(nil)
		var err error
		s.opts.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		s.stopping = make(chan struct{})
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- s.Start(running) }()
		url := "http://" + s.Addr().String() + "/ns/chat/v1/messages"
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		Expect(err).NotTo(HaveOccurred())
		r.Header.Set("x-thread-id", strings.Repeat("A", 10<<20))
		// The answer may be lost when the server closes the connection while the client still sends.
		if resp, err := client.Do(r); err == nil {
			Expect(resp.StatusCode).To(Equal(http.StatusRequestHeaderFieldsTooLarge))
			_ = resp.Body.Close()
		}
		resp, err := client.Get(url)
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.StatusCode).To(Equal(200))
		_ = resp.Body.Close()
		stop()
		Eventually(done).Should(Receive(BeNil()))
	})

	It("has a bounded number of connections open", func() {
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		l := limitListener(inner, 1, func(netip.Addr) bool { return false }).(*limited)
		for range 2 {
			c, err := net.Dial("tcp", inner.Addr().String())
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(c.Close)
		}
		first, err := l.Accept()
		Expect(err).NotTo(HaveOccurred())
		accepted := make(chan net.Conn, 1)
		go func() {
			c, _ := l.Accept()
			accepted <- c
		}()
		Expect(l.free).To(HaveLen(cap(l.free)), "there is no room for the second")
		Expect(first.Close()).To(Succeed())
		Eventually(accepted).Should(Receive(Not(BeNil())))
		Expect(l.Close()).To(Succeed())
		_, err = l.Accept()
		Expect(err).To(HaveOccurred())
	})
})

// listening starts a server on a port of its own. It ends with the spec.
func listening(ctx context.Context, s *Server) (address string) {
	GinkgoHelper()
	var err error
	s.opts.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	s.stopping = make(chan struct{})
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(done, stopTime+5*time.Second).Should(Receive(BeNil()))
	})
	return s.Addr().String()
}

// room is an engine that takes messages, or says why it takes none.
type room struct {
	Engine
	full error
}

func (r room) CheckMessageRoom(context.Context, string) error { return r.full }
