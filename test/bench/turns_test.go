package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// What the engine costs, in this process: a SQLite store on disk, scripted models, no cluster. Beside each rate stands what the
// processors were at work for it, which is the same on a busy machine.
var _ = Describe("The engine", Label("turns"), func() {
	It("makes turns", func(ctx SpecContext) {
		for _, threads := range []int{1, 64, 256} {
			b := newEngineBench(ctx, enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))
			ids := b.threads(ctx, threads)
			b.turns(ctx, ids, 1) // what is made once
			cpu, began, turns := processors(), time.Now(), 0
			for time.Since(began) < 5*time.Second {
				b.turns(ctx, ids, 1)
				turns += threads
			}
			took, work := time.Since(began), processors()-cpu
			figure(fmt.Sprintf("a turn, SQLite, %d threads", threads), "%s of processor time (goal 0.3 ms), %.0f turns a second; that work alone allows %.0f on 2 processors",
				round(work/time.Duration(turns)), float64(turns)/took.Seconds(), 2*float64(turns)/work.Seconds())
		}
	}, NodeTimeout(5*time.Minute))

	It("makes steps", func(ctx SpecContext) {
		const steps, threads = 20, 64
		var script []skeinv1.ScriptStep
		for range steps {
			script = append(script, enginetest.Call("get_value", map[string]any{"key": "k"}))
		}
		with := newEngineBench(ctx, enginetest.Builtin(skeinv1.BuiltinKV), enginetest.Script(append(script, enginetest.Say("done"))...))
		without := newEngineBench(ctx, enginetest.Script(enginetest.Say("done")))
		var manyCPU, oneCPU, manyTook, oneTook time.Duration
		for range 3 { // in turns, because the machine's speed changes
			many, one := with.threads(ctx, threads), without.threads(ctx, threads)
			cpu := processors()
			oneTook += timed(func() { without.turns(ctx, one, 1) })
			oneCPU += processors() - cpu
			cpu = processors()
			manyTook += timed(func() { with.turns(ctx, many, 1) })
			manyCPU += processors() - cpu
		}
		n := time.Duration(3 * threads * steps)
		figure("overhead of a step with a tool call", "%s of a processor  (%s at %d threads at once; a turn of one step %s)", round((manyCPU-oneCPU)/n), round((manyTook-oneTook)/n), threads,
			round(oneCPU/(3*threads)))
	}, NodeTimeout(5*time.Minute))

	It("is as fast as its models", func(ctx SpecContext) {
		const threads = 1000
		latency := 200 * time.Millisecond
		b := newEngineBench(ctx, enginetest.Script(skeinv1.ScriptStep{Latency: &metav1.Duration{Duration: latency}, Times: ptr.To[int32](0), Content: "ok"}))
		ids := b.threads(ctx, threads)
		b.turns(ctx, ids, 1)
		cpu := processors()
		var all []time.Duration
		took := timed(func() { all = b.turns(ctx, ids, 3) })
		work := processors() - cpu
		figure("1,000 threads at once, 200 ms model", "a turn %s", spread(all))
		// A machine is not faster than its models, nor than its processors, all of them at work all the time.
		compute := work / time.Duration(runtime.GOMAXPROCS(0))
		figure("1,000 threads at once, 200 ms model", "%.2f times the models' floor (goal 1.60); the work alone is %.2f of it on %d processors  (%.0f turns a second; %s of a processor each)",
			took.Seconds()/(3*latency.Seconds()), compute.Seconds()/(3*latency.Seconds()), runtime.GOMAXPROCS(0), 3*threads/took.Seconds(), round(work/(3*threads)))
	}, NodeTimeout(5*time.Minute))

	It("goes to children and back", func(ctx SpecContext) {
		b := newEngineBench(ctx, enginetest.Builtin(skeinv1.BuiltinSubagents), func(a *definition.Agent) {
			a.Spec.Subagents = []skeinv1.AgentSubagent{{Name: "helper", AgentRef: skeinv1.LocalRef{Name: "child"}, Blocking: true, MaxInstances: 1}}
		}, enginetest.Script(enginetest.Call("subagent_create", map[string]any{"agent": "helper", "message": "help"}), enginetest.Say("done")))
		b.world.Definitions.Put("child", enginetest.Script(enginetest.Say("helped")))
		var all []time.Duration
		for range 100 {
			all = append(all, b.turns(ctx, b.threads(ctx, 1), 1)...)
		}
		figure("parent to child and back, engine alone", "%s  (a part of it through the API, where the goal is p50 30 ms)", spread(all))
	}, NodeTimeout(5*time.Minute))

	It("holds threads", func(ctx SpecContext) {
		latency := &metav1.Duration{Duration: time.Hour}
		running := newEngineBench(ctx, enginetest.Script(skeinv1.ScriptStep{Latency: latency, Content: "never"}))
		waiting := newEngineBench(ctx, enginetest.Builtin(skeinv1.BuiltinWait), enginetest.Script(enginetest.Call("wait", map[string]any{"delayMs": 3_600_000})))
		for _, c := range []struct {
			what string
			n    int
			b    *engineBench
			is   func(store.Run) bool
		}{
			{"running", 1000, running, func(store.Run) bool { r, _ := running.engine.Load(); return r == 1000 }},
			{"waiting", 10_000, waiting, func(r store.Run) bool { return r.Status == store.RunWaiting }},
		} {
			ids := c.b.threads(ctx, c.n)
			heap, goroutines := inUse()
			for _, id := range ids {
				Expect(c.b.world.Send(ctx, id, "go")).To(Succeed())
			}
			for _, id := range ids {
				Eventually(ctx, func() bool {
					r, err := c.b.world.Store.Run(ctx, id, "")
					return err == nil && c.is(*r)
				}).Should(BeTrue())
			}
			Eventually(ctx, func() bool { // those that wait have let go
				r, w := c.b.engine.Load()
				return w == 0 && (c.what == "running" || r == 0)
			}).Should(BeTrue())
			after, more := inUse()
			figure("memory of a thread that is "+c.what, "%.1f KiB, %.2f goroutines  (n=%d)", float64(after-heap)/1024/float64(c.n), float64(more-goroutines)/float64(c.n), c.n)
		}
	}, NodeTimeout(5*time.Minute))
})

// engineBench is an engine with an agent, in a world of its own.
type engineBench struct {
	world  *enginetest.World
	engine *engine.Engine

	mu      sync.Mutex
	watched map[string]*watched
}

// watched is a thread as its user sees it. The user is told when a run begins, waits or ends, and reads the thread only when the
// run may have ended. So the benchmark measures the engine and not its readers.
type watched struct {
	changes atomic.Int64 // of the thread's row, as hints tell
	changed chan struct{}
}

func newEngineBench(ctx context.Context, agent ...func(*definition.Agent)) *engineBench {
	GinkgoHelper()
	w, err := enginetest.New(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	w.Definitions.Put("agent", agent...)
	b, _ := startEngine(ctx, w, func(*engine.Options) {})
	return b
}

// startEngine runs an engine in a world until stop is called, or the spec ends. The world is closed with it.
func startEngine(ctx context.Context, w *enginetest.World, edit func(*engine.Options)) (b *engineBench, stop func()) {
	GinkgoHelper()
	w.Logger = logr.Discard()
	b = &engineBench{world: w, watched: map[string]*watched{}}
	unsubscribe := w.Store.Subscribe(func(h store.Notification) {
		if h.Changed&store.ChangedThread == 0 {
			return
		}
		if t := b.watch(h.ThreadID); t != nil {
			t.changes.Add(1)
			select {
			case t.changed <- struct{}{}:
			default:
			}
		}
	})
	o := w.Options()
	o.LeaseTTL, o.SweepInterval = 30*time.Second, 30*time.Second
	edit(&o)
	var err error
	b.engine, err = engine.New(o)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- b.engine.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
		unsubscribe()
		Expect(w.Close()).To(Succeed())
	})
	DeferCleanup(stop)
	return b, stop
}

func (b *engineBench) watch(id string) *watched {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.watched[id]
}

// threads makes n threads.
func (b *engineBench) threads(ctx context.Context, n int) (ids []string) {
	GinkgoHelper()
	for range n {
		id, err := b.world.Thread(ctx, "agent")
		Expect(err).NotTo(HaveOccurred())
		b.mu.Lock()
		b.watched[id] = &watched{changed: make(chan struct{}, 1)}
		b.mu.Unlock()
		ids = append(ids, id)
	}
	return ids
}

// turns has every thread make n turns, one after the other, all threads at once, and gives how long each took.
func (b *engineBench) turns(ctx context.Context, ids []string, n int) (took []time.Duration) {
	GinkgoHelper()
	took = make([]time.Duration, n*len(ids))
	var next atomic.Int64
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() {
			defer GinkgoRecover()
			for range n {
				took[next.Add(1)-1] = timed(func() { b.turn(ctx, id) })
			}
		})
	}
	group.Wait()
	return took
}

// turn sends a message and returns when the run that it started has ended.
func (b *engineBench) turn(ctx context.Context, id string) {
	t := b.watch(id)
	before := t.changes.Load()
	if err := b.world.Send(ctx, id, "hello"); err != nil {
		Expect(err).NotTo(HaveOccurred())
	}
	for {
		if t.changes.Load() >= before+2 { // the run has begun, so that it is the newest, and may have ended
			r, err := b.world.Store.Run(ctx, id, "")
			if err != nil {
				Expect(err).NotTo(HaveOccurred())
			}
			if r.Status.Ended() {
				if r.Status != store.RunSucceeded {
					Fail("the run ended otherwise: " + r.Message)
				}
				return
			}
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			Expect(ctx.Err()).NotTo(HaveOccurred())
		}
	}
}

// processors is for how long processors have been at work for this process.
func processors() time.Duration {
	GinkgoHelper()
	var u syscall.Rusage
	Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &u)).To(Succeed())
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inUse is the heap and the goroutines that are in use, and the stacks with the heap.
func inUse() (bytes int64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}
