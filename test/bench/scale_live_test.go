package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/deltas"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/notify"
	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

// What a change of one thread costs while others run, stream and are watched.
var _ = Describe("Scale of what is under way", Label("scale"), func() {
	AfterEach(func() { load() })

	It("leaves alone what runs in another replica", func(ctx SpecContext) {
		server, err := pgtest.Start(ctx, pgtest.Options{Settings: []string{"shared_preload_libraries=pg_stat_statements"}})
		Expect(err).NotTo(HaveOccurred(), "PostgreSQL's pg_stat_statements counts the statements of replicas")
		DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
		few, fewWork := elsewhere(ctx, server, 100)
		many, manyWork := elsewhere(ctx, server, 1_000)
		figure("an idle replica, PostgreSQL, in an interval", "%.1f statements with 100, %.1f with 1,000: %.2f times (goal 1.2); %s and %s of the database's processors; threads run in another replica of three",
			few, many, many/few, short(fewWork), short(manyWork))
	}, NodeTimeout(3*time.Minute))

	It("notifies the subscribers of a thread", func(ctx SpecContext) {
		g := grow(20_000, hears(1_000), hears(10_000))
		g.print("a notification that one hears", 1_000, "; beside subscribers of other threads")
		few, many := openSQLite(ctx), openSQLite(ctx)
		g = grow(50, commits(ctx, few, 1_000), commits(ctx, many, 10_000))
		g.print("  with its commit, SQLite", 1_000, "")
	}, NodeTimeout(2*time.Minute))

	for _, db := range plantables {
		It("streams answers on "+db.name, func(ctx SpecContext) {
			s := db.open(ctx)
			few, many := streams(ctx, s, "few", 10), streams(ctx, s, "many", 100)
			var g growth
			for range 3 {
				for i, all := range []*streaming{few, many} {
					took, work := all.run(ctx, 1500*time.Millisecond)
					g.took[i] = append(g.took[i], took...)
					g.work[i] += work
				}
			}
			g.print("a piece of a stream, "+db.name, 10, "; streams open, each of which writes every 50 ms: those that wait for the disk share a commit")
			g = grow(30, logs(ctx, s, "short", 1_000), logs(ctx, s, "long", 10_000))
			g.print("  in a long log, "+db.name, 1_000, "; entries")
		}, NodeTimeout(2*time.Minute))
	}

	It("appends while another thread is destroyed on SQLite", func(ctx SpecContext) {
		s := openSQLite(ctx)
		newThread(ctx, s, "other")
		var longest [2]time.Duration
		var all [2][]time.Duration
		for round := range 2 {
			for i, n := range []int{10_000, 100_000} {
				id := conversation(ctx, s, fmt.Sprintf("destroyed-%d-%d", n, round), n)
				waits := during(func() { say(ctx, s, "other", "hello") }, func() error {
					return s.Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})
				})
				p, err := s.Messages(ctx, id, store.MessageQuery{})
				Expect(err).NotTo(HaveOccurred())
				Expect(p.Messages).To(BeEmpty())
				longest[i] = max(longest[i], slices.Max(waits))
				all[i] = append(all[i], waits...)
			}
		}
		alone := during(func() { say(ctx, s, "other", "hello") }, func() error {
			time.Sleep(time.Second)
			return nil
		})
		figure("longest append during a destruction, SQLite", "%s with 10,000, %s with 100,000: %.2f times (goal 1.2); messages destroyed; p50 %s and %s; alone %s, p50 %s",
			short(longest[0]), short(longest[1]), float64(longest[1])/float64(longest[0]), short(quantile(all[0], .5)), short(quantile(all[1], .5)), short(slices.Max(alone)), short(quantile(alone, .5)))
	}, NodeTimeout(3*time.Minute))
})

// elsewhere returns how many statements a replica makes in the interval in which it looks at what others have, and for how long the database
// works for them, while n threads run in another of three replicas.
func elsewhere(ctx context.Context, server *pgtest.Server, n int) (statements float64, work time.Duration) {
	GinkgoHelper()
	const interval, intervals = 3 * time.Second, 3
	r := startReplicas(ctx, server, 1, time.Hour, func(o *engine.Options) {
		o.LeaseTTL, o.SweepInterval, o.Workers = 3*interval, 3*interval, 2_000
	})
	defer r.stop()
	busy := r.all[0].bench
	ids := busy.threads(ctx, n)
	sendAll := func() {
		manyAtOnce(n, func(i int) { Expect(busy.world.Send(ctx, ids[i], "go")).To(Succeed()) })
	}
	sendAll()
	Eventually(ctx, func() int { running, _ := busy.engine.Load(); return running }).Should(Equal(n))
	r.add(ctx, 2)
	sendAll() // the others hear of them
	time.Sleep(2 * interval)
	before := r.read(ctx)
	time.Sleep(intervals * interval)
	after := r.read(ctx)
	var idle cost
	for _, one := range r.all[1:] {
		idle.add(after.users[one.user].minus(before.users[one.user]))
		running, _ := one.bench.engine.Load()
		Expect(running).To(BeZero(), "the idle replicas are idle")
	}
	Expect(idle.statements).To(BeNumerically(">", 0))
	const each = 2 * intervals
	return float64(idle.statements) / each, idle.database / each
}

// hears is a notification that one subscriber hears, beside n subscribers of other threads.
func hears(n int) event {
	var s notify.Subscribers
	var heard atomic.Int64
	count := func(store.Notification) { heard.Add(1) }
	for i := range n {
		s.SubscribeThread(threadID("other", i), count)
	}
	s.SubscribeThread("one", count)
	about := []store.Notification{{ThreadID: "one", Changed: store.ChangedLog}}
	sent := int64(0)
	return always(func() {
		s.Send(about)
		if sent++; heard.Load() != sent {
			Fail(fmt.Sprintf("%d of %d notifications were heard", heard.Load(), sent))
		}
	})
}

// commits is an append that one subscriber hears of, beside n subscribers of other threads.
func commits(ctx context.Context, s store.Store, n int) event {
	GinkgoHelper()
	newThread(ctx, s, "one")
	heard := make(chan struct{}, 1)
	for i := range n { // until the store is closed
		s.SubscribeThread(threadID("other", i), func(store.Notification) { Fail("a subscriber was called for a thread that has not changed") })
	}
	s.SubscribeThread("one", func(store.Notification) {
		select {
		case heard <- struct{}{}:
		default:
		}
	})
	return always(func() {
		say(ctx, s, "one", "hello")
		<-heard
	})
}

// streaming is answers that are under way, each in a thread of its own.
type streaming struct {
	s       store.Store
	clock   clock.WithDelayedExecution
	fences  []*store.Fence
	started int
}

func streams(ctx context.Context, s store.Store, prefix string, n int) *streaming {
	GinkgoHelper()
	a := &streaming{s: s, clock: clock.RealClock{}}
	for i := range n {
		id := newThread(ctx, s, threadID(prefix, i))
		f, err := s.Acquire(ctx, id, "bench", time.Hour)
		Expect(err).NotTo(HaveOccurred())
		a.fences = append(a.fences, f)
	}
	return a
}

// run has all models answer for a time. It returns how long pieces took to be written, and for how long processors worked for all, as if they
// had been written one after the other.
func (a *streaming) run(ctx context.Context, d time.Duration) (took []time.Duration, work time.Duration) {
	GinkgoHelper()
	var mu sync.Mutex
	work = workOf(func() {
		var all sync.WaitGroup
		for _, f := range a.fences {
			a.started++
			message := fmt.Sprint("message-", a.started)
			all.Go(func() {
				defer GinkgoRecover()
				var began time.Time
				stream := deltas.New(ctx, deltas.Options{Store: a.s, Clock: a.clock, Fence: f, Run: &store.Run{ID: "run", ThreadID: f.ThreadID}, Fault: func(point string) {
					if point == "delta.before" {
						began = time.Now()
						return
					}
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}}, message, 0)
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					stream.Emit(model.Delta{Text: "a word "})
				}
				_, err := stream.Stop()
				Expect(err).NotTo(HaveOccurred())
			})
		}
		all.Wait()
	})
	Expect(len(took)).To(BeNumerically(">", len(a.fences)), "pieces were written")
	return took, work
}

// logs is a piece of an answer in a thread whose log has n pieces already.
func logs(ctx context.Context, s store.Store, id string, n int) event {
	GinkgoHelper()
	newThread(ctx, s, id)
	piece := func() store.Op {
		return &store.AppendEvent{Event: store.Event{Type: store.EventDelta, RunID: "run", MessageID: "m", Data: []byte(`{"text":"a word "}`)}}
	}
	for range n / 1_000 {
		var ops []store.Op
		for range 1_000 {
			ops = append(ops, piece())
		}
		Expect(s.Apply(ctx, id, nil, ops...)).To(Succeed())
	}
	f, err := s.Acquire(ctx, id, "bench", time.Hour)
	Expect(err).NotTo(HaveOccurred())
	return always(func() {
		mark := &store.Mark{}
		Expect(s.Apply(ctx, id, f, piece(), mark)).To(Succeed())
		Expect(mark.After).To(BeNumerically(">", n))
	})
}

// during repeats one thing until another has ended, once at least, and returns how long each took.
func during(one func(), other func() error) (took []time.Duration) {
	GinkgoHelper()
	done := make(chan error, 1)
	go func() { done <- other() }()
	for {
		took = append(took, timed(one))
		select {
		case err := <-done:
			Expect(err).NotTo(HaveOccurred())
			return took
		default:
		}
	}
}
