package postrun_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
)

// TestTasksOfRetainedThreadsWaitForAdoption has the object of one thread deleted before its task begins, and that of another during its task.
// Both threads are retained. Their tasks are done once objects have adopted them, and not before.
func TestTasksOfRetainedThreadsWaitForAdoption(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	st, err := sqlitetest.Open(t.Context(), sqlstore.SQLiteOptions{Dir: t.TempDir(), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	active := activethreads.New()
	began := make(chan string)
	goOn := make(chan struct{})
	w := postrun.NewWorker(postrun.Options{
		Store: st, Clock: clock, Log: logr.Discard(), Workers: 1, Timeout: 24 * time.Hour, SweepInterval: time.Minute, LeaseTTL: time.Minute,
		Attach: active.AttachUntilPurged, Fault: func(string) {}, Redact: func(_, text string) string { return text },
		Tasks: []postrun.Task{{Name: "wait", Do: func(ctx context.Context, run postrun.Run) error {
			select {
			case began <- run.Thread.ID:
			case <-ctx.Done():
			}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		}}},
	})
	add := func(id string) {
		t.Helper()
		clock.Step(time.Second)
		if _, _, err := st.CreateThread(t.Context(), store.Thread{ID: id, Namespace: "n", Agent: "a"},
			&store.PutRun{Run: store.Run{ID: "r", Status: store.RunSucceeded, State: store.RunPostRunPending}}); err != nil {
			t.Fatal(err)
		}
		w.Add(store.RunRef{ThreadID: id, RunID: "r"})
	}
	apply := func(id string, op store.Op) {
		t.Helper()
		if err := st.Apply(t.Context(), id, nil, op); err != nil {
			t.Fatal(err)
		}
	}
	begins := func(want string) {
		t.Helper()
		if id := <-began; id != want {
			t.Fatalf("the task of thread %s begins, not that of %s", id, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { w.Run(ctx); done <- struct{}{} }()
	defer func() { cancel(); <-done }()

	add("cut")
	begins("cut")
	add("waits")
	apply("cut", &store.Retain{})
	apply("waits", &store.Retain{})
	active.Detach("cut", cancelcause.ErrAborted)
	add("living")
	begins("living") // there is one slot, so the worker is done with the others
	goOn <- struct{}{}

	clock.Step(48 * time.Hour)
	left, err := st.LeftPostRun(t.Context(), time.Hour, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range left {
		if r.ThreadID != "living" { // it may not be recorded yet that its task is done
			t.Fatalf("the run of the retained thread %s is listed, and would be taken again and again", r.ThreadID)
		}
	}
	for _, id := range []string{"cut", "waits"} {
		apply(id, &store.Adopt{ObjectUID: "new-" + id, Name: id, Agent: "a"})
	}
	close(goOn)
	go func() { w.Sweep(ctx); done <- struct{}{} }()
	defer func() { cancel(); <-done }()
	begins("cut")
	clock.Step(time.Minute)
	begins("waits")
}
