package postrun_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// TestBacklogIsDoneOnce has one replica with a backlog so old that another one takes it over, and both go on at once.
func TestBacklogIsDoneOnce(t *testing.T) {
	const runs = 6
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir(), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	end := func(id string) store.RunRef {
		t.Helper()
		if _, _, err := st.CreateThread(t.Context(), store.Thread{ID: id, Namespace: "n", Agent: "a"},
			&store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded, State: store.RunPostRunPending}}); err != nil {
			t.Fatal(err)
		}
		return store.RunRef{ThreadID: id, RunID: "r"}
	}
	var mu sync.Mutex
	done := map[string]int{}
	type replica struct {
		*postrun.Worker
		began chan string
		goOn  chan struct{}
	}
	worker := func() *replica {
		r := &replica{began: make(chan string, 10*runs), goOn: make(chan struct{})}
		r.Worker = postrun.NewWorker(postrun.Options{
			Store: st, Clock: clock, Log: logr.Discard(), Workers: 2 * runs, Timeout: time.Hour, SweepInterval: time.Hour, LeaseTTL: time.Minute,
			Attach: activethreads.New().AttachUntilPurged, Fault: func(string) {}, Redact: func(_, text string) string { return text },
			Tasks: []postrun.Task{{Name: "count", Do: func(ctx context.Context, run postrun.Run) error {
				r.began <- run.Thread.ID
				select {
				case <-r.goOn:
				case <-ctx.Done():
				}
				mu.Lock()
				defer mu.Unlock()
				done[run.Thread.ID]++
				return nil
			}}},
		})
		return r
	}
	var refs []store.RunRef
	for i := range runs {
		refs = append(refs, end(fmt.Sprint("t", i)))
	}
	clock.Step(2 * time.Hour) // others believe that the first replica is lost
	late, other := worker(), worker()
	ctx, cancel := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	loops.Go(func() { other.Run(ctx) })
	loops.Go(func() { other.Sweep(ctx) })
	for range runs {
		<-other.began
	}
	late.Add(refs...)
	loops.Go(func() { late.Run(ctx) })
	close(late.goOn)
	fresh := end("fresh")
	late.Add(fresh)
	for id := range late.began { // what came before it has begun, too, or was left to the other
		if id == "fresh" {
			break
		}
		t.Errorf("the tasks after the run of %s are done by both replicas", id)
	}
	close(other.goOn)
}
