package activethreads_test

import (
	"runtime"
	"testing"

	"github.com/skein-dev/skein/internal/engine/activethreads"
)

// A notification that finds a thread active must reach the worker that lets go of it. Otherwise the message that it tells of waits for
// the next search for lost work.
func TestAMarkIsSeenByTheWorkerThatLetsGo(t *testing.T) {
	threads := activethreads.New()
	const id = "thread"
	begin, marked := make(chan struct{}), make(chan bool)
	defer close(begin)
	go func() {
		for range begin {
			marked <- threads.MarkDirty(id)
		}
	}()
	for i := range 600_000 {
		a := activethreads.NewActive(func(error) {})
		threads.Register(id, a)
		begin <- struct{}{}
		for range i % 16 { // so that the two meet at different places
			runtime.Gosched()
		}
		threads.Remove(id, a)
		found := a.Dirty.Load()
		switch active := <-marked; {
		case active && !found:
			t.Fatalf("round %d: the thread was marked while it was active, and its worker did not see that", i)
		case !active && a.Dirty.Load():
			t.Fatalf("round %d: the thread was marked after it was let go", i)
		}
	}
}

func TestNoInactiveThreadIsMarked(t *testing.T) {
	if activethreads.New().MarkDirty("thread") {
		t.Error("a thread that nothing works for was marked")
	}
}
