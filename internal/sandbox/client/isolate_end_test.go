//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
)

var _ = Describe("an isolate of definition code", func() {
	var c *client.Client
	var ctx context.Context
	var h *host
	open := prepareIsolates(&ctx, &c, &h)

	Describe("its end", func() {
		gone := func(err error) *sandbox.IsolateGoneError {
			GinkgoHelper()
			var g *sandbox.IsolateGoneError
			Expect(errors.As(err, &g)).To(BeTrue(), "%v", err)
			return g
		}

		It("comes from running out of memory", Label("COD-06"), func() {
			i := open(map[string]string{"t": "export default () => { const a = []; for (;;) a.push(new Array(1000).fill(1)) }"}, func(r *sandbox.IsolateRequest) { r.MemoryLimitBytes = 16 << 20 })
			_, err := i.Invoke(ctx, "1", "t", nil)
			Expect(*gone(err)).To(MatchFields(IgnoreExtras, Fields{"Status": Equal(sandbox.StatusMemory), "Started": BeTrue(), "Reason": ContainSubstring("out of memory")}))
			_, err = i.Invoke(ctx, "2", "t", nil)
			Expect(gone(err).Status).To(Equal(sandbox.StatusMemory))
		})

		// inTime opens isolates with a wall time until the code in one finishes within it. On a busy machine loading
		// the module may take longer and end the isolate.
		inTime := func(wall time.Duration, source string, works func(Gomega, sandbox.Isolate)) (i sandbox.Isolate) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				if i != nil {
					_ = i.Close()
				}
				i = open(map[string]string{"t": source}, func(r *sandbox.IsolateRequest) { r.WallTime = wall })
				works(g, i)
			}).WithTimeout(patience).Should(Succeed())
			return i
		}

		It("comes from code that loops beyond its wall time", Label("COD-06"), func() {
			i := inTime(200*time.Millisecond, "export default (state, loop) => { while (loop); }", func(g Gomega, i sandbox.Isolate) {
				_, err := i.Invoke(ctx, "0", "t", false)
				g.Expect(err).NotTo(HaveOccurred())
			})
			_, err := i.Invoke(ctx, "1", "t", true)
			Expect(gone(err).Reason).To(Equal("the code ran for longer than 200ms, its limit"))
		})

		It("does not come from one invocation that awaits beyond its wall time", Label("COD-06"), func() {
			h.answers["never"] = func(ctx context.Context, _ []any) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
			inTime(time.Second, "export default async (state, wait) => { if (wait) await state.never(); return 'quick' }", func(g Gomega, i sandbox.Isolate) {
				_, err := i.Invoke(ctx, "1", "t", true)
				g.Expect(err).To(MatchError("TimeoutError: the code ran for longer than 1s, its limit"))
				g.Expect(i.Invoke(ctx, "2", "t", false)).To(Equal("quick"))
			})
		})

		It("does not come from one invocation that goes from timer to timer beyond its wall time, but on v8", Label("COD-06"), func() {
			const source = `const hop = () => { const end = Date.now() + 20; while (Date.now() < end); setTimeout(hop, 0); };
export default (state, wait) => { if (!wait) return 'quick'; for (let k = 0; k < 1000; k++) setTimeout(hop, 0); return new Promise(() => {}); }`
			goesOn := func(g Gomega, i sandbox.Isolate) {
				_, err := i.Invoke(ctx, "1", "t", true)
				g.Expect(err).To(MatchError("TimeoutError: the code ran for longer than 1s, its limit"))
				g.Expect(i.Invoke(ctx, "2", "t", false)).To(Equal("quick"))
			}
			ends := func(g Gomega, i sandbox.Isolate) {
				_, err := i.Invoke(ctx, "1", "t", true)
				g.Expect(err).To(MatchError(ContainSubstring("the code ran for longer than 1s, its limit")))
				g.Expect(err).NotTo(MatchError(ContainSubstring("did not stop")))
			}
			inTime(time.Second, source, said(goesOn, ends))
		})

		It("does not come from an await that nothing settles", func() {
			i := open(map[string]string{"t": "export default async (state, wait) => { if (wait) await new Promise(() => {}); return 1 }"})
			_, err := i.Invoke(ctx, "1", "t", true)
			Expect(err).To(MatchError(ContainSubstring("nothing settles")))
			Expect(i.Invoke(ctx, "2", "t", false)).To(Equal(1.0))
		})

		It("comes with its context, and with Close", func() {
			isolateCtx, cancel := context.WithCancel(ctx)
			req := sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: "export default () => new Promise(() => setTimeout(() => {}, 60000))"}}}
			i, err := c.OpenIsolate(isolateCtx, req)
			Expect(err).NotTo(HaveOccurred())
			done := make(chan error, 1)
			go func() { _, err := i.Invoke(ctx, "1", "t", nil); done <- err }()
			cancel()
			var end error
			Eventually(done, patience).Should(Receive(&end))
			gone(end)
			i2, err := c.OpenIsolate(ctx, req)
			Expect(err).NotTo(HaveOccurred())
			Expect(i2.Close()).To(Succeed())
			_, err = i2.Invoke(ctx, "1", "t", nil)
			Expect(*gone(err)).To(MatchFields(IgnoreExtras, Fields{"Reason": Equal("the isolate was closed"), "Started": BeFalse()}))
		})

		It("leaves a module that fails to load or is unknown as an error of that call", func() {
			i := open(map[string]string{"bad": "throw new Error('at load')", "none": "export const x = 1", "good": "export default () => 1", "missing": "import 'left-pad'"})
			_, err := i.Describe(ctx, "bad")
			Expect(err).To(MatchError("Error: at load"))
			_, err = i.Invoke(ctx, "1", "none", nil)
			Expect(err).To(MatchError(ContainSubstring("no default export")))
			_, err = i.Invoke(ctx, "2", "missing", nil)
			Expect(err).To(MatchError(ContainSubstring(`cannot find module "left-pad"`)))
			_, err = i.Invoke(ctx, "3", "nowhere", nil)
			Expect(err).To(MatchError(ContainSubstring(`no module "nowhere"`)))
			Expect(i.Invoke(ctx, "4", "good", nil)).To(Equal(1.0))
		})
	})
})
