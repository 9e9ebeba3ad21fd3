//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("A connection that is lost under code", func() {
	const told = "the sandbox went away while the code ran: its pod was ended, or its connection was lost; run it again if it may run twice"

	It("is told of in words that help, of a run and of an isolate", func(ctx SpecContext) {
		s := sandboxtest.Start(GinkgoT(), patiently)
		var conn atomic.Pointer[net.Conn]
		c, err := client.Dial(client.Options{Address: s.Addr, ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "t",
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
				conn.Store(&raw)
				return raw, err
			}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		lose := func(context.Context, []any) (any, error) { return nil, (*conn.Load()).Close() }
		const source = "await lose(); await new Promise(() => setTimeout(() => 0, 600_000))"

		r := c.RunCode(ctx, sandbox.CodeRequest{Source: source, Globals: map[string]sandbox.Binding{"lose": {Func: lose}}}).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
		Expect(r.Retriable).To(BeFalse(), "it may have done something")
		Expect(r.Error.Message).To(Equal(told))

		iso, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{
			Modules: map[string]sandbox.Module{"m": {Code: "export default { execute: async (state) => { await state.lose(); await new Promise(() => setTimeout(() => 0, 600_000)) } }"}},
			Host:    func(ctx context.Context, _, _ string, args []any) (any, error) { return lose(ctx, args) },
		})
		Expect(err).NotTo(HaveOccurred())
		_, err = iso.Invoke(ctx, "call", "m", nil)
		var gone *sandbox.IsolateGoneError
		Expect(errors.As(err, &gone)).To(BeTrue(), "%v", err)
		Expect(gone.Reason).To(Equal(told))
	}, SpecTimeout(2*patience))
})
