package postrun_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// One namespace whose tasks never end leaves workers for the others. When the replica stops, what waits is handed over, although the
// tasks that are under way go on.
func TestSlowNamespaceLeavesWorkersForOthers(t *testing.T) {
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	began, goOn := make(chan string, 100), make(chan struct{})
	w := postrun.NewWorker(postrun.Options{
		Store: st, Clock: clock.RealClock{}, Log: logr.Discard(), Workers: 10, Timeout: time.Hour, SweepInterval: time.Hour, LeaseTTL: time.Hour,
		Attach: activethreads.New().AttachUntilPurged, Fault: func(string) {}, Redact: func(_, text string) string { return text },
		Tasks: []postrun.Task{{Name: "wait", Do: func(ctx context.Context, run postrun.Run) error {
			began <- run.Thread.Namespace
			if run.Thread.Namespace == "slow" {
				<-goOn
			}
			return nil
		}}},
	})
	end := func(namespace string, n int) {
		t.Helper()
		for i := range n {
			id := fmt.Sprint(namespace, i)
			if _, _, err := st.CreateThread(t.Context(), store.Thread{ID: id, Namespace: namespace, Agent: "a"},
				&store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded, EndedAt: time.Now().UnixMicro(), State: store.RunPostRunPending}}); err != nil {
				t.Fatal(err)
			}
			w.Add(store.RunRef{ThreadID: id, RunID: "r"})
		}
	}
	end("slow", 20)
	end("quick", 20)
	var loop sync.WaitGroup
	loop.Go(func() { w.Run(t.Context()) })
	limit := time.After(time.Minute)
	for quick := 0; quick < 20; {
		select {
		case namespace := <-began:
			if namespace == "quick" {
				quick++
			}
		case <-limit:
			t.Fatal("the tasks of one namespace hold up those of another")
		}
	}
	handed := make(chan string, 100)
	defer st.Subscribe(func(n store.Notification) {
		if n.Changed&store.ChangedTasks != 0 {
			handed <- n.ThreadID
		}
	})()
	w.Drain()
	for range 12 { // eight of the slow ones are under way
		select {
		case <-handed:
		case <-limit:
			t.Fatal("what waits is not handed over while tasks are under way")
		}
	}
	close(goOn)
	loop.Wait()
}

// A backlog of one namespace, and its tasks that never end, leave another namespace's turn in what the replica takes over.
func TestBacklogOfOneNamespaceLeavesPlacesForOthers(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir(), Clock: fake})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	ended := func(namespace string, n int) (runs []store.RunRef) {
		t.Helper()
		for i := range n {
			fake.Step(time.Second)
			id := fmt.Sprint(namespace, i)
			if _, _, err := st.CreateThread(t.Context(), store.Thread{ID: id, Namespace: namespace, Agent: "a"},
				&store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded, State: store.RunPostRunPending}}); err != nil {
				t.Fatal(err)
			}
			runs = append(runs, store.RunRef{ThreadID: id, RunID: "r"})
		}
		return runs
	}
	began, goOn := make(chan string, 100), make(chan struct{})
	w := postrun.NewWorker(postrun.Options{
		Store: st, Clock: fake, Log: logr.Discard(), Workers: 10, Timeout: time.Hour, SweepInterval: time.Hour, LeaseTTL: time.Hour,
		Attach: activethreads.New().AttachUntilPurged, Fault: func(string) {}, Redact: func(_, text string) string { return text },
		Tasks: []postrun.Task{{Name: "wait", Do: func(ctx context.Context, run postrun.Run) error {
			began <- run.Thread.Namespace
			if run.Thread.Namespace == "slow" {
				<-goOn
			}
			return nil
		}}},
	})
	ended("slow", 60)
	fake.Step(3 * time.Hour) // the replica that had them is lost
	var loops sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	loops.Go(func() { w.Run(ctx) })
	if err := st.HandOver(t.Context(), ended("calm", 2)); err != nil {
		t.Fatal(err)
	}
	loops.Go(func() { w.Sweep(ctx) })
	limit := time.After(time.Minute)
	await := func(namespace string, n int) {
		t.Helper()
		for n > 0 {
			select {
			case got := <-began:
				if got == namespace {
					n--
				}
			case <-limit:
				t.Fatal("the backlog of one namespace holds up the tasks of another")
			}
		}
	}
	await("calm", 2)
	for _, namespace := range []string{"later", "last"} { // the sweep that finds the last one comes after the whole one before
		if err := st.HandOver(t.Context(), ended(namespace, 1)); err != nil {
			t.Fatal(err)
		}
		w.Look()
		await(namespace, 1)
	}
	left, err := st.LeftPostRun(t.Context(), 2*time.Hour, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) < 40 { // the replica has places for twenty
		t.Fatalf("the replica took tasks that it cannot do: %d of 60 are left for others", len(left))
	}
	close(goOn)
	cancel()
	loops.Wait()
}
