//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("runCode", func() {
	var c *client.Client
	var ctx context.Context

	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
		DeferCleanup(cancel)
		c = sandboxtest.Start(GinkgoT(), nil).Dial(GinkgoT(), "thread-1")
	})

	run := func(req sandbox.CodeRequest) sandbox.Result {
		GinkgoHelper()
		return c.RunCode(ctx, req).Wait(ctx)
	}

	It("runs TypeScript by default", Label("COD-01"), func() {
		r := run(sandbox.CodeRequest{Source: "interface A { n: number }\nexport default (a: A): number => a.n * 2", Args: []any{map[string]any{"n": 21}}})
		Expect(r.Error).To(BeNil())
		Expect(r.Status).To(Equal(sandbox.StatusSuccess))
		Expect(r.Value).To(Equal(42.0))
		Expect(r.MemoryUsedBytes).To(BeNumerically(">", 100_000))
		Expect(r.Duration).To(BeNumerically(">", 0))
	})
})
