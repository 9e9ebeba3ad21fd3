//go:build linux && (amd64 || arm64)

package v8_test

import (
	"context"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

// Deno itself is available in the v8 tier (make test-v8). The specs about compromised engines need none.
var _ = func() bool {
	if deno := os.Getenv(sandboxtest.DenoEnv); deno != "" {
		Describe("a sandbox process with Deno", Label("COD-01", "COD-06"), func() { processSpecs(deno) })
	}
	return true
}()

func processSpecs(deno string) {
	var ctx context.Context
	var s sandbox.Sandbox
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), 5*time.Minute)
		DeferCleanup(cancel)
		pool, err := process.New(process.Options{Deno: deno})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(pool.Close)
		s, err = pool.AcquireOn(ctx, "thread-1", sandbox.V8)
		Expect(err).NotTo(HaveOccurred())
	})

	It("compiles to machine code", func() {
		r := s.RunCode(ctx, sandbox.CodeRequest{Source: "const fib = (n: number): number => n < 2 ? n : fib(n - 1) + fib(n - 2); export default () => fib(32)", WallTime: time.Minute}).Wait(ctx)
		Expect(r.Error).To(BeNil())
		Expect(r.Value).To(Equal(2178309.0))
	})

	It("stays when Deno has been up for longer than it takes to have second thoughts", func() {
		// It opens files half a second after its start, behind a gate that is closed by then.
		asked, release := make(chan struct{}), make(chan struct{})
		time.AfterFunc(1500*time.Millisecond, func() { close(release) })
		r := s.RunCode(ctx, sandbox.CodeRequest{Source: "export default async () => await hold()", Globals: map[string]sandbox.Binding{"hold": {Func: func(context.Context, []any) (any, error) {
			close(asked)
			<-release
			return "held", nil
		}}}}).Wait(ctx)
		Expect(asked).To(BeClosed())
		Expect(r.Error).To(BeNil())
		Expect(r.Value).To(Equal("held"))
	})

	It("takes a limit below the pool's by an engine of its own", func() {
		r := s.RunCode(ctx, sandbox.CodeRequest{Source: "const a = []; for (;;) a.push(new Array(1000).fill(1))", MemoryLimitBytes: 8 << 20}).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusMemory))
		Expect(r.Error.Message).To(ContainSubstring("8 MiB"))
		Expect(r.MemoryUsedBytes).To(BeNumerically("<", 2*8<<20+20<<20))
	})
}
