package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

// BenchmarkTurns measures whole turns (a user message in, its answer on disk) with a scripted model that
// takes no time, over many threads at once. The goal is 0.3 ms of processor time for a turn.
func BenchmarkTurns(b *testing.B) {
	for _, threads := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) { benchmarkTurns(b, threads) })
	}
}

func benchmarkTurns(b *testing.B, threads int) {
	w, err := enginetest.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	w.Logger = logr.Discard()
	w.Definitions.Put("echo", enginetest.Script(enginetest.Say("You said {{.Last.Content}}.")))

	// A thread has ended a turn when its run has: that is what a notification says, and the row confirms.
	ended := make(map[string]chan struct{}, threads)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ids := make([]string, threads)
	for i := range ids {
		if ids[i], err = w.Thread(ctx, "echo"); err != nil {
			b.Fatal(err)
		}
		ended[ids[i]] = make(chan struct{}, 1)
	}
	stop := w.Store.Subscribe(func(h store.Notification) {
		if ch, ok := ended[h.ThreadID]; ok && h.Changed&store.ChangedThread != 0 {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	o := w.Options()
	o.LeaseTTL, o.SweepInterval = 30*time.Second, 30*time.Second
	e, err := engine.New(o)
	if err != nil {
		b.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = e.Start(ctx) })

	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	b.ResetTimer()
	start, used := time.Now(), processorTime(b)
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() {
			for turn := 1; ; turn++ {
				if _, more := <-work; !more {
					return
				}
				if err := w.Send(ctx, id, "hello"); err != nil {
					b.Error(err)
					return
				}
				for {
					runs, err := w.Store.Run(ctx, id, "")
					if err == nil && runs.Status.Ended() {
						if t, err := w.Store.Thread(ctx, id); err == nil && t.Messages >= int64(2*turn) {
							break
						}
					}
					<-ended[id]
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "turns/s")
	b.ReportMetric(float64((processorTime(b)-used).Microseconds())/float64(b.N)/1000, "cpu-ms/turn")
	b.ReportMetric(0.3, "goal-cpu-ms/turn")
	cancel()
	done.Wait()
}

// processorTime is for how long processors have been at work for this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
