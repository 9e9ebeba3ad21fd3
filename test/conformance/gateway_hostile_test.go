package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// maxGrowth is by how much the memory of the manager may grow while clients of a gateway take what they can: half of what twenty headers of 10 MB would take.
const maxGrowth = 100 << 20

// peakGrowth returns a function that returns by how many bytes the most memory that the manager has had has grown since.
func peakGrowth() func() int64 {
	GinkgoHelper()
	before := residentPeak(manager.PID())
	return func() int64 { return residentPeak(manager.PID()) - before }
}

var _ = Describe("Hostile clients of the gateway", Label("IDS-04"), func() {
	It("that begin 10,000 conversations are refused with clear errors, and another tenant is served meanwhile", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) {
			s.Limits = &skeinv1.GatewayLimits{PerAddress: 1_000_000, Total: 1_000_000, NewThreads: 60}
		})
		calm, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 40}}
		var begun, refused, others atomic.Int32
		var all sync.WaitGroup
		url, body := "http://"+door+"/"+ns+"/chat/v1/message", []byte(said("hello"))
		grown, began := peakGrowth(), time.Now()
		for range 40 {
			all.Go(func() {
				defer GinkgoRecover()
				for range 250 {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
					Expect(err).NotTo(HaveOccurred())
					req.Header.Set("Content-Type", "application/json")
					resp, err := client.Do(req)
					Expect(err).NotTo(HaveOccurred())
					data, err := io.ReadAll(resp.Body)
					Expect(err).NotTo(HaveOccurred())
					_ = resp.Body.Close()
					switch resp.StatusCode {
					case http.StatusOK:
						begun.Add(1)
					case http.StatusTooManyRequests:
						refused.Add(1)
						var b struct {
							Error struct{ Reason, Message string }
						}
						Expect(json.Unmarshal(data, &b)).To(Succeed())
						Expect(b.Error.Reason).To(Equal("TooMany"))
						Expect(b.Error.Message).To(ContainSubstring("wait a little"))
						Expect(resp.Header.Get("Retry-After")).NotTo(BeEmpty())
					default:
						others.Add(1)
						AddReportEntry("another answer", resp.Status+" "+string(data))
					}
				}
			})
		}
		tell(ctx, browser(), calm, "I am here too")
		tell(ctx, browser(), calm, "and again")
		all.Wait()
		AddReportEntry("flood", fmt.Sprintf("%.0f new ids a second; the manager's memory grew by %d MiB", 10_000/time.Since(began).Seconds(), grown()>>20))
		Expect(grown()).To(BeNumerically("<", maxGrowth))
		tell(ctx, browser(), calm, "and afterwards")
		Expect(others.Load()).To(BeZero())
		Expect(begun.Load() + refused.Load()).To(Equal(int32(10_000)))
		Expect(refused.Load()).To(BeNumerically(">", 9_000))
		Expect(madeThreads(ctx, ns)).To(HaveLen(int(begun.Load())), "who is refused leaves nothing")
	}, SpecTimeout(5*time.Minute))

	It("that ask too often are refused by conversation and by address, and other clients are served", func(ctx SpecContext) {
		refusedFor := func(ns, whose string, header ...string) {
			GinkgoHelper()
			r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", header...)
			for n := 0; r.status == http.StatusOK && n < 1000; n++ {
				r = knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", header...)
			}
			Expect(r).To(refusedWith(http.StatusTooManyRequests, And(ContainSubstring(`"reason":"TooMany"`), ContainSubstring("too many requests of "+whose))))
			Expect(r.header.Get("Retry-After")).NotTo(BeEmpty())
		}
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) { s.Limits.PerThread = 6 })
		first := tell(ctx, http.DefaultClient, ns, "hello")
		refusedFor(ns, "this conversation", "x-thread-id", first.id())
		tell(ctx, http.DefaultClient, ns, "of another conversation")

		ns, _ = openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) { s.Limits.PerAddress = 6 })
		refusedFor(ns, "this address", "X-Forwarded-For", "198.51.100.7")
		tell(ctx, http.DefaultClient, ns, "from another address", "X-Forwarded-For", "198.51.100.8")
	}, SpecTimeout(5*time.Minute))

	It("do not get into a conversation of another gateway, although both have the same key", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		second := gatewayOf(ns, "second", "agent")
		create(ctx, second)
		first := tell(ctx, http.DefaultClient, ns, "a secret of ada")
		Eventually(ctx, func(o Gomega) {
			r := knock(ctx, http.DefaultClient, "GET", ns, "second/v1/messages", "", "x-thread-id", first.id())
			o.Expect([]any{r.status, r.body}).To(Equal([]any{200, `{"messages":[]}` + "\n"}))
		}).Should(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("that open more connections than an address may, and send slowly, lose those beyond, and another tenant is served meanwhile", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		calm, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		const most, further = 512, 200 // of one address, see docs/gateway.md
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
		var lost atomic.Int32
		var reading sync.WaitGroup
		var conns []net.Conn
		for range most + further {
			c, err := dialer.DialContext(ctx, "tcp", door)
			Expect(err).NotTo(HaveOccurred())
			conns = append(conns, c)
			reading.Go(func() { // it gets nothing, until the connection ends
				_, _ = io.WriteString(c, "POST /"+ns+"/chat/v1/message HTTP/1.1\r\nHost: a\r\n")
				_, _ = io.Copy(io.Discard, c)
				lost.Add(1)
			})
		}
		for range 20 {
			tell(ctx, browser(), calm, "I am here too")
		}
		Eventually(ctx, lost.Load).Should(BeNumerically(">=", further))
		for _, c := range conns {
			_ = c.Close()
		}
		reading.Wait()
		tell(ctx, browser(), ns, "and nobody is kept out afterwards")
		Expect(madeThreads(ctx, ns)).To(HaveLen(1))
	}, SpecTimeout(5*time.Minute))

	It("with headers of 10 MB are refused, and others are served", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		large, grown := strings.Repeat("A", 10<<20), peakGrowth()
		var all sync.WaitGroup
		for _, name := range []string{"x-thread-id", "Cookie", "Authorization", "X-Other"} {
			for range 5 {
				all.Go(func() {
					defer GinkgoRecover()
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+door+"/"+ns+"/chat/v1/messages", nil)
					Expect(err).NotTo(HaveOccurred())
					req.Header.Set(name, large)
					// The answer may be lost when the server closes the connection while the client still sends.
					if resp, err := http.DefaultClient.Do(req); err == nil {
						Expect(resp.StatusCode).To(Equal(http.StatusRequestHeaderFieldsTooLarge), name)
						_ = resp.Body.Close()
					}
				})
			}
		}
		all.Wait()
		Expect(grown()).To(BeNumerically("<", maxGrowth))
		tell(ctx, http.DefaultClient, ns, "hello")
	}, SpecTimeout(5*time.Minute))
})
