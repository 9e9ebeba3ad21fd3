package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/membudget"
)

var _ = Describe("WebSockets of a gateway", Label("IDS-03", "IDS-04"), func() {
	// served is a server whose Threads cannot be made, with its address.
	served := func(edit func(*definitions.Gateway)) (*Server, string) {
		s := serverOf(func(g *definitions.Gateway) {
			g.Limits.PerAddress, g.Limits.PerThread, g.Limits.Total, g.Limits.NewThreads = 1_000_000, 1_000_000, 1_000_000, 1_000_000
			if edit != nil {
				edit(g)
			}
		})
		s.opts.Objects = &counting{}
		s.stopping = make(chan struct{})
		h := httptest.NewServer(http.HandlerFunc(s.serve))
		DeferCleanup(h.Close)
		return s, "ws" + strings.TrimPrefix(h.URL, "http") + "/ns/chat/v1/socket"
	}
	dial := func(ctx context.Context, url string) *websocket.Conn {
		GinkgoHelper()
		c, _, err := websocket.Dial(ctx, url, nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = c.CloseNow() })
		return c
	}
	// until reads until the server has closed, and returns how.
	until := func(ctx context.Context, c *websocket.Conn) websocket.StatusCode {
		for {
			if _, _, err := c.Read(ctx); err != nil {
				return websocket.CloseStatus(err)
			}
		}
	}
	// left is what the bodies of the gateway chat may still take.
	left := func(s *Server) []int64 {
		l := s.limits.limiterOf(s.opts.Gateways.(declared)["ns/chat"])
		return []int64{l.bodies.left.Load(), int64(len(l.sockets)), int64(len(l.open))}
	}
	nothing := []int64{maxGatewayBodies, 0, 0}

	It("that flood at once use bounded memory, are closed, and leave nothing behind", func(ctx SpecContext) {
		s, url := served(func(g *definitions.Gateway) { g.Limits.Open = 200 })
		var all sync.WaitGroup
		var closed, refused atomic.Int32
		large := []byte(`{"content":"` + strings.Repeat("x", 60_000) + `"}`)
		for range 400 {
			all.Go(func() {
				defer GinkgoRecover()
				c, resp, err := websocket.Dial(ctx, url, nil)
				if err != nil {
					Expect(resp.StatusCode).To(Equal(http.StatusTooManyRequests))
					refused.Add(1)
					return
				}
				go func() {
					for c.Write(ctx, websocket.MessageText, large) == nil {
					}
				}()
				until(ctx, c) // as a flood, or because what it sends leaves no room for its answers to pings
				_ = c.CloseNow()
				closed.Add(1)
			})
		}
		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			all.Wait()
		}()
		Eventually(ctx, func(g Gomega) {
			now := left(s)
			if now[0] < 0 || now[1] > 200 {
				StopTrying("a bound was passed").Now()
			}
			g.Expect(flooded).To(BeClosed())
		}).WithPolling(time.Millisecond).Should(Succeed())
		Expect(closed.Load()).To(BeNumerically(">=", 200))
		Eventually(ctx, func() []int64 { return left(s) }).Should(Equal(nothing))
	}, SpecTimeout(2*time.Minute))

	It("whose messages find no memory in their namespace are closed, and hold nothing", func(ctx SpecContext) {
		s, url := served(nil)
		s.opts.Memory = membudget.New(8<<20, time.Millisecond)
		c := dial(ctx, url)
		_, _, err := c.Read(ctx) // open
		Expect(err).NotTo(HaveOccurred())
		others := s.opts.Memory.Open("ns")
		Expect(others.TryDraw(4 << 20)).To(Succeed())
		Expect(c.Write(ctx, websocket.MessageText, []byte(`{"content":"hello"}`))).To(Succeed())
		Expect(until(ctx, c)).To(Equal(websocket.StatusTryAgainLater))
		Eventually(ctx, s.opts.Memory.Used).Should(BeEquivalentTo(4 << 20))
	}, SpecTimeout(time.Minute))

	It("that send a message slowly, and those that go in the middle of one, give back what they hold", func(ctx SpecContext) {
		s, url := served(nil)
		s.requestTime = 50 * time.Millisecond
		slow := dial(ctx, url)
		w, err := slow.Writer(ctx, websocket.MessageText)
		Expect(err).NotTo(HaveOccurred())
		_, err = w.Write([]byte(strings.Repeat("x", 10_000))) // and no more
		Expect(err).NotTo(HaveOccurred())
		until(ctx, slow)
		gone := dial(ctx, url)
		w, err = gone.Writer(ctx, websocket.MessageText)
		Expect(err).NotTo(HaveOccurred())
		_, err = w.Write([]byte(strings.Repeat("x", 10_000)))
		Expect(err).NotTo(HaveOccurred())
		Expect(gone.CloseNow()).To(Succeed())
		Eventually(ctx, func() []int64 { return left(s) }).Should(Equal(nothing))
	}, SpecTimeout(time.Minute))

	It("are closed after repeated refusals, for one reason or several", func(ctx SpecContext) {
		s, url := served(func(g *definitions.Gateway) { g.Limits.MessageBytes = 100 })
		c := dial(ctx, url)
		_, _, err := c.Read(ctx) // open
		Expect(err).NotTo(HaveOccurred())
		wrong := []string{"hello", `{"content":" "}`, `{"content":"` + strings.Repeat("x", 101) + `"}`}
		refused := 0
		for ; ; refused++ {
			Expect(refused).To(BeNumerically("<=", maxRefusals))
			_ = c.Write(ctx, websocket.MessageText, []byte(wrong[refused%len(wrong)]))
			if _, _, err = c.Read(ctx); err != nil {
				break
			}
		}
		Expect(websocket.CloseStatus(err)).To(Equal(websocket.StatusPolicyViolation))
		Expect(err).To(MatchError(ContainSubstring("BadRequest")))
		Expect(refused).To(Equal(maxRefusals))
		Eventually(ctx, func() []int64 { return left(s) }).Should(Equal(nothing))
	}, SpecTimeout(time.Minute))

	DescribeTable("are closed with the next message once what they were opened with is withdrawn", Label("IDS-04", "IDS-06"), func(ctx SpecContext, before, after func(*definitions.Gateway), reason string) {
		const user = "X-User"
		s, url := served(func(g *definitions.Gateway) {
			g.APIKeys = [][]byte{[]byte("the first api key"), []byte("the second api key")}
			g.Origins = []string{"https://shop.example.com"}
			if before != nil {
				before(g)
			}
		})
		s.opts.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: http.Header{
			"Authorization": {"Bearer the first api key"}, "Origin": {"https://shop.example.com"}, user: {"ada"},
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = c.CloseNow() })
		_, _, err = c.Read(ctx) // open
		Expect(err).NotTo(HaveOccurred())
		now := *s.opts.Gateways.(declared)["ns/chat"]
		after(&now)
		s.opts.Gateways.(declared)["ns/chat"] = &now
		Expect(c.Write(ctx, websocket.MessageText, []byte(`{"content":"hello"}`))).To(Succeed())
		_, data, err := c.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(And(ContainSubstring(`"event":"error"`), ContainSubstring(reason)))
		Expect(until(ctx, c)).To(Equal(websocket.StatusPolicyViolation))
		Expect(s.opts.Objects.(*counting).created.Load()).To(BeZero())
	},
		Entry("the API key", nil, func(g *definitions.Gateway) { g.APIKeys = g.APIKeys[1:] }, "send a key that is valid here"),
		Entry("the key that signed the id", nil, func(g *definitions.Gateway) {
			keys, err := ids.NewKeyring([]byte("another key of 32 bytes, or so.."))
			Expect(err).NotTo(HaveOccurred())
			g.IDs.Keys = keys
		}, "its key is no longer in use"),
		Entry("the origin of the page", nil, func(g *definitions.Gateway) { g.Origins = nil }, "pages of other sites"),
		Entry("the key that makes ids of users", func(g *definitions.Gateway) {
			g.UserHeader, g.UserKey = "X-User", []byte("a key for users, of 32 bytes")
		},
			func(g *definitions.Gateway) { g.UserKey = []byte("another key for users, of 32") }, "open another one"),
		Entry("the way to conversations", nil, func(g *definitions.Gateway) {
			g.UserHeader, g.UserKey = "X-User", []byte("a key for users, of 32 bytes")
		}, "open another one"),
	)

	DescribeTable("are closed for what was sent, also while a ping waits for its answer", func(ctx SpecContext, code websocket.StatusCode, send func(context.Context, *websocket.Conn)) {
		s, url := served(nil)
		s.pingTime = time.Millisecond
		pinged, closed := make(chan struct{}, 1), make(chan websocket.StatusCode, 1)
		c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool {
			pinged <- struct{}{}
			return false // no answer
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = c.CloseNow() })
		go func() { closed <- until(ctx, c) }()
		Eventually(ctx, pinged).Should(Receive())
		send(ctx, c)
		var got websocket.StatusCode
		Eventually(ctx, closed).Should(Receive(&got))
		Expect(got).To(Equal(code))
		Eventually(ctx, func() []int64 { return left(s) }).Should(Equal(nothing))
	},
		Entry("bytes", SpecTimeout(time.Minute), websocket.StatusUnsupportedData, func(ctx context.Context, c *websocket.Conn) {
			Expect(c.Write(ctx, websocket.MessageBinary, []byte("hello"))).To(Succeed())
		}),
		Entry("a message that is too large", SpecTimeout(time.Minute), websocket.StatusMessageTooBig, func(ctx context.Context, c *websocket.Conn) {
			Expect(c.Write(ctx, websocket.MessageText, make([]byte, 64<<10+socketFrames+1))).To(Succeed())
		}),
		Entry("too many messages", SpecTimeout(time.Minute), websocket.StatusPolicyViolation, func(ctx context.Context, c *websocket.Conn) {
			for range maxRefusals + 1 { // one waits
				Expect(c.Write(ctx, websocket.MessageText, []byte(`{"content":"x"}`))).To(Succeed())
			}
		}),
	)

	It("stay open for the reason of their end when reading ends in the middle of a ping", func(ctx SpecContext) {
		gone, cancel := context.WithCancel(ctx)
		over := make(chan struct{})
		h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			conn, err := websocket.Accept(w, r, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect((&conversation{conn: conn}).ping(gone)).To(MatchError(context.Canceled))
			close(over)
			_ = conn.Close(websocket.StatusUnsupportedData, "")
		}))
		h.Listener = pinging{h.Listener, func(closed <-chan struct{}) {
			cancel()
			select {
			case <-closed:
			case <-over:
			}
		}}
		h.Start()
		DeferCleanup(h.Close)
		Expect(until(ctx, dial(ctx, "ws"+strings.TrimPrefix(h.URL, "http")))).To(Equal(websocket.StatusUnsupportedData))
	}, SpecTimeout(time.Minute))

	It("are closed for what was sent before they were greeted", func(ctx SpecContext) {
		s, _ := served(nil)
		gone, cancel := context.WithCancel(ctx)
		read := make(chan error, 1)
		read <- errNoFrame
		cancel()
		c := &conversation{server: s, opened: &request{Request: get(), answer: httptest.NewRecorder()}}
		code, _ := c.serve(gone, read)
		Expect(code).To(Equal(websocket.StatusUnsupportedData))
	}, SpecTimeout(time.Minute))

	It("are closed when the server stops, and when limits refuse them again and again", func(ctx SpecContext) {
		s, url := served(func(g *definitions.Gateway) { g.Limits.PerThread = 1 })
		loud := dial(ctx, url)
		_, _, err := loud.Read(ctx) // open
		Expect(err).NotTo(HaveOccurred())
		limited := 0
		for loud.Write(ctx, websocket.MessageText, []byte(`{"content":"x"}`)) == nil {
			_, data, err := loud.Read(ctx)
			if err != nil {
				Expect(websocket.CloseStatus(err)).To(Equal(websocket.StatusPolicyViolation))
				break
			}
			if strings.Contains(string(data), "TooMany") {
				limited++
			}
		}
		Expect(limited).To(Equal(maxRefusals))
		calm := dial(ctx, url)
		_, _, err = calm.Read(ctx)
		Expect(err).NotTo(HaveOccurred())
		close(s.stopping)
		Expect(until(ctx, calm)).To(Equal(websocket.StatusGoingAway))
		Eventually(ctx, func() []int64 { return left(s) }).Should(Equal(nothing))
	}, SpecTimeout(time.Minute))
})

// pinging accepts connections. Something happens before each ping that is sent over one; it gets a channel that is closed with the connection.
type pinging struct {
	net.Listener
	happens func(closed <-chan struct{})
}

func (l pinging) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &pinged{Conn: c, happens: l.happens, closed: make(chan struct{})}, err
}

type pinged struct {
	net.Conn
	happens func(closed <-chan struct{})
	once    sync.Once
	closed  chan struct{}
}

func (c *pinged) Write(b []byte) (int, error) {
	const ping = 0x89 // the first byte of its frame
	if b[0] == ping {
		c.happens(c.closed)
	}
	return c.Conn.Write(b)
}

func (c *pinged) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
