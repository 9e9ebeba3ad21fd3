package bench

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/test/harness"
)

// Measures the time from when a stop reaches the engine until the store has the end of the run, and of the runs of the children that it
// waits for. There is one measurement for each state in which a run can be. A SQLite store on disk, no cluster; code in processes.
var _ = Describe("A stop", Label("stops"), func() {
	It("ends a run in any state", func(ctx SpecContext) {
		for _, s := range enginetest.States() {
			n := 50
			if s.Code {
				n = 10 // each has a sandbox of its own
			}
			figure("stop of "+s.Name, "%s  (goal 100 ms)", spread(stops(ctx, s, n)))
		}
	}, NodeTimeout(10*time.Minute))
})

// stops brings n threads to a state, one after the other, and gives how long their stops took.
func stops(ctx context.Context, s enginetest.State, n int) (took []time.Duration) {
	GinkgoHelper()
	w, err := enginetest.New(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	w.Logger = logr.Discard()
	sandboxes, err := w.UseProcesses(process.Options{Command: []string{harness.Bin("sandbox")}, MaxWallTime: time.Hour, MaxMemory: 64 << 20})
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(sandboxes.Close()).To(Succeed()) }()
	held := s.Put(w)
	defer held.Close()
	o := w.Options()
	o.LeaseTTL, o.SweepInterval = 30*time.Second, 30*time.Second
	e, err := engine.New(o)
	Expect(err).NotTo(HaveOccurred())
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- e.Start(running) }()
	defer func() {
		cancel()
		Eventually(done).Should(Receive(BeNil()))
		Expect(w.Close()).To(Succeed())
	}()
	for range n {
		id, err := w.Thread(ctx, enginetest.StateAgent)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Send(ctx, id, "go")).To(Succeed())
		Expect(s.In(ctx, w, held, id)).To(Succeed())
		took = append(took, timed(func() { Expect(e.Stop(ctx, id, "enough")).To(Succeed()) }))
		Expect(w.Store.Run(ctx, id, "")).To(HaveField("Status", store.RunStopped))
		children, err := w.Store.Children(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(children).To(HaveLen(s.Children))
		for _, c := range children {
			Expect(w.Store.Run(ctx, c.ID, "")).To(HaveField("Status", store.RunStopped))
		}
		if s.Code {
			sandboxes.Discard(ctx, &store.Thread{ID: id}, nil)
		}
	}
	return took
}
