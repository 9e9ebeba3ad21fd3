package fairpool_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/fairpool"
)

func TestFair(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute) // machines may be busy
	RunSpecs(t, "Fair")
}

var _ = Describe("A pool of workers", func() {
	// order has work done on one worker, all of which was given while that was busy, and gives who was served.
	order := func(give func(add func(group string))) (served []string) {
		p := fairpool.New(1, 0)
		hold := make(chan struct{})
		p.Go("first", func() { <-hold })
		give(func(group string) { p.Go(group, func() { served = append(served, group) }) })
		close(hold)
		p.Wait()
		return served
	}

	It("lets groups take turns, however much each has queued", func() {
		served := order(func(add func(string)) {
			for range 10_000 {
				add("many")
			}
			add("one")
			add("two")
			add("two")
		})
		Expect(served).To(HaveLen(10_003))
		Expect(served[:6]).To(Equal([]string{"many", "one", "two", "many", "two", "many"}))
	})

	It("serves a group in the order in which its work came", func() {
		p := fairpool.New(1, 0)
		var served []int
		for i := range 100 {
			p.Go("group", func() { served = append(served, i) })
		}
		p.Wait()
		for i := range 100 {
			Expect(served[i]).To(Equal(i))
		}
	})

	It("keeps a fifth of the workers for groups of which nothing runs", func() {
		p := fairpool.New(10, 0)
		hold := make(chan struct{})
		for range 100 {
			p.Go("many", func() { <-hold })
		}
		Expect(counts(p)).To(Equal([2]int{8, 92}), "running and waiting")
		began := make(chan string, 4)
		for _, late := range []string{"a", "b", "c"} {
			p.Go(late, func() { began <- late; <-hold })
			p.Go(late, func() { <-hold })
		}
		Eventually(began).Should(Receive())
		Eventually(began).Should(Receive())
		Expect(counts(p)).To(Equal([2]int{10, 96}))
		close(hold)
		p.Wait()
		Expect(counts(p)).To(Equal([2]int{0, 0}))
	})

	It("gives no group more than its bound", func() {
		p := fairpool.New(10, 3)
		hold := make(chan struct{})
		for range 20 {
			p.Go("a", func() { <-hold })
			p.Go("b", func() { <-hold })
		}
		Expect(counts(p)).To(Equal([2]int{6, 34}))
		close(hold)
		p.Wait()
	})

	It("never exceeds its workers or the bound of a group, and does all work", func() {
		p := fairpool.New(16, 6)
		var all, done atomic.Int64
		var each [5]atomic.Int64
		var over atomic.Bool
		var givers sync.WaitGroup
		for g := range each {
			givers.Go(func() {
				for range 500 {
					p.Go(fmt.Sprint(g), func() {
						if all.Add(1) > 16 || each[g].Add(1) > 6 {
							over.Store(true)
						}
						runtime.Gosched()
						each[g].Add(-1)
						all.Add(-1)
						done.Add(1)
					})
				}
			})
		}
		givers.Wait()
		p.Wait()
		Expect(over.Load()).To(BeFalse())
		Expect(done.Load()).To(BeEquivalentTo(2500))
		Expect(counts(p)).To(Equal([2]int{0, 0}))
	})

	It("holds a goroutine for what runs only", func() {
		p := fairpool.New(4, 0)
		hold := make(chan struct{})
		before := runtime.NumGoroutine()
		for i := range 10_000 {
			p.Go(fmt.Sprint(i%100), func() { <-hold })
		}
		Expect(runtime.NumGoroutine() - before).To(BeNumerically("<=", 4))
		close(hold)
		p.Wait()
	})
})

func counts(p *fairpool.Pool) [2]int {
	running, waiting := p.Load()
	return [2]int{running, waiting}
}
