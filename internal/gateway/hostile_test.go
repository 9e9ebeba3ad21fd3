package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/gateway/ids"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/membudget"
)

// counting counts the Threads that are created, and creates none.
type counting struct{ created atomic.Int32 }

func (c *counting) CreateGatewayThread(context.Context, *definitions.Gateway, string, string) (*skeinv1.Thread, error) {
	c.created.Add(1)
	return nil, errors.New("the API server is away")
}

func (c *counting) RemoveRefused(context.Context, *skeinv1.Thread) error { return nil }

var _ = Describe("Hostile clients", Label("IDS-04"), func() {
	post := func(i int) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/ns/chat/v1/message", strings.NewReader(`{"content":"hello"}`))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)}), 1).String()
		return r
	}

	It("that begin 10,000 conversations from 10,000 addresses are refused, and use little", func() {
		objects := &counting{}
		s := serverOf(nil)
		s.opts.Objects = objects
		var refused atomic.Int32
		var all sync.WaitGroup
		for worker := range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				for i := range 500 {
					got := ask(s, post(worker*500+i))
					if got.StatusCode != http.StatusTooManyRequests {
						continue
					}
					refused.Add(1)
					var body errorBody
					Expect(json.NewDecoder(got.Body).Decode(&body)).To(Succeed())
					Expect(body.Error.Message).To(ContainSubstring("wait a little"))
					Expect(*body.Error.Code).To(Equal("rate_limit_exceeded"))
					Expect(got.Header.Get("Retry-After")).NotTo(BeEmpty())
				}
			})
		}
		all.Wait()
		limits := definitions.DefaultGatewayLimits()
		// What may come at once, and what comes back while the requests run.
		Expect(objects.created.Load()).To(And(BeNumerically(">=", limits.NewThreads/6), BeNumerically("<", 5*limits.NewThreads)))
		Expect(refused.Load()).To(Equal(10_000 - objects.created.Load()))
		l := s.limits.limiterOf(s.opts.Gateways.(declared)["ns/chat"])
		Expect(l.threads.Len()).To(BeNumerically("<=", maxThreads))
		Expect(l.addresses.Len()).To(BeNumerically("<=", maxAddresses))
		Expect(l.open).To(BeEmpty(), "no place is kept")
	})

	DescribeTable("that say something twice are told to say it once", func(change func(*http.Request), said string) {
		r := post(1)
		change(r)
		got := ask(serverOf(nil), r)
		Expect(got.StatusCode).To(Equal(http.StatusBadRequest))
		var body errorBody
		Expect(json.NewDecoder(got.Body).Decode(&body)).To(Succeed())
		Expect(body.Error.Message).To(ContainSubstring(said))
	},
		Entry("the key of a message", func(r *http.Request) {
			r.Header["Idempotency-Key"] = []string{"one", "two"}
		}, "send one Idempotency-Key, not 2"),
		Entry("the length of a page", func(r *http.Request) {
			r.Method, r.URL.Path, r.URL.RawQuery = http.MethodGet, "/ns/chat/v1/messages", "limit=1&limit=2"
		}, "set limit once, not 2 times"),
		Entry("with a query that cannot be read", func(r *http.Request) {
			r.Method, r.URL.Path, r.URL.RawQuery = http.MethodGet, "/ns/chat/v1/messages", "limit=%zz"
		}, "the query cannot be read"),
	)

	It("that ask for 10,000 gateways that do not exist leave nothing behind", func() {
		s := serverOf(nil)
		for i := range 10_000 {
			Expect(ask(s, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/ns/g%d/v1/messages", i), nil)).StatusCode).To(Equal(404))
		}
		Expect(s.limits.all.Len()).To(BeZero())
	})

	It("that ask an id service too often are refused before it is asked", func() {
		s := serverOf(func(g *definitions.Gateway) {
			g.Provider = &definitions.IDProvider{Timeout: time.Second}
			g.Limits.Total = 60
		})
		codes := map[int]int{}
		for i := range 1000 {
			got := ask(s, post(i))
			codes[got.StatusCode]++
			Expect(got.Header.Get("x-thread-id")).To(BeEmpty(), "there is no fallback")
		}
		Expect(codes[429]).To(BeNumerically(">", 900))
		Expect(codes[503] + codes[429]).To(Equal(1000))
	})

	It("that send an id of another gateway's key, of another form, or several, get no conversation of others", func() {
		s := serverOf(func(g *definitions.Gateway) { g.IDs.Strict = true })
		keys := s.opts.Gateways.(declared)["ns/chat"].IDs.Keys
		other, err := ids.NewKeyring([]byte("a key of somebody else altogether"))
		Expect(err).NotTo(HaveOccurred())
		id := ids.New()
		signed, resigned := keys.Sign(id), other.Sign(id)
		_, signature, _ := strings.Cut(signed, ";")
		for name, r := range map[string]*http.Request{
			"re-signed": get("x-thread-id", resigned), "cut": get("x-thread-id", signed[:len(signed)-1]), "doubled": get("x-thread-id", signed+","+signed),
			"twice": get("x-thread-id", signed, "x-thread-id", signed), "signed twice": get("x-thread-id", signed+";"+signature), "the signature of a signature": get("x-thread-id", signed+";"+keys.Sign(signed)),
			"a good cookie behind a bad header": get("x-thread-id", resigned, "Cookie", "atid="+strings.ReplaceAll(signed, ";", "%3B")),
			"two cookies":                       get("Cookie", "atid="+strings.ReplaceAll(signed, ";", "%3B")+"; atid="+strings.ReplaceAll(resigned, ";", "%3B")),
			"escaped twice":                     get("Cookie", "atid="+strings.ReplaceAll(signed, ";", "%253B")),
			"a null character":                  get("x-thread-id", signed+"\x00"),
		} {
			got := ask(s, r)
			Expect(got.StatusCode).To(Equal(401), name)
			Expect(got.Header.Get("x-thread-id")).NotTo(HavePrefix(id), name)
		}
		both := ask(s, get("x-thread-id", signed, "Cookie", "atid="+strings.ReplaceAll(keys.Sign(ids.New()), ";", "%3B")))
		Expect(both.StatusCode).To(Equal(200))
		Expect(both.Header.Get("x-thread-id")).To(Equal(signed), "the header counts before the cookie")
	})

	DescribeTable("that send slowly lose their connection, and others are answered meanwhile", func(ctx SpecContext, first string, answered OmegaMatcher) {
		s := serverOf(func(g *definitions.Gateway) { g.Limits.PerAddress = 10_000 })
		s.headerTime, s.requestTime = 300*time.Millisecond, 600*time.Millisecond
		address := listening(ctx, s)
		var conns []net.Conn
		for range 50 {
			c, err := net.Dial("tcp", address)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(c.Close)
			_, err = io.WriteString(c, first)
			Expect(err).NotTo(HaveOccurred())
			conns = append(conns, c)
		}
		resp, err := http.Get("http://" + address + "/ns/chat/v1/messages")
		Expect(err).NotTo(HaveOccurred())
		_ = resp.Body.Close()
		Expect(resp.StatusCode).To(Equal(200))
		for _, c := range conns {
			got, err := io.ReadAll(bufio.NewReader(c)) // to the end of the connection
			if err == nil {
				Expect(string(got)).To(answered)
			}
		}
	},
		Entry("half a header", "GET /ns/chat/v1/messages HTTP/1.1\r\nHost: a\r\nX-A: b", Or(BeEmpty(), ContainSubstring("408"))),
		Entry("nothing at all", "", BeEmpty()),
		Entry("half a body", "POST /ns/chat/v1/message HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", ContainSubstring("did not arrive whole")),
		Entry("half a chat completion", "POST /ns/chat/v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", ContainSubstring("did not arrive whole")),
	)

	It("that open all the connections there are from one address leave room for others, and what they took is free again", func(ctx SpecContext) {
		s := serverOf(nil, "127.0.0.1/32")
		s.connections = 8 * partOfAddress
		address := listening(ctx, s)
		dial := func(from string) net.Conn {
			GinkgoHelper()
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err := d.DialContext(ctx, "tcp", address)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { _ = c.Close() }) // where the spec has not
			return c
		}
		ended := func(c net.Conn) bool { // or it stays open for as long as the test reads
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		}
		var all []net.Conn
		for range 10 * partOfAddress {
			c := dial("127.0.0.9")
			_, _ = io.WriteString(c, "GET /ns/chat/v1/messages HTTP/1.1\r\n") // it may be closed already
			all = append(all, c)
		}
		open := func() (n int) {
			for _, c := range all {
				if !ended(c) {
					n++
				}
			}
			return n
		}
		Eventually(ctx, open).Should(Equal(8), "one address has an eighth")
		answer := func(from string) string {
			c := dial(from)
			_, _ = io.WriteString(c, "GET /ns/chat/v1/messages HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			got, _ := io.ReadAll(c)
			return string(got)
		}
		for range 20 {
			Expect(answer("127.0.0.8")).To(HavePrefix("HTTP/1.1 200"))
		}
		for range 20 { // a proxy has as many as it needs
			all = append(all, dial("127.0.0.1"))
		}
		Eventually(ctx, open).Should(Equal(28))
		for _, c := range all {
			_ = c.Close()
		}
		Eventually(ctx, func() string { return answer("127.0.0.9") }).Should(HavePrefix("HTTP/1.1 200"))
	}, SpecTimeout(time.Minute))

	It("that begin no handshake lose their connection at a listener with a certificate", func(ctx SpecContext) {
		s := serverOf(nil)
		s.headerTime = 300 * time.Millisecond
		server := httptest.NewTLSServer(nil)
		s.opts.TLS = &tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}
		server.Close()
		c, err := net.Dial("tcp", listening(ctx, s))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		got, _ := io.ReadAll(c)
		Expect(got).To(BeEmpty())
	})

	It("that send many large bodies at once use bounded memory, and other gateways have room", func() {
		s := serverOf(nil)
		s.opts.Memory = membudget.New(1<<30, time.Hour)
		other := *s.opts.Gateways.(declared)["ns/chat"]
		other.Name = "other"
		s.opts.Gateways.(declared)["ns/other"] = &other
		chat := func(i int, gateway string, body io.Reader) *http.Response {
			r := httptest.NewRequest(http.MethodPost, "/ns/"+gateway+"/v1/chat/completions", body)
			r.Header.Set("Content-Type", "application/json")
			return ask(s, from(fmt.Sprintf("192.0.2.%d:1", i), r))
		}
		const fit = maxGatewayBodies / (1 << 20)
		var read, all sync.WaitGroup
		end := make(chan struct{})
		read.Add(fit)
		for i := range fit {
			all.Go(func() {
				defer GinkgoRecover()
				Expect(chat(i, "chat", &stalled{1 << 20, &read, end}).StatusCode).To(Equal(400))
			})
		}
		read.Wait()
		got := chat(100, "chat", strings.NewReader(`{"model":"agent"}`))
		Expect(got.StatusCode).To(Equal(429))
		Expect(got.Header.Get("Retry-After")).To(Equal("1"))
		Expect(chat(100, "other", strings.NewReader(`{"model":"agent"}`)).StatusCode).To(Equal(400), "there is room for others")
		close(end)
		all.Wait()
		Expect(chat(101, "chat", strings.NewReader(`{"model":"agent"}`)).StatusCode).To(Equal(400), "there is room again")
		Expect(s.limits.limiterOf(&other).bodies.left.Load()).To(Equal(int64(maxGatewayBodies)))
		Expect(s.limits.limiterOf(s.opts.Gateways.(declared)["ns/chat"]).bodies.left.Load()).To(Equal(int64(maxGatewayBodies)))
		Expect(s.opts.Memory.Used()).To(BeZero())
	})

	It("that send bodies without end are refused at the bound", func(ctx SpecContext) {
		s := serverOf(nil)
		address := listening(ctx, s)
		for path, bound := range map[string]int{"v1/message": 64 << 10, "v1/chat/completions": 1 << 20} {
			sent := &endless{}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/ns/chat/"+path, sent)
			Expect(err).NotTo(HaveOccurred())
			r.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(r)
			if err == nil { // the answer may be lost when the server closes the connection while the client still sends
				Expect(resp.StatusCode).To(Equal(413))
				_ = resp.Body.Close()
			}
			Expect(sent.bytes.Load()).To(BeNumerically("<", bound+(16<<20)), "what buffers of the system hold comes on top")
		}
	})
})

// stalled is a body that ends when it is told to. It tells when all but the end has been read.
type stalled struct {
	left int
	read *sync.WaitGroup
	end  chan struct{}
}

func (s *stalled) Read(p []byte) (int, error) {
	if s.left == 0 {
		s.read.Done()
		<-s.end
		return 0, io.ErrUnexpectedEOF
	}
	n := min(s.left, len(p))
	s.left -= n
	for i := range p[:n] {
		p[i] = ' '
	}
	return n, nil
}

// endless is a body without end.
type endless struct{ bytes atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.bytes.Add(int64(len(p)))
	return len(p), nil
}
