//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
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
		return q.acquire(ctx, memoryClaim{bytes: n, nested: nested})
	}
	now, cancel := context.WithCancel(t.Context())
	cancel() // who asks with it gets what there is at once, or nothing
	if !acquire(now, 6, false) {
		t.Fatal("there is room")
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
