package membudget_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/membudget"
)

func TestMembudget(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Budget of memory")
}

var _ = Describe("A budget of memory", Label("K8S-12"), func() {
	var b *membudget.Budget
	BeforeEach(func() { b = membudget.New(1000, time.Hour) })

	// wait draws in the background. The channel has the outcome.
	wait := func(ctx context.Context, a *membudget.Account, n int64) chan error {
		out := make(chan error, 1)
		go func() { out <- a.Draw(ctx, n) }()
		Eventually(b.Waiting).Should(BeNumerically(">", 0))
		return out
	}

	It("lets a namespace hold as much as is free", func() {
		a, other, third := b.Open("a"), b.Open("other"), b.Open("third")
		Expect(a.TryDraw(500)).To(Succeed())
		var busy *membudget.BusyError
		Expect(errors.As(a.TryDraw(1), &busy)).To(BeTrue())
		Expect(busy).To(Equal(&membudget.BusyError{Namespace: "a", Bytes: 1, InUse: 500}))
		Expect(other.TryDraw(250)).To(Succeed())
		Expect(other.TryDraw(1)).NotTo(Succeed())
		Expect(third.TryDraw(125)).To(Succeed(), "whoever comes last finds something")
		a.Close()
		Expect(other.TryDraw(125)).To(Succeed())
		other.Close()
		third.Close()
		Expect(b.Used()).To(BeZero())
	})

	It("says at once that a draw can never be granted", func(ctx SpecContext) {
		err := b.Open("a").Draw(ctx, 501)
		Expect(err).To(MatchError(ContainSubstring("more than the 1 KiB that a namespace can have: send or ask for less at once")))
		var large *membudget.TooLargeError
		Expect(errors.As(err, &large)).To(BeTrue())
	})

	It("wakes waiting draws, the namespace that holds least first", func(ctx SpecContext) {
		a, small, large := b.Open("a"), b.Open("small"), b.Open("large")
		Expect(a.TryDraw(500)).To(Succeed())
		Expect(large.TryDraw(200)).To(Succeed())
		first := wait(ctx, large, 150)
		second := make(chan error, 1)
		go func() { second <- small.Draw(ctx, 200) }()
		Eventually(b.Waiting).Should(Equal(2))
		a.Return(150)
		Eventually(second).Should(Receive(Succeed()))
		Expect(first).NotTo(Receive())
		a.Close()
		Eventually(first).Should(Receive(Succeed()))
	})

	It("lets a namespace below its equal share draw at once", func(ctx SpecContext) {
		a, greedy, calm := b.Open("a"), b.Open("greedy"), b.Open("calm")
		Expect(a.TryDraw(450)).To(Succeed())
		Expect(calm.TryDraw(10)).To(Succeed())
		ctx2, cancel := context.WithCancel(ctx)
		waits := wait(ctx2, greedy, 400)
		for range 10 {
			Expect(calm.TryDraw(5)).To(Succeed())
		}
		Expect(a.TryDraw(1)).NotTo(Succeed(), "above its share while another one wants some")
		cancel()
		Eventually(waits).Should(Receive(MatchError(context.Canceled)))
		Expect(a.TryDraw(1)).To(Succeed())
	})

	It("grants the first of two that want more than a share each", func(ctx SpecContext) {
		a, x, y := b.Open("a"), b.Open("x"), b.Open("y")
		Expect(a.TryDraw(500)).To(Succeed())
		out := make(chan error, 2)
		for _, w := range []*membudget.Account{x, y} {
			go func() {
				err := w.Draw(ctx, 400)
				w.Close()
				out <- err
			}()
		}
		Eventually(b.Waiting).Should(Equal(2))
		a.Close()
		Eventually(out).Should(Receive(Succeed()))
		Eventually(out).Should(Receive(Succeed()))
	})

	It("gives up after its patience, and says who holds what", func(ctx SpecContext) {
		b = membudget.New(4<<20, time.Millisecond)
		a := b.Open("payments")
		Expect(a.Draw(ctx, 2<<20)).To(Succeed())
		Expect(a.Draw(ctx, 1<<10)).To(MatchError(`the namespace "payments" already takes 2 MiB of the manager's memory, and there was no room for 1 KiB more: do less at once, or try again later`))
		Expect(b.Waiting()).To(BeZero())
	})

	It("asks for unused memory back before a draw waits", func(ctx SpecContext) {
		kept := b.Open("a")
		Expect(kept.TryDraw(400)).To(Succeed())
		b.OnShortage(func(n int64) {
			Expect(n).To(BeEquivalentTo(450))
			kept.Close()
		})
		Expect(b.Open("a").Draw(ctx, 450)).To(Succeed())
	})

	It("gives nothing to work that has ended", func(ctx SpecContext) {
		work, done := b.Begin(ctx, "a")
		part, over := membudget.Part(work)
		Expect(membudget.From(part).Draw(ctx, 10)).To(Succeed())
		Expect(membudget.From(work).Drawn()).To(BeZero())
		over()
		Expect(b.Used()).To(BeZero())
		done()
		done()
		Expect(membudget.From(work).Draw(ctx, 10)).To(MatchError(ContainSubstring("has ended")))
		membudget.From(work).Return(10)
		Expect(b.Used()).To(BeZero())
	})

	It("has no limit without a total", func(ctx SpecContext) {
		work, done := membudget.New(0, 0).Begin(ctx, "a")
		defer done()
		Expect(membudget.From(work).Draw(ctx, 1<<60)).To(Succeed())
		Expect(membudget.From(ctx).Open().TryDraw(1 << 60)).To(Succeed())
	})

	It("is drawn ahead for work in several steps, which then does not wait", func(ctx SpecContext) {
		b = membudget.New(1000, time.Millisecond)
		a := b.Open("a")
		Expect(a.DrawAhead(ctx, 300)).To(Succeed())
		Expect(a.Draw(ctx, 100)).To(Succeed())
		Expect(b.Used()).To(BeEquivalentTo(300))
		Expect(a.Draw(ctx, 500)).NotTo(Succeed())
		Expect(a.Draw(ctx, 250)).To(Succeed(), "what was ahead still is")
		Expect(b.Used()).To(BeEquivalentTo(350))
		Expect(a.DrawAhead(ctx, 100)).To(Succeed())
		a.Return(400)
		Expect(a.Draw(ctx, 100)).To(Succeed())
		Expect(b.Used()).To(BeEquivalentTo(100), "what was returned is not ahead any more")
		a.Close()
		Expect(a.Draw(ctx, 1)).To(MatchError(membudget.ErrClosed))
		Expect(b.Used()).To(BeZero())
	})

	It("moves to the account of longer work", func(ctx SpecContext) {
		call, run := b.Open("a"), b.Open("a")
		Expect(call.DrawAhead(ctx, 100)).To(Succeed())
		Expect(call.MoveTo(run)).To(BeEquivalentTo(100))
		Expect(call.Drawn()).To(BeZero())
		call.Close()
		Expect(b.Used()).To(BeEquivalentTo(100))
		run.Close()
		Expect(b.Used()).To(BeZero())
		late := b.Open("a")
		Expect(late.Draw(ctx, 100)).To(Succeed())
		Expect(late.MoveTo(run)).To(BeZero())
		Expect(b.Used()).To(BeZero(), "nothing belongs to work that has ended")
	})

	It("draws a buffer as it grows", func(ctx SpecContext) {
		b = membudget.New(1<<20, time.Millisecond)
		a := b.Open("a")
		text := strings.Repeat("x", 100_000)
		got, err := membudget.ReadAll(ctx, a, iotest.HalfReader(strings.NewReader(text)))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal(text))
		Expect(a.Drawn()).To(BeEquivalentTo(cap(got)))
		_, err = membudget.ReadAll(ctx, a, io.LimitReader(endless{}, 1<<20))
		Expect(err).To(HaveOccurred())
		Expect(a.Drawn()).To(BeEquivalentTo(cap(got)), "what was read in vain is returned")
		_, err = membudget.ReadAll(ctx, a, io.MultiReader(bytes.NewReader(make([]byte, 10)), iotest.ErrReader(errors.New("cut off"))))
		Expect(err).To(MatchError("cut off"))
		Expect(a.Drawn()).To(BeEquivalentTo(cap(got)))
	})

	It("is never exceeded, and everything is returned at the end", func(ctx SpecContext) {
		b = membudget.New(1000, time.Millisecond)
		var group sync.WaitGroup
		seed := uint64(GinkgoRandomSeed())
		for i := range 20 {
			group.Go(func() {
				defer GinkgoRecover()
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				for range 300 {
					a := b.Open(fmt.Sprint(random.IntN(4)))
					for range random.IntN(4) {
						ctx, cancel := context.WithCancel(ctx)
						if random.IntN(4) == 0 {
							cancel()
						}
						_ = a.Draw(ctx, random.Int64N(600)) // refused or not
						cancel()
						Expect(b.Used()).To(BeNumerically("<=", 1000))
						a.Return(random.Int64N(300))
					}
					a.Close()
				}
			})
		}
		group.Wait()
		Expect(b.Used()).To(BeZero())
		Expect(b.Waiting()).To(BeZero())
	})
})

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
