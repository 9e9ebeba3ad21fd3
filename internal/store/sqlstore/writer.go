package sqlstore

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

// How many transactions share one commit at most, so that nobody waits long for others.
const (
	maxBatch = 256
	// maxSerialBatch is for the one writer behind whom all wait: whoever is not in a batch waits for it. What many share costs each
	// less, in pages and in syncs, and nobody else's locks are held meanwhile.
	maxSerialBatch = 1024
)

// writers share the threads out by their ids: the transactions of one thread go through one writer, in
// their order, and do not wait for each other in the database.
type writers struct {
	all  []*writer
	seed maphash.Seed
}

func newWriters(n, batch int, commits func() committer, after func(hints []store.Hint)) *writers {
	w := &writers{seed: maphash.MakeSeed()}
	for range n {
		w.all = append(w.all, newWriter(batch, commits(), after))
	}
	return w
}

// do runs fn in a transaction and returns once it is on disk, or was rolled back. A context that ends
// before the transaction's turn keeps it from running; afterwards it has no effect.
//
// The threads are those that fn will write, as far as they are known: the first says which writer does it.
// fn may be run again from its beginning, where others wrote at the same time: what it leaves outside must
// be right after any number of runs.
func (w *writers) do(ctx context.Context, fn func(*tx) error, threads ...string) error {
	one := w.all[0]
	if len(threads) > 0 && len(w.all) > 1 {
		one = w.all[maphash.String(w.seed, threads[0])%uint64(len(w.all))]
	}
	return one.do(ctx, fn, threads)
}

func (w *writers) close() (err error) {
	for _, one := range w.all {
		err = errors.Join(err, one.close())
	}
	return err
}

// committer writes the transactions of a batch and sets their errors. Those that succeeded are on disk
// when it returns.
type committer interface {
	commit(batch []*job)
	close() error
}

// writer commits transactions in groups, one group at a time. Whoever finds it free leads: he takes all
// that wait by then, commits them together, and hands over to the first that came meanwhile. So a lone
// caller pays for no hand-over and no timer, and many callers share one sync of the disk.
type writer struct {
	batch     int       // at most
	committer committer // of the leader
	after     func(hints []store.Hint)

	mu     sync.Mutex
	queue  []*job
	busy   bool
	closed bool
	idle   *sync.Cond
}

// job is one caller's transaction.
type job struct {
	ctx     context.Context
	fn      func(*tx) error
	threads []string
	err     error
	hints   []store.Hint
	// lead says, when the waiting ends: true, lead; false, done.
	lead chan bool
}

func newWriter(batch int, c committer, after func([]store.Hint)) *writer {
	w := &writer{batch: batch, committer: c, after: after}
	w.idle = sync.NewCond(&w.mu)
	return w
}

func (w *writer) do(ctx context.Context, fn func(*tx) error, threads []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{ctx: ctx, fn: fn, threads: threads}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errors.Join(store.ErrUnavailable, errClosed)
	}
	w.queue = append(w.queue, j)
	if w.busy {
		j.lead = make(chan bool, 1)
		w.mu.Unlock()
		if !<-j.lead {
			return j.err
		}
	} else {
		w.busy = true
		w.mu.Unlock()
	}
	w.leadBatch()
	return j.err
}

// leadBatch commits what waits, the leader's own first.
func (w *writer) leadBatch() {
	w.mu.Lock()
	n := min(len(w.queue), w.batch)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	w.mu.Unlock()

	w.committer.commit(batch)

	for _, j := range batch[1:] {
		j.lead <- false
	}
	w.mu.Lock()
	if len(w.queue) > 0 {
		w.queue[0].lead <- true
	} else {
		w.queue = nil
		w.busy = false
		w.idle.Broadcast()
	}
	w.mu.Unlock()
	for _, j := range batch {
		if j.err == nil && len(j.hints) > 0 {
			w.after(j.hints)
		}
	}
}

// close waits for the transactions that were accepted.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	for w.busy {
		w.idle.Wait()
	}
	w.mu.Unlock()
	return w.committer.close()
}

// failAll gives an error to the jobs that have none.
func failAll(batch []*job, err error) {
	for _, j := range batch {
		if j.err == nil {
			j.err = err
		}
	}
}
