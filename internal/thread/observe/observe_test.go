package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
)

func TestObserve(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "Observed threads")
}

// world is a thread whose parts are numbers, and what a hub does with it.
type world struct {
	hub    *Hub
	clock  *clocktesting.FakeClock
	timers timers

	mu       sync.Mutex
	version  int64
	parts    map[string]string
	reads    int
	times    []time.Time // of the reads
	failing  error
	notified []func(store.Notification)
}

// timers is a clock that remembers for how long its newest timer is.
type timers struct {
	*clocktesting.FakeClock
	newest atomic.Int64
}

func (t *timers) NewTimer(d time.Duration) clock.Timer {
	defer t.newest.Store(int64(d)) // after the timer is there
	return t.FakeClock.NewTimer(d)
}

func (t *timers) last() time.Duration { return time.Duration(t.newest.Load()) }

func newWorld() *world {
	w := &world{clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), parts: map[string]string{"a": "0", "b": "0"}}
	w.timers.FakeClock = w.clock
	w.hub = NewHub(Options{Subscribe: w.subscribe, Read: w.read, Recheck: time.Hour, Clock: &w.timers})
	return w
}

func (w *world) subscribe(_ string, fn func(store.Notification)) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified = append(w.notified, fn)
	i := len(w.notified) - 1
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notified[i] = nil
	}
}

func (w *world) subscribers() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fn := range w.notified {
		if fn != nil {
			n++
		}
	}
	return n
}

func (w *world) read(_ context.Context, _ string, parts []string, _ *Value) (*Value, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	w.times = append(w.times, w.clock.Now())
	v := &Value{Version: w.version, Parts: map[string]Part{}}
	for _, p := range parts {
		v.Parts[p] = Part{JSON: json.RawMessage(w.parts[p])}
	}
	return v, w.failing
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// set changes a part and notifies.
func (w *world) set(part string, n int) {
	w.mu.Lock()
	w.version++
	w.parts[part] = fmt.Sprint(n)
	notified := slices.Clone(w.notified)
	w.mu.Unlock()
	for _, fn := range notified {
		if fn != nil {
			fn(store.Notification{})
		}
	}
}

func (w *world) fail(err error) {
	w.mu.Lock()
	w.failing = err
	w.mu.Unlock()
	w.set("a", -1)
}

// next returns the next update as text.
func next(ctx context.Context, w *Watch) string {
	GinkgoHelper()
	u, err := w.Next(ctx)
	Expect(err).NotTo(HaveOccurred())
	return string(u.JSON)
}

var a = []string{"a"}

var _ = Describe("a watch", Label("EVT-02"), func() {
	It("gives the value, then patches on the leading and the trailing edge of 100 ms", func(ctx SpecContext) {
		w := newWorld()
		watch := w.hub.Watch(ctx, "t", a)
		defer watch.Close()
		Expect(next(ctx, watch)).To(Equal(`{"v":0,"value":{"a":0}}`))
		Eventually(w.clock.HasWaiters).Should(BeTrue())
		w.clock.Step(Interval)

		w.set("a", 1) // leading: no time passes
		Expect(next(ctx, watch)).To(Equal(`{"v":1,"patch":[{"op":"replace","path":"/a","value":1}]}`))
		reads := w.count()
		w.set("a", 2)
		Eventually(w.timers.last, "10s").Should(Equal(Interval), "it waits for the end of the 100 ms")
		for n := range 49 {
			w.set("a", n+3)
		}
		w.clock.Step(Interval - 1)
		_, ok, err := watch.Take()
		Expect(ok).To(BeFalse(), "100 ms have not passed")
		Expect(err).NotTo(HaveOccurred())
		w.clock.Step(1)
		Expect(next(ctx, watch)).To(Equal(`{"v":51,"patch":[{"op":"replace","path":"/a","value":51}]}`), "trailing: all at once")
		Expect(w.count()).To(Equal(reads + 1))
		for i := range w.times[1:] {
			Expect(w.times[i+1].Sub(w.times[i])).To(BeNumerically(">=", Interval))
		}
	}, SpecTimeout(2*time.Minute))

	It("of a thousand watchers costs one reader, and nothing when they have gone", func(ctx SpecContext) {
		w := newWorld()
		watches := make([]*Watch, 1000)
		var begun sync.WaitGroup
		for i := range watches {
			begun.Go(func() { watches[i] = w.hub.Watch(ctx, "t", a) })
		}
		begun.Wait()
		for _, watch := range watches {
			Expect(next(ctx, watch)).To(Equal(`{"v":0,"value":{"a":0}}`))
		}
		Expect(w.subscribers()).To(Equal(1))
		// Those that came while it was read may have asked for one more read.
		Eventually(w.clock.HasWaiters).Should(BeTrue())
		w.clock.Step(Interval)
		Eventually(w.count).Should(BeNumerically("<=", 2))
		before := w.count()
		w.set("a", 7)
		var first *byte
		for _, watch := range watches {
			Eventually(func() bool { w.clock.Step(Interval); return len(watch.ready) > 0 }).Should(BeTrue())
			u, err := watch.Next(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(u.JSON)).To(Equal(`{"v":1,"patch":[{"op":"replace","path":"/a","value":7}]}`))
			if first == nil {
				first = &u.JSON[0]
			}
			Expect(&u.JSON[0]).To(BeIdenticalTo(first), "they share the bytes")
		}
		Expect(w.count()).To(BeNumerically("<=", before+2))
		for _, watch := range watches {
			watch.Close()
			watch.Close()
		}
		Expect(w.hub.CountWatched()).To(BeZero())
		Eventually(w.subscribers).Should(BeZero())
	}, SpecTimeout(2*time.Minute))

	It("gives each watcher the parts that it asked for, also when others asked before", func(ctx SpecContext) {
		w := newWorld()
		one := w.hub.Watch(ctx, "t", a)
		defer one.Close()
		Expect(next(ctx, one)).To(Equal(`{"v":0,"value":{"a":0}}`))
		both := w.hub.Watch(ctx, "t", []string{"a", "b"})
		defer both.Close()
		Eventually(func() bool { w.clock.Step(Interval); return len(both.ready) > 0 }).Should(BeTrue())
		Expect(next(ctx, both)).To(Equal(`{"v":0,"value":{"a":0,"b":0}}`))
		w.set("b", 1)
		Eventually(func() bool { w.clock.Step(Interval); return len(both.ready) > 0 }).Should(BeTrue())
		Expect(next(ctx, both)).To(Equal(`{"v":1,"patch":[{"op":"replace","path":"/b","value":1}]}`))
		_, ok, err := one.Take()
		Expect(ok).To(BeFalse(), "nothing of its parts has changed")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(2*time.Minute))

	It("that reads too slowly is ended and told, with bounded memory, and others are not", func(ctx SpecContext) {
		w := newWorld()
		slow, quick := w.hub.Watch(ctx, "t", a), w.hub.Watch(ctx, "t", a)
		defer slow.Close()
		defer quick.Close()
		next(ctx, quick)
		for n := range maxWaiting + 1 {
			w.set("a", n+1)
			Eventually(func() bool { w.clock.Step(Interval); return len(quick.ready) > 0 }).Should(BeTrue())
			Expect(next(ctx, quick)).To(ContainSubstring(fmt.Sprintf(`"value":%d}`, n+1)))
		}
		_, ok, err := slow.Take()
		Expect(ok).To(BeFalse())
		Expect(err).To(MatchError(ErrTooSlow))
		Expect(slow.waiting).To(BeEmpty())
		again := w.hub.Watch(ctx, "t", a)
		defer again.Close()
		Expect(next(ctx, again)).To(ContainSubstring(fmt.Sprintf(`"value":{"a":%d}`, maxWaiting+1)))
	}, SpecTimeout(2*time.Minute))

	It("ends with its thread, and with a store that fails; the next one begins anew", func(ctx SpecContext) {
		for _, failure := range []error{store.ErrNotFound, errors.New("the disk is full")} {
			w := newWorld()
			watch := w.hub.Watch(ctx, "t", a)
			next(ctx, watch)
			w.fail(failure)
			Eventually(func() bool { w.clock.Step(Interval); return len(watch.ready) > 0 }).Should(BeTrue())
			_, err := watch.Next(ctx)
			Expect(err).To(MatchError(failure))
			Expect(w.hub.CountWatched()).To(BeZero())
			w.fail(nil)
			anew := w.hub.Watch(ctx, "t", a)
			Expect(next(ctx, anew)).To(Equal(`{"v":2,"value":{"a":-1}}`))
			anew.Close()
			watch.Close()
			Expect(w.hub.CountWatched()).To(BeZero())
		}
	}, SpecTimeout(2*time.Minute))

	It("draws what is held of its thread, and ends where there is no memory", Label("K8S-12"), func(ctx SpecContext) {
		w := newWorld()
		w.parts["a"] = `"` + strings.Repeat("x", 100<<10) + `"`
		budget := membudget.New(8<<20, time.Millisecond)
		account := budget.Open("ns")
		defer account.Close()
		watch := w.hub.Watch(membudget.With(ctx, account), "t", a)
		next(ctx, watch)
		Eventually(budget.Used).Should(Equal(int64(2*len(w.parts["a"]))), "as it is, and encoded")
		w.set("a", 1)
		Eventually(func() bool { w.clock.Step(Interval); return len(watch.ready) > 0 }).Should(BeTrue())
		Expect(next(ctx, watch)).To(ContainSubstring(`"value":1`))
		Eventually(budget.Used).Should(Equal(int64(2)), "what is no longer shown takes nothing")
		watch.Close()
		Eventually(budget.Used).Should(BeZero())

		const taken = 4<<20 - 64<<10
		Expect(account.TryDraw(taken)).To(Succeed())
		poor := w.hub.Watch(membudget.With(ctx, account), "t", a)
		defer poor.Close()
		_, err := poor.Next(ctx)
		Expect(membudget.Refused(err)).To(BeTrue(), "%v", err)
		Expect(w.hub.CountWatched()).To(BeZero())
		Expect(budget.Used()).To(Equal(int64(taken)))
	}, SpecTimeout(2*time.Minute))

	It("finds by itself what it was not notified of", func(ctx SpecContext) {
		w := newWorld()
		watch := w.hub.Watch(ctx, "t", a)
		defer watch.Close()
		next(ctx, watch)
		w.mu.Lock()
		w.version, w.parts["a"] = 9, "9"
		w.mu.Unlock()
		Eventually(func() bool { w.clock.Step(time.Hour); return len(watch.ready) > 0 }).Should(BeTrue())
		Expect(next(ctx, watch)).To(ContainSubstring(`"value":9`))
	}, SpecTimeout(2*time.Minute))
})
