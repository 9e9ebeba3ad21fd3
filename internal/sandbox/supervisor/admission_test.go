//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
)

var _ = Describe("the capacity of a sandbox", Label("COD-06"), func() {
	var ctx context.Context
	BeforeEach(func() { ctx = within(2 * patience) })

	It("bounds the total memory of runs and isolates", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
			o.Concurrency, o.MaxMemory, o.TotalMemory, o.MaxWallTime = 8, 32<<20, 64<<20, 500*time.Millisecond
		})
		c := s.Dial(GinkgoT(), "thread")
		var isolates []sandbox.Isolate
		for range 2 { // each requests nothing, and so gets the cap
			i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
			Expect(err).NotTo(HaveOccurred())
			isolates = append(isolates, i)
		}
		r := c.RunCode(ctx, sandbox.CodeRequest{Source: one, MemoryLimitBytes: 1 << 20}).Wait(ctx)
		Expect(r.Status).To(Equal(sandbox.StatusMemory), "an isolate may wait for it")
		Expect(r.Error.Message).To(And(ContainSubstring("what runs in the sandbox may use 64 MiB in all, this run 1 MiB of them"), ContainSubstring("or the pool a lower maxMemory")))
		Expect(r.Retriable).To(BeFalse(), "the sandbox is a good one, and must not be given up for another")
		_, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).To(MatchError(sandbox.ErrBusy))
		for _, i := range isolates {
			Expect(i.Close()).To(Succeed())
		}
		Eventually(func() sandbox.Status {
			return c.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status
		}, patience).Should(Equal(sandbox.StatusSuccess))
	})

	It("refuses a run at once when isolates hold the memory that it needs", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
			o.Concurrency, o.MaxMemory, o.TotalMemory, o.MaxWallTime = 8, 64<<20, 96<<20, time.Hour
		})
		c := s.Dial(GinkgoT(), "thread")
		tool, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status).To(Equal(sandbox.StatusMemory))
		Expect(c.RunCode(ctx, sandbox.CodeRequest{Source: one, MemoryLimitBytes: 32 << 20}).Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
		Expect(tool.Close()).To(Succeed())
		Eventually(ctx, func() sandbox.Status {
			return c.RunCode(ctx, sandbox.CodeRequest{Source: one}).Wait(ctx).Status
		}, patience).Should(Equal(sandbox.StatusSuccess))
	})

	It("admits small runs side by side where large ones would queue", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) {
			o.Concurrency, o.MaxMemory, o.TotalMemory = 8, 32<<20, 32<<20
		})
		c := s.Dial(GinkgoT(), "thread")
		on, off := make(chan struct{}, 4), make(chan struct{})
		var runs []sandbox.Execution
		for range 4 {
			runs = append(runs, c.RunCode(ctx, sandbox.CodeRequest{
				Source: "export default () => hold()", MemoryLimitBytes: 8 << 20,
				Globals: map[string]sandbox.Binding{"hold": {Func: func(context.Context, []any) (any, error) { on <- struct{}{}; <-off; return nil, nil }}},
			}))
		}
		for range 4 {
			Eventually(on, patience).Should(Receive())
		}
		queued := c.RunCode(ctx, sandbox.CodeRequest{Source: one, MemoryLimitBytes: 8 << 20})
		Consistently(queued.Done(), "200ms").ShouldNot(BeClosed())
		close(off)
		Expect(queued.Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
		for _, e := range runs {
			Expect(e.Wait(ctx).Status).To(Equal(sandbox.StatusSuccess))
		}
	})

	It("keeps a place for runs that other runs start, and refuses them once it is taken", func() {
		s := sandboxtest.Start(GinkgoT(), func(o *supervisor.Options) { o.Concurrency = 1 })
		c := s.Dial(GinkgoT(), "thread")
		inner := func(depth int, source string) sandbox.HostFunc {
			return func(ctx context.Context, _ []any) (any, error) {
				r := c.RunCode(ctx, sandbox.CodeRequest{Source: source, Depth: depth}).Wait(ctx)
				if r.Error != nil {
					return nil, r.Error
				}
				return r.Value, nil
			}
		}
		r := c.RunCode(ctx, sandbox.CodeRequest{Source: "export default () => inner()", Depth: 1, Globals: map[string]sandbox.Binding{"inner": {Func: inner(2, one)}}}).Wait(ctx)
		Expect(r.Value).To(Equal(1.0), "%v", r.Error)

		_, release := holdRun(ctx, c)
		defer release()
		hold := c.RunCode(ctx, sandbox.CodeRequest{Source: "await inner()", Depth: 2, Globals: map[string]sandbox.Binding{"inner": {Func: inner(3, one)}}}).Wait(ctx)
		Expect(hold.Error.Message).To(ContainSubstring("the sandbox is busy: it runs 1 at a time, and none of them ended within 2s"),
			"those that wait for each other do not wait until their time is up")
	})

	It("must fit at least one execution", func() {
		o := supervisor.Defaults()
		o.TotalMemory = o.MaxMemory - 1
		Expect(o.Validate()).To(MatchError(ContainSubstring("--max-total-memory")))
	})
})
