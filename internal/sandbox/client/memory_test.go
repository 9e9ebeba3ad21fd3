//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("the memory of the host", Label("COD-06", "COD-07"), func() {
	const total = 192 << 20
	var budget *membudget.Budget
	var c *client.Client
	var ctx context.Context

	BeforeEach(func() {
		ctx = within(2 * patience)
		budget = membudget.New(total, 50*time.Millisecond)
		c = sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
	})

	// in runs code for a namespace. done returns the memory.
	in := func(namespace, source string) (r sandbox.Result, done func()) {
		work, done := budget.Begin(ctx, namespace)
		return c.RunCode(work, sandbox.CodeRequest{Source: source}).Wait(work), done
	}

	It("is drawn by decoded size, and what does not fit ends the code with an error that says so", func() {
		// Less than 3 MB on the wire, and 102 MiB in memory: more than the half that a namespace may hold.
		r, done := in("hostile", "export default () => { for (let i = 0; i < 3; i++) report(Array(100000).fill({a: null})) }")
		Expect(r.Status).To(Equal(sandbox.StatusTerminated))
		Expect(r.Error.Message).To(And(ContainSubstring("the program's values need more memory than there is"), ContainSubstring(`"hostile" already takes`), ContainSubstring("do less at once")))
		Expect(budget.Used()).To(BeNumerically(">", 60<<20), "the reports are kept until the caller lets go of them")

		calm, over := in("calm", "export default () => Array(10000).fill({a: null})")
		Expect(calm.Error).To(BeNil())
		Expect(calm.Value).To(HaveLen(10000))
		over()
		done()
		Expect(budget.Used()).To(BeZero())
	})

	It("is drawn for a result, which is an error of the code", func() {
		r, done := in("hostile", "export default () => Array(150000).fill({a: null})")
		defer done()
		Expect(r.Error).To(BeNil())
		r, over := in("hostile", "export default () => Array(150000).fill({a: null})")
		defer over()
		Expect(r.Status).To(Equal(sandbox.StatusError))
		Expect(r.Error).To(HaveField("Name", "RangeError"))
	})

	It("is drawn for the arguments of calls of the host, until they are answered", func() {
		work, done := budget.Begin(ctx, "hostile")
		defer done()
		hold := make(chan struct{}) // closed once a call was refused
		var once sync.Once
		r := c.RunCode(work, sandbox.CodeRequest{
			Source: `import { keep, release } from "host"; export default () => Promise.all(Array(10).fill(0).map(() => keep(Array(60000).fill({a: null})).catch((e) => { release(); return e.message })))`,
			Imports: map[string]map[string]sandbox.Binding{"host": {"keep": {Func: func(ctx context.Context, _ []any) (any, error) {
				<-hold
				return "kept", nil
			}}, "release": {Func: func(context.Context, []any) (any, error) {
				once.Do(func() { close(hold) })
				return nil, nil
			}}}},
		}).Wait(ctx)
		Expect(r.Error).To(BeNil())
		Expect(r.Value).To(And(ContainElement("kept"), ContainElement(ContainSubstring("need more memory than there is"))))
		done()
		Expect(budget.Used()).To(BeZero())
	})

	It("is drawn for what an isolate answers", func() {
		work, done := budget.Begin(ctx, "hostile")
		defer done()
		iso, err := c.OpenIsolate(work, sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: "export default (state, n) => Array(n).fill({a: null})"}}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(iso.Close)
		call, over := membudget.Part(work)
		_, err = iso.Invoke(call, "1", "t", 150000)
		Expect(err).NotTo(HaveOccurred())
		_, err = iso.Invoke(call, "2", "t", 150000)
		Expect(err).To(MatchError(ContainSubstring("need more memory than there is")))
		over()
		Expect(budget.Used()).To(BeZero(), "frames are returned once they are decoded")
		_, err = iso.Invoke(work, "3", "t", 10)
		Expect(err).NotTo(HaveOccurred(), "the isolate goes on")
	})

	It("is not needed for what work answers after its caller has left", func() {
		work, done := budget.Begin(ctx, "calm")
		defer done()
		iso, err := c.OpenIsolate(work, sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": {Code: "export default () => [1]"}}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(iso.Close)
		call, over := membudget.Part(work)
		over()
		v, err := iso.Invoke(call, "1", "t", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(v).To(BeNil())
		v, err = iso.Invoke(work, "2", "t", nil)
		Expect(err).NotTo(HaveOccurred(), "the isolate goes on")
		Expect(v).To(HaveLen(1))
	})
})
