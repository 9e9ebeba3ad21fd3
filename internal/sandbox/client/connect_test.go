//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("Connecting ahead", func() {
	two := sandbox.CodeRequest{Source: "export default () => 1 + 1"}

	It("makes the one connection that the streams use", func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), nil)
		var dials atomic.Int32
		c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "t",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		dialling, cancel := context.WithCancel(ctx)
		Expect(c.Connect(dialling)).To(Succeed())
		cancel() // it was only for the dial
		Expect(c.Connect(ctx)).To(Succeed())
		Expect(dials.Load()).To(BeEquivalentTo(1))
		for range 3 {
			Expect(c.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess))
		}
		Expect(dials.Load()).To(BeEquivalentTo(1))
	})

	It("does not claim the sandbox: the first run does", Label("COD-08"), func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), nil)
		early, late := s.Dial(GinkgoT(), "early"), s.Dial(GinkgoT(), "late")
		Expect(early.Connect(ctx)).To(Succeed())
		Expect(late.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess))
		r := early.RunCode(ctx, two).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
		Expect(r.Error.Message).To(ContainSubstring("belongs to another thread"))
	})

	It("survives the loss of that connection", func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), nil)
		var first atomic.Pointer[net.Conn]
		c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "t",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				first.CompareAndSwap(nil, &conn)
				return conn, err
			}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		Expect(c.Connect(ctx)).To(Succeed())
		Expect(c.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess))
		Expect((*first.Load()).Close()).To(Succeed())
		Eventually(ctx, func() sandbox.Status { return c.RunCode(ctx, two).Wait(ctx).Status }).WithTimeout(patience).Should(Equal(sandbox.StatusSuccess))
	}, NodeTimeout(2*patience))

	It("limits the time of the first dial, not of later ones", func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), nil)
		const little, usual = 250 * time.Millisecond, 5 * time.Second
		var mu sync.Mutex
		var until []time.Time
		var first net.Conn
		c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "t", DialTimeout: little,
			Dial: func(dialling context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address) // regardless of how slow this machine is
				mu.Lock()
				defer mu.Unlock()
				deadline, _ := dialling.Deadline()
				until = append(until, deadline)
				if first == nil {
					first = conn
				}
				return conn, err
			}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		Expect(c.Connect(ctx)).To(Succeed())
		connected := time.Now()
		Expect(until).To(HaveExactElements(BeTemporally("<", connected.Add(little))))
		Expect(first.Close()).To(Succeed())
		Eventually(ctx, func() sandbox.Status { return c.RunCode(ctx, two).Wait(ctx).Status }).WithTimeout(patience).Should(Equal(sandbox.StatusSuccess))
		mu.Lock()
		defer mu.Unlock()
		Expect(until[1:]).To(ContainElement(BeTemporally(">=", connected.Add(usual))))
	}, NodeTimeout(2*patience))

	It("reports the first result once", func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), nil)
		var answered atomic.Int32
		c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "t",
			Answered: func() { answered.Add(1) }})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		Expect(c.Connect(ctx)).To(Succeed())
		Expect(answered.Load()).To(BeZero())
		for range 2 {
			Expect(c.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess))
			Expect(answered.Load()).To(BeEquivalentTo(1))
		}
	})

	Describe("says what is wrong with a certificate", Label("COD-08"), func() {
		var s *sandboxtest.Supervisor
		BeforeEach(func() { s = sandboxtest.Start(GinkgoT(), nil) })
		connect := func(ctx context.Context, change func(*client.Options)) (*client.Client, error) {
			GinkgoHelper()
			o := client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "t"}
			change(&o)
			c, err := client.Dial(o)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(c.Close)
			return c, c.Connect(ctx)
		}

		It("of another namespace's sandbox", func(ctx SpecContext) {
			_, err := connect(ctx, func(o *client.Options) { o.ServerName = pki.ServerName("test", "elsewhere") })
			Expect(err).To(And(MatchError(sandbox.ErrNotTrusted), MatchError(ContainSubstring("another pool or namespace"))))
		})

		It("of a foreign sandbox", func(ctx SpecContext) {
			foreign, err := pki.NewCA(clock.RealClock{}, "foreign", time.Hour)
			Expect(err).NotTo(HaveOccurred())
			_, err = connect(ctx, func(o *client.Options) { o.CA = foreign.Cert })
			Expect(err).To(And(MatchError(sandbox.ErrNotTrusted), MatchError(ContainSubstring("another authority"))))
		})

		It("of a sandbox whose certificate has ended", func(ctx SpecContext) {
			old := testingclock.NewFakePassiveClock(time.Now().Add(-2 * time.Hour))
			Expect(s.WriteServerCertAt(old)).To(Succeed())
			_, err := connect(ctx, func(*client.Options) {})
			Expect(err).To(And(MatchError(sandbox.ErrNotTrusted), MatchError(ContainSubstring("has expired"))))
		})

		DescribeTable("of the manager", func(ctx SpecContext, ca func() pki.Pair, at func() clock.PassiveClock) {
			own, err := pki.IssueClient(at(), ca(), "manager", time.Hour)
			Expect(err).NotTo(HaveOccurred())
			c, err := connect(ctx, func(o *client.Options) { o.Client = own })
			if err == nil { // the sandbox checks after the manager has finished
				r := c.RunCode(ctx, two).Wait(ctx)
				Expect(r.Status).To(Equal(sandbox.StatusTerminated))
				err = r.Error
			}
			Expect(err).To(MatchError(ContainSubstring("does not trust the manager's certificate")))
		},
			Entry("that is foreign", func() pki.Pair {
				foreign, err := pki.NewCA(clock.RealClock{}, "foreign", time.Hour)
				Expect(err).NotTo(HaveOccurred())
				return foreign
			}, func() clock.PassiveClock { return clock.RealClock{} }),
			Entry("that has ended", func() pki.Pair { return s.CA },
				func() clock.PassiveClock { return testingclock.NewFakePassiveClock(time.Now().Add(-2 * time.Hour)) }),
		)
	})
})

var _ = Describe("Certificates that rotate", Label("COD-08"), func() {
	It("end no run, and are accepted until their authority is removed", func(ctx SpecContext) {
		old, err := pki.NewCA(clock.RealClock{}, "test", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		young, err := pki.NewCA(clock.RealClock{}, "test", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		both := slices.Concat(old.Cert, young.Cert)
		s := sandboxtest.Start(GinkgoT(), patiently)

		type side struct {
			by      pki.Pair // issued the certificate of that side
			trusted []byte
		}
		var manager atomic.Pointer[side]
		serve := func(x side) {
			GinkgoHelper()
			Expect(s.WriteCerts(x.by, x.trusted)).To(Succeed())
		}
		dial := func() *client.Client {
			GinkgoHelper()
			c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, ThreadID: "t",
				Credentials: func(context.Context) ([]byte, pki.Pair, error) {
					m := manager.Load()
					own, err := pki.IssueClient(clock.RealClock{}, m.by, "manager", time.Hour)
					return m.trusted, own, err
				}})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(c.Close)
			return c
		}
		two := sandbox.CodeRequest{Source: "export default () => 1 + 1"}
		anew := func(when string) {
			GinkgoHelper()
			r := dial().RunCode(ctx, two).Wait(ctx)
			Expect(r.Status).To(Equal(sandbox.StatusSuccess), "%s: %+v", when, r.Error)
		}

		first := side{old, old.Cert}
		manager.Store(&first)
		serve(first)
		begun, finish := make(chan struct{}), make(chan struct{})
		under := dial().RunCode(ctx, sandbox.CodeRequest{Source: "export default async () => (await wait()) + 1",
			Globals: map[string]sandbox.Binding{"wait": {Func: func(ctx context.Context, _ []any) (any, error) {
				close(begun)
				select {
				case <-finish:
				case <-ctx.Done():
				}
				return 41.0, ctx.Err()
			}}}})
		Eventually(ctx, begun).WithTimeout(patience).Should(BeClosed())

		announced, switched, after := side{old, both}, side{young, both}, side{young, young.Cert}
		manager.Store(&announced)
		anew("the manager has heard of the next authority, the pod not yet")
		serve(announced)
		anew("both have heard of it")
		manager.Store(&switched)
		anew("the manager has turned, the pod not yet")
		serve(switched)
		anew("both have turned")
		manager.Store(&announced)
		anew("another replica has not turned yet")
		manager.Store(&after)
		anew("the manager has forgotten the last authority")
		serve(after)
		anew("both have forgotten it")

		manager.Store(&first)
		r := dial().RunCode(ctx, two).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusTerminated), "the last authority has ended")
		Expect(r.Error.Message).To(ContainSubstring("not trusted"))
		close(finish)
		Expect(under.Wait(ctx)).To(And(HaveField("Status", sandbox.StatusSuccess), HaveField("Value", BeEquivalentTo(42))), "what was under way all the time")
	}, NodeTimeout(2*patience))
})
