package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/store"
)

func describeScript(e *env) {
	Describe("any script of several writers", func() {
		It("leaves the state that the logs describe, loses no acknowledged write, and lets no stale holder write", Label("THR-12", "MSG-05", "KVS-01"), func(ctx SpecContext) {
			round := 0
			rapid.Check(GinkgoT(), func(t *rapid.T) {
				round++
				threads, err := scriptThreads(ctx, e.store, fmt.Sprint("script-", round), 1+rapid.IntRange(0, 2).Draw(t, "threads"))
				if err != nil {
					t.Fatal(err)
				}
				play := &play{store: e.store, newest: map[string]int64{}, ttl: time.Minute, wait: func() { e.clock.Step(time.Minute + 1) }}
				var writers []*playWriter
				for i := range 1 + rapid.IntRange(0, 3).Draw(t, "writers") {
					writers = append(writers, &playWriter{
						play:   play,
						script: &scriptWriter{name: fmt.Sprintf("%d.%d", round, i), threads: threads, choose: drawn(t, i)},
						steps:  rapid.IntRange(1, 12).Draw(t, "steps"),
					})
				}
				if err := together(len(writers), func(i int) error { return writers[i].run(ctx) }); err != nil {
					t.Fatal(err)
				}
				if err := checkScript(ctx, e.store, threads, play.acknowledged); err != nil {
					t.Fatal(err)
				}
			})
		})
	})
}

// drawn returns a chooser that uses numbers drawn beforehand, because writers run concurrently and rapid does not.
func drawn(t *rapid.T, writer int) chooser {
	numbers := rapid.SliceOfN(rapid.IntRange(0, 1<<20), 64, 64).Draw(t, fmt.Sprint("choices of writer ", writer))
	i := 0
	return func(n int) int {
		i++
		return (numbers[i%len(numbers)] + i/len(numbers)*7919) % n
	}
}

func scriptThreads(ctx context.Context, s store.Store, name string, n int) (ids []string, err error) {
	for i := range n {
		id := fmt.Sprintf("%s-%d", name, i)
		if _, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// play is a script in progress.
type play struct {
	store store.Store
	ttl   time.Duration // of leases
	wait  func()        // waits until leases have expired

	mu           sync.Mutex
	acknowledged []string
	newest       map[string]int64 // thread → highest epoch that any writer got
}

// playWriter is one writer of a play.
type playWriter struct {
	*play
	script *scriptWriter
	steps  int // 0: until it fails
	fence  *store.Fence
	told   func(tag string) error // may be nil
}

// refusals are errors that a step may meet, depending on what the others have done.
var refusals = []error{store.ErrNotFound, store.ErrTerminated, store.ErrFolder, store.ErrNotFolder, store.ErrFenced,
	store.ErrNotArray, store.ErrRunning, store.ErrForkPoint}

// run commits the steps of the script, or goes on until one fails when there is no number of them.
func (w *playWriter) run(ctx context.Context) error {
	for n := 0; w.steps == 0 || n < w.steps; n++ {
		if err := w.hold(ctx); err != nil {
			return err
		}
		var failed error
		st := w.script.next(func(thread string) []store.InboxItem {
			items, err := w.store.Inbox(ctx, thread)
			failed = errors.Join(failed, err)
			return items
		})
		if failed != nil {
			return failed
		}
		if err := w.commit(ctx, st); err != nil {
			return fmt.Errorf("step %s: %w", st.Tag, err)
		}
	}
	return nil
}

// hold takes, renews or releases a thread now and then, or lets all leases expire.
func (w *playWriter) hold(ctx context.Context) error {
	switch w.script.choose(8) {
	case 0:
		id := w.script.threads[w.script.choose(len(w.script.threads))]
		w.mu.Lock() // the next holder must not record its epoch first
		defer w.mu.Unlock()
		f, err := w.store.Acquire(ctx, id, w.script.name, w.ttl)
		if errors.Is(err, store.ErrLeaseHeld) {
			w.wait()
			return nil
		}
		if err != nil {
			return err
		}
		w.fence = f
		if f.Epoch <= w.newest[id] {
			return fmt.Errorf("thread %s was given at epoch %d, after %d", id, f.Epoch, w.newest[id])
		}
		w.newest[id] = f.Epoch
	case 1:
		if w.fence == nil {
			return nil
		}
		if err := w.store.Renew(ctx, w.fence, w.ttl); errors.Is(err, store.ErrFenced) {
			w.fence = nil
		} else if err != nil {
			return err
		}
	case 2:
		if w.fence == nil {
			return nil
		}
		err := w.store.Release(ctx, w.fence)
		w.fence = nil
		return err
	}
	return nil
}

func (w *playWriter) commit(ctx context.Context, st *step) error {
	var fence *store.Fence
	if w.fence != nil && w.fence.ThreadID == st.Thread {
		fence, st.Epoch = w.fence, w.fence.Epoch
	}
	w.mu.Lock()
	newest := w.newest[st.Thread]
	w.mu.Unlock()
	err := w.store.Apply(ctx, st.Thread, fence, st.ops()...)
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	if fence != nil && fence.Epoch < newest {
		return fmt.Errorf("it was written at epoch %d though the thread had been given away at %d", fence.Epoch, newest)
	}
	w.mu.Lock()
	w.acknowledged = append(w.acknowledged, st.Tag)
	w.mu.Unlock()
	if w.told != nil {
		return w.told(st.Tag)
	}
	return nil
}
