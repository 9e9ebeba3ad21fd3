package txn

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/metrics"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// The largest number of transactions that share one commit, so that no caller waits long for others.
const (
	maxBatch = 256
	// maxSerialBatch applies to the single writer of SQLite. A transaction that misses a batch waits for all of it.
	// Large batches cost each transaction less, in pages and in syncs, and no other writer waits for their locks.
	maxSerialBatch = 1024
)

// Writers distribute threads by their ids. The transactions of one thread go through one writer, in their order, so
// they do not wait for each other in the database.
type Writers struct {
	all  []*writer
	seed maphash.Seed
}

func newWriters(n, batch int, commits func() committer, after func(notifications []store.Notification)) *Writers {
	w := &Writers{seed: maphash.MakeSeed()}
	for range n {
		w.all = append(w.all, newWriter(batch, commits(), after))
	}
	return w
}

// NewSerialWriters returns the writers of a database that has one connection that writes.
func NewSerialWriters(d *DB, open sqldb.Opener, after func(notifications []store.Notification)) *Writers {
	return newWriters(1, maxSerialBatch, func() committer { return &serial{dialect: d.Dialect, open: open, now: d.Now, quotas: d.quotasOf} }, after)
}

// NewPipelineWriters returns n writers with a connection each.
func NewPipelineWriters(d *DB, n int, open func(ctx context.Context, writes bool) (*sqldb.Conn, error), after func(notifications []store.Notification)) *Writers {
	return newWriters(n, maxBatch, func() committer { return &pipeline{dialect: d.Dialect, open: open, now: d.Now, quotas: d.quotasOf} }, after)
}

// Do runs fn in a transaction and returns once the transaction is on disk or rolled back. A context that ends before
// the transaction's turn keeps it from running; later its end has no effect.
//
// threads are those that fn will write, as far as they are known. The first one selects the writer. fn may be run again
// from its beginning when others wrote at the same time, so its effects outside the transaction must be right after any
// number of runs.
func (w *Writers) Do(ctx context.Context, fn func(*Tx) error, threads ...string) error {
	one := w.all[0]
	if len(threads) > 0 && len(w.all) > 1 {
		one = w.all[maphash.String(w.seed, threads[0])%uint64(len(w.all))]
	}
	return one.do(ctx, fn, threads)
}

// Close waits for the transactions that are under way, and closes the connections.
func (w *Writers) Close() (err error) {
	for _, one := range w.all {
		err = errors.Join(err, one.close())
	}
	return err
}

// committer writes the transactions of a batch and sets their errors. Transactions without an error are on disk when it
// returns.
type committer interface {
	commit(batch []*job)
	close() error
}

// writer commits transactions in groups, one group at a time. A caller that finds it free leads: it takes all waiting
// transactions, commits them together, and hands the lead to the first one that came meanwhile. So a lone caller pays
// for no hand-over and no timer, and many callers share one sync of the disk.
//
// mu guards queue, busy and closed. Only the leader uses committer.
type writer struct {
	batch     int       // the largest number of jobs in a batch
	committer committer // used by the leader only
	after     func(notifications []store.Notification)

	mu        sync.Mutex
	queue     []*job
	busy      bool
	closed    bool
	idle      *sync.Cond
	notifying sync.WaitGroup // ends when the notifications of all batches were passed on
}

// job is one caller's transaction.
type job struct {
	ctx           context.Context
	fn            func(*Tx) error
	threads       []string
	err           error
	notifications []store.Notification
	// unknown says that the connection broke before the answer, so the transaction may have been committed. A repeat would change nothing and
	// tell nothing, so its notifications are sent in any case.
	unknown bool
	// lead ends the wait of a job: true makes its caller the leader, false says that the job is done.
	lead chan bool
}

func newWriter(batch int, c committer, after func([]store.Notification)) *writer {
	w := &writer{batch: batch, committer: c, after: after}
	w.idle = sync.NewCond(&w.mu)
	return w
}

func (w *writer) do(ctx context.Context, fn func(*Tx) error, threads []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{ctx: ctx, fn: fn, threads: threads}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return errors.Join(store.ErrUnavailable, sqldb.ErrClosed)
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

// leadBatch commits the waiting jobs; the first one is the leader's own.
func (w *writer) leadBatch() {
	w.notifying.Add(1)
	defer w.notifying.Done()
	w.mu.Lock()
	n := min(len(w.queue), w.batch)
	batch := w.queue[:n:n]
	w.queue = w.queue[n:]
	w.mu.Unlock()

	began := time.Now()
	w.committer.commit(batch)
	metrics.Committed(len(batch), time.Since(began))

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
		if (j.err == nil || j.unknown) && len(j.notifications) > 0 {
			w.after(j.notifications)
		}
	}
}

// Close waits for the transactions that were accepted, and for their notifications.
func (w *writer) close() error {
	w.mu.Lock()
	w.closed = true
	for w.busy {
		w.idle.Wait()
	}
	w.mu.Unlock()
	w.notifying.Wait()
	return w.committer.close()
}

// failAll sets an error on the jobs that have none.
func failAll(batch []*job, err error) {
	for _, j := range batch {
		if j.err == nil {
			j.err = err
		}
	}
}
