package observe

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/membudget"
)

var _ = Describe("updates that wait for watchers", Label("EVT-02", "K8S-12"), func() {
	const size = 100<<10 + 2 // of the value of a

	It("are drawn once for all of them until they are taken, and the slowest ends when there is no memory", func(ctx SpecContext) {
		w := newWorld()
		budget := membudget.New(4<<20, time.Millisecond)
		account := budget.Open("ns")
		defer account.Close()
		set := func(letter string) {
			w.mu.Lock()
			w.parts["a"] = `"` + strings.Repeat(letter, size-2) + `"`
			w.mu.Unlock()
			w.set("b", 1) // another version
		}
		set("a")
		// taken returns the next update of a watch.
		taken := func(watch *Watch) (u Update) {
			GinkgoHelper()
			Eventually(func() (ok bool, err error) {
				w.clock.Step(Interval)
				u, ok, err = watch.Take()
				return ok, err
			}).Should(BeTrue())
			return u
		}
		slow := w.hub.Watch(membudget.With(ctx, account), "t", a)
		defer slow.Close()
		also := w.hub.Watch(membudget.With(ctx, account), "t", a)
		fast := w.hub.Watch(membudget.With(ctx, account), "t", a)
		defer fast.Close()
		waiting := int64(len(taken(fast).JSON))
		held := func() int64 { return budget.Used() - 2*size } // for what waits
		Eventually(held).Should(Equal(waiting))
		for _, letter := range []string{"b", "c", "d"} {
			set(letter)
			u := taken(fast)
			Expect(u.Patch).To(BeTrue())
			Expect(string(u.JSON)).To(ContainSubstring(letter + letter))
			waiting += int64(len(u.JSON))
			Eventually(held).Should(Equal(waiting), "two watchers wait for the same")
		}
		for range 4 {
			taken(also)
		}
		Expect(held()).To(Equal(waiting), "one still waits")
		also.Close()
		for range 4 {
			waiting -= int64(len(taken(slow).JSON))
			Expect(held()).To(Equal(waiting))
		}
		Expect(waiting).To(BeZero())

		letters := "ef"
		var end error
		for i := 0; end == nil; i++ {
			Expect(i).To(BeNumerically("<", 40), "more waits than there is memory for")
			set(letters[i%2 : i%2+1])
			Expect(taken(fast).Patch).To(BeTrue(), "the fast one goes on")
			slow.mu.Lock()
			end = slow.err
			slow.mu.Unlock()
		}
		Expect(membudget.Refused(end)).To(BeTrue(), "%v", end)
		_, ok, err := slow.Take()
		Expect(ok).To(BeFalse(), "what waited is dropped")
		Expect(err).To(Equal(end))
		Eventually(held).Should(BeZero())
		fast.Close()
		slow.Close()
		Eventually(budget.Used).Should(BeZero())
	}, SpecTimeout(2*time.Minute))

	It("stay drawn behind the end of their thread, until the watcher leaves", func(ctx SpecContext) {
		w := newWorld()
		budget := membudget.New(4<<20, time.Millisecond)
		account := budget.Open("ns")
		defer account.Close()
		w.parts["a"] = `"` + strings.Repeat("x", size-2) + `"`
		watch := w.hub.Watch(membudget.With(ctx, account), "t", a)
		Eventually(func() bool { return len(watch.ready) > 0 }).Should(BeTrue())
		w.fail(membudget.ErrClosed) // any error ends the watch
		Eventually(func() int { w.clock.Step(Interval); return w.hub.CountWatched() }).Should(BeZero())
		Eventually(budget.Used).Should(And(BeNumerically(">", size), BeNumerically("<", 2*size)))
		watch.Close()
		Expect(budget.Used()).To(BeZero())
	}, SpecTimeout(2*time.Minute))
})
