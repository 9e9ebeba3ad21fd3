//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/pki"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("Connections to unclaimed sandboxes", func() {
	two := sandbox.CodeRequest{Source: "export default () => 1 + 1"}
	var (
		s           *sandboxtest.Supervisor
		own         atomic.Pointer[pki.Pair] // the manager's certificate
		connections *client.Connections
		dials       atomic.Int32 // by clients themselves
	)
	BeforeEach(func() {
		s = sandboxtest.Start(GinkgoT(), nil)
		own.Store(&s.Client)
		dials.Store(0)
		connections = client.NewConnections(func(context.Context) ([]byte, pki.Pair, error) { return s.CA.Cert, *own.Load(), nil }, &pki.ClientConfigs{})
		DeferCleanup(connections.Close)
	})
	dial := func(ctx context.Context, thread string) *client.Client {
		GinkgoHelper()
		c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, ThreadID: thread, Connections: connections, ConnectionName: "pod", CA: s.CA.Cert, Client: *own.Load(),
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		Expect(c.Connect(ctx)).To(Succeed())
		return c
	}
	// eventually checks repeatedly, and meanwhile renews connections for which a busy machine had no time.
	eventually := func(ctx context.Context, look func() int) AsyncAssertion {
		return Eventually(ctx, func() int {
			connections.Renew()
			return look()
		}).WithTimeout(patience)
	}
	keep := func(ctx context.Context, address string) {
		GinkgoHelper()
		connections.Keep("pod", address, sandboxtest.ServerName)
		eventually(ctx, connections.Count).Should(Equal(1))
	}

	It("serve one client each, and do not claim the sandbox", Label("COD-08"), func(ctx SpecContext) {
		keep(ctx, s.Addr)
		keep(ctx, s.Addr) // a repeat does nothing
		first := dial(ctx, "first")
		Expect(connections.Count()).To(BeZero())
		Expect(dials.Load()).To(BeZero(), "the connection was there")
		second := dial(ctx, "second")
		Expect(dials.Load()).To(BeEquivalentTo(1), "a connection serves one")
		Expect(second.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess), "it is whose code comes first")
		r := first.RunCode(ctx, two).Wait(ctx)
		Expect(r.Error).To(HaveField("Message", ContainSubstring("belongs to another thread")))
	}, NodeTimeout(2*patience))

	It("run code as any connection does", func(ctx SpecContext) {
		keep(ctx, s.Addr)
		c := dial(ctx, "t")
		for range 2 {
			Expect(c.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess))
		}
		Expect(dials.Load()).To(BeZero())
	}, NodeTimeout(2*patience))

	It("are not used after the certificates have changed", Label("COD-08"), func(ctx SpecContext) {
		keep(ctx, s.Addr)
		connections.Keep("other", s.Addr, sandboxtest.ServerName)
		eventually(ctx, connections.Count).Should(Equal(2))
		young, err := pki.IssueClient(clock.RealClock{}, s.CA, "manager", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		own.Store(&young)
		dial(ctx, "t")
		Expect(dials.Load()).To(BeEquivalentTo(1))
		eventually(ctx, connections.Count).Should(Equal(1), "the other one is made anew")
	}, NodeTimeout(2*patience))

	It("are divided among the pools, without those that fail", func(ctx SpecContext) {
		connections.SetMost(4)
		const a, b, c = sandboxtest.ServerName, "sandbox.other.default.skein.dev", "sandbox.third.default.skein.dev"
		for i := range 6 {
			connections.Keep(fmt.Sprintf("a%d", i), s.Addr, a)
		}
		eventually(ctx, connections.Count).Should(Equal(4))
		connections.Keep("b0", s.Addr, b) // its sandbox belongs to another pool, so it never gets a connection
		Expect(connections.Names()).To(ConsistOf(a, a, a, b), "no pool has all places")
		n := 6
		Eventually(ctx, func() []string { // that is found out in a moment; then others get its place
			n++
			connections.Keep(fmt.Sprintf("a%d", n), s.Addr, a)
			return connections.Names()
		}).WithTimeout(patience).Should(ConsistOf(a, a, a, a))
		connections.Keep("b0", s.Addr, b)
		connections.Keep("c0", s.Addr, c)
		Expect(connections.Names()).To(ContainElement(c))
		Expect(connections.Names()).To(HaveLen(4))
	}, NodeTimeout(2*patience))

	It("are closed when their sandbox is no longer free, and are not used after the other side closed them", func(ctx SpecContext) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		accepted, ended := make(chan net.Conn, 8), make(chan error, 8)
		go func() { // a proxy to the sandbox that observes the end of a connection
			for {
				in, err := listener.Accept()
				if err != nil {
					return
				}
				out, err := net.Dial("tcp", s.Addr)
				if err != nil {
					return
				}
				accepted <- in
				go func() { _, _ = io.Copy(in, out) }()
				go func() {
					_, err := io.Copy(out, in)
					ended <- errors.Join(err, out.Close())
				}()
			}
		}()
		address := listener.Addr().String()
		keep(ctx, address)
		Eventually(ctx, accepted).WithTimeout(patience).Should(Receive())
		connections.Drop("pod")
		Expect(connections.Count()).To(BeZero())
		Eventually(ctx, ended).WithTimeout(patience).Should(Receive()) // an end or a reset, depending on the kernel

		keep(ctx, address)
		var conn net.Conn
		Eventually(ctx, accepted).WithTimeout(patience).Should(Receive(&conn))
		for len(accepted) > 0 { // connections for which a busy machine had no time
			conn = <-accepted
		}
		Expect(conn.Close()).To(Succeed())
		Eventually(ctx, func(g Gomega) { // the loss is noticed in a moment; until then a claimer uses another sandbox
			connections.Renew()
			g.Expect(accepted).To(Receive())
		}).WithTimeout(patience).Should(Succeed())
		c := dial(ctx, "t")
		Expect(c.RunCode(ctx, two).Wait(ctx)).To(HaveField("Status", sandbox.StatusSuccess))
	}, NodeTimeout(2*patience))
})
