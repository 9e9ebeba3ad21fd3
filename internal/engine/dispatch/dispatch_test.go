package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/engine/schedule"
	"github.com/skein-dev/skein/internal/store"
)

// pages is a store with threads with work, a page for each.
type pages struct {
	store.Store
	n     int
	asked chan int // the page that a search asks for
}

func (p *pages) RunnablePage(_ context.Context, after store.WorkPlace, _ int) ([]string, store.WorkPlace, error) {
	i := 0
	if after != nil {
		i = int(after["n"].Since)
	}
	p.asked <- i
	if i++; i == p.n {
		return nil, nil, nil
	}
	return nil, store.WorkPlace{"n": {Since: int64(i)}}, nil
}

func (p *pages) Thread(context.Context, string) (*store.Thread, error) {
	return &store.Thread{Namespace: "n"}, nil
}

func newDispatcher(s store.Store) (*Dispatcher, *testingclock.FakeClock) {
	c := testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return New(Options{
		Store: s, Clock: c, Log: logr.Discard(), SweepInterval: time.Minute, Active: activethreads.New(), Effects: &effects.Worker{}, PostRun: &postrun.Worker{},
		Queue: schedule.NewQueue(schedule.Options{Store: s, Clock: clock.RealClock{}, Workers: 1}),
	}), c
}

// A connection that is lost again and again keeps no thread from being found.
func TestASearchForLostWorkReachesItsEnd(t *testing.T) {
	g := NewWithT(t)
	s := &pages{n: 3, asked: make(chan int, 1)}
	d, c := newDispatcher(s)
	lost := store.Notification{Changed: store.ChangedThread | store.ChangedInbox, Remote: true}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { d.Sweep(ctx) })
	asked := func() int {
		select {
		case i := <-s.asked:
			return i
		case <-time.After(time.Minute):
			return -1
		}
	}
	var order []int
	for range 7 {
		order = append(order, asked())
		g.Eventually(c.HasWaiters, time.Minute).Should(BeTrue())
		if i := order[len(order)-1]; i+1 < s.n { // else the search is over, and a new one begins at once
			d.Notify(lost)
			g.Eventually(func() int { return len(d.sweepNow) }, time.Minute).Should(BeZero())
		}
		c.Step(pageEvery)
	}
	g.Expect(order).To(Equal([]int{0, 1, 2, 0, 1, 2, 0}))
	cancel()
	work.Wait()
}

// The threads of an agent that becomes ready may be thousands. Only those that wait for it are looked at.
func TestOnlyRefusedThreadsAreWoken(t *testing.T) {
	g := NewWithT(t)
	d, _ := newDispatcher(&pages{})
	d.refused.Add("refused")
	g.Expect(d.opts.Active.Register("tried", activethreads.NewActive(func(error) {}))).To(BeTrue())
	for _, id := range []string{"idle", "refused", "tried"} {
		d.WakeRefused(id)
	}
	var mu sync.Mutex
	var ids []string
	d.opts.Queue.ShutDown()
	d.opts.Queue.Run(t.Context(), func(_ context.Context, id string) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, id)
	})
	d.opts.Queue.Wait()
	slices.Sort(ids)
	g.Expect(ids).To(Equal([]string{"refused", "tried"}))
}
