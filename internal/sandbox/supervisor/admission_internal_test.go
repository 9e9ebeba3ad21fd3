//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

func TestOwnMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.max")
	for _, c := range []struct {
		limit string
		want  int64
	}{{"536870912\n", 448 << 20}, {"max\n", 0}, {"67108864\n", 64 << 20}, {"", 0}} {
		if err := os.WriteFile(file, []byte(c.limit), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ownMemory(file, 64<<20, 64<<20); got != c.want {
			t.Errorf("a limit of %q leaves %d, not %d", c.limit, got, c.want)
		}
	}
	if got := ownMemory(file+".none", 64<<20, 64<<20); got != 0 {
		t.Errorf("without a container it is %d", got)
	}
}

func TestMemoryQueue(t *testing.T) {
	q := &memoryQueue{total: 10, free: 10}
	acquire := func(ctx context.Context, n int64, nested bool) bool {
		return q.acquire(ctx, memoryClaim{bytes: n, nested: nested}) == nil
	}
	now, cancel := context.WithCancel(t.Context())
	cancel() // a request with it gets what is free at once, or nothing
	if !acquire(now, 6, false) {
		t.Fatal("there is enough")
	}
	large, behind := make(chan bool), make(chan bool)
	enqueued := func(n int) {
		for {
			q.mu.Lock()
			waiting := len(q.waiting)
			q.mu.Unlock()
			if waiting == n {
				return
			}
			runtime.Gosched()
		}
	}
	impatient, leave := context.WithCancel(t.Context())
	go func() { large <- acquire(impatient, 10, false) }()
	enqueued(1)
	go func() { behind <- acquire(t.Context(), 1, false) }()
	enqueued(2)
	if !acquire(now, 4, true) {
		t.Fatal("a nested run queues behind one that waits for the memory of its caller")
	}
	if acquire(now, 1, true) {
		t.Fatal("there is nothing left")
	}
	q.release(memoryClaim{bytes: 4})
	enqueued(2) // the large one is not passed over
	leave()
	if <-large || !<-behind {
		t.Fatal("one that gave up holds up those behind it")
	}
	q.release(memoryClaim{bytes: 1})
	q.release(memoryClaim{bytes: 6})
	if q.free != 10 || len(q.waiting)+len(q.nested) != 0 {
		t.Fatalf("%d of 10 are free", q.free)
	}
}

// An isolate that waits for other isolates to end delays no run, because they may be waiting for that run.
func TestRunsPassAnIsolateThatWaitsForIsolates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &memoryQueue{total: 7, free: 7}
		now, cancel := context.WithCancel(t.Context())
		cancel() // a request with it gets what is free at once, or nothing
		isolate := memoryClaim{bytes: 2, keeps: true}
		for range 3 {
			if err := q.acquire(now, isolate); err != nil {
				t.Fatal(err)
			}
		}
		fourth := make(chan error, 1)
		go func() { fourth <- q.acquire(t.Context(), isolate) }()
		synctest.Wait()
		if err := q.acquire(now, memoryClaim{bytes: 1, keeps: true}); !errors.Is(err, errMemoryUsed) {
			t.Fatalf("an isolate that wants less passes one that came first: %v", err)
		}
		run := memoryClaim{bytes: 1, patience: time.Second}
		if err := q.acquire(now, run); err != nil {
			t.Fatalf("a run that one of the isolates may wait for: %v", err)
		}
		q.release(isolate)
		if err := <-fourth; err != nil {
			t.Fatal(err)
		}
		q.release(run)
	})
}

// Patience counts how long isolates leave too little without interruption, not how long a request has waited before.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &memoryQueue{total: 10, free: 10}
		first, isolate := memoryClaim{bytes: 6}, memoryClaim{bytes: 5, keeps: true}
		run := memoryClaim{bytes: 6, patience: 2 * time.Second}
		if err := q.acquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		had := make(chan error, 2)
		go func() { had <- q.acquire(t.Context(), isolate) }()
		synctest.Wait()
		go func() { had <- q.acquire(t.Context(), run) }()
		synctest.Wait()
		time.Sleep(1900 * time.Millisecond)
		q.release(first)
		if err := <-had; err != nil {
			t.Fatalf("the isolate: %v", err)
		}
		time.Sleep(1900 * time.Millisecond)
		q.release(isolate)
		if err := <-had; err != nil {
			t.Fatalf("the isolate kept the memory for less than the run's patience: %v", err)
		}
		q.release(run)

		if err := q.acquire(t.Context(), isolate); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := q.acquire(t.Context(), run); !errors.Is(err, errMemoryKept) || time.Since(begun) != run.patience {
			t.Fatalf("after %s: %v", time.Since(begun), err)
		}
		// A request whose time is over before its patience may have had memory later.
		brief, cancel := context.WithTimeout(t.Context(), run.patience/2)
		defer cancel()
		if err := q.acquire(brief, run); !errors.Is(err, errMemoryUsed) {
			t.Fatalf("with patience left: %v", err)
		}
		// On a busy machine the timer of its patience fires after its time is over.
		for range 50 {
			both, cancel := context.WithTimeout(t.Context(), run.patience)
			if err := q.acquire(both, run); !errors.Is(err, errMemoryKept) {
				t.Fatalf("with no patience left when its time is over: %v", err)
			}
			cancel()
		}
		// Its patience began before it entered the queue.
		left, cancel := context.WithTimeout(t.Context(), run.patience/2)
		defer cancel()
		before := memoryClaim{bytes: run.bytes, patience: run.patience, begun: time.Now().Add(-run.patience)}
		if err := q.acquire(left, before); !errors.Is(err, errMemoryKept) {
			t.Fatalf("with no patience left, counted from when it came: %v", err)
		}
		if err := q.acquire(brief, first); !errors.Is(err, errMemoryKept) {
			t.Fatalf("without any patience of its own: %v", err)
		}
		q.release(isolate)
		if q.free != 10 || q.kept != 0 || len(q.waiting)+len(q.nested) != 0 {
			t.Fatalf("%d of 10 are free, %d kept", q.free, q.kept)
		}
	})
}

// A run that had to wait for its place has the rest of its time for memory, and its error still says which of the two
// it lacks.
func TestPatienceAfterTheWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Defaults()
		o.Concurrency, o.MaxMemory, o.TotalMemory = 1, 64<<20, 96<<20
		a := newAdmission(o)
		limits := protocol.Limits{Memory: 64 << 20}
		admit := func(kind protocol.Kind, memory int64) func() {
			release, err := a.admit(t.Context(), protocol.Limits{Kind: kind, Memory: memory}, kind == protocol.KindRun)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		defer admit(protocol.KindIsolate, limits.Memory)()
		time.AfterFunc(nestedWait/4, admit(protocol.KindRun, 1<<20))
		begun := time.Now()
		_, err := a.admit(t.Context(), limits, true)
		if kept := (*memoryKeptError)(nil); !errors.As(err, &kept) || time.Since(begun) >= nestedWait {
			t.Fatalf("after %s: %v", time.Since(begun), err)
		}
	})
}
