// Package postrun does the tasks that follow a run, such as writing a title, after the thread's lease is free again. The end of the run
// records that they are due, so another replica does them if this one is lost.
package postrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/fairpool"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/telemetry"
)

// A Task is work that follows a run (THR-13).
type Task struct {
	// Name of the task in the log.
	Name string
	// Do is called once the run's end is recorded and the run has released the thread's lease. It delays no other run of the
	// thread, holds no lease, and must return when ctx ends, as it does when the Thread object is deleted. An error or a panic is logged, and Do is not called again for
	// it. Do is called again if the manager ended before the run's tasks were done, so it must be safe to repeat.
	Do func(ctx context.Context, run Run) error
	// Due reports whether there may be anything to do. It gets the thread as it was when its run began, and the agent. A task
	// that is not due costs nothing. It counts as due if Due is nil, or if the agent is not known.
	Due func(t *store.Thread, a *definition.Agent) bool
}

// Run is the run that a task follows.
type Run struct {
	Thread *store.Thread
	Run    store.Run
}

// Options of a Worker.
type Options struct {
	Store store.Store
	Clock clock.WithTicker
	Log   logr.Logger
	// Tasks follow each run, at once.
	Tasks []Task
	// Workers is how many runs are followed at once.
	Workers int
	// Timeout bounds the tasks of a run.
	Timeout time.Duration
	// SweepInterval is the time between two sweeps for runs whose tasks a lost replica has left undone. A run counts as left when
	// its end is older than Timeout and LeaseTTL together.
	SweepInterval, LeaseTTL time.Duration
	// Attach returns a context that ends with cancelcause.ErrAborted when the object of a thread is deleted. leave is called when
	// the work for the thread is done.
	Attach func(ctx context.Context, threadID string) (attached context.Context, leave func())
	// Redact removes the secrets of a namespace from a text.
	Redact func(namespace, text string) string
	// Fault is called around durable writes.
	Fault func(point string)
}

// Worker does the tasks that follow runs. The end of a run records that they are to be done. It is safe for concurrent use.
type Worker struct {
	opts  Options
	store store.Store
	log   logr.Logger
	queue workqueue.TypedInterface[store.RunRef]
	pool  *fairpool.Pool // namespaces take turns, so that the slow model of one does not hold up the others
	look  chan struct{}  // runs may have been handed over
	// swept are the queued runs that Sweep has taken.
	mu    sync.Mutex
	swept map[store.RunRef]struct{}
	// waiting are the runs that wait for their turn in pool.
	waiting map[store.RunRef]struct{}
	// draining ends when Drain is called.
	draining context.Context
	drain    context.CancelFunc
}

// NewWorker returns a worker that has nothing to do yet.
func NewWorker(o Options) *Worker {
	w := &Worker{
		opts: o, store: o.Store, log: o.Log, queue: workqueue.NewTyped[store.RunRef](), pool: fairpool.New(o.Workers, 0),
		look: make(chan struct{}, 1), swept: map[store.RunRef]struct{}{}, waiting: map[store.RunRef]struct{}{},
	}
	w.draining, w.drain = context.WithCancel(context.Background())
	return w
}

// EndState returns the Run.State with which a run ends: store.RunPostRunPending if tasks are due after it, else nil. The agent may be nil.
func (w *Worker) EndState(t *store.Thread, a *definition.Agent) json.RawMessage {
	for _, task := range w.opts.Tasks {
		if task.Due == nil || a == nil || task.Due(t, a) {
			return store.RunPostRunPending
		}
	}
	return nil
}

// HasTasksDue reports whether tasks are due after a run.
func HasTasksDue(r *store.Run) bool { return bytes.Equal(r.State, store.RunPostRunPending) }

// Add queues runs whose end is recorded. After Drain it hands them over.
func (w *Worker) Add(runs ...store.RunRef) {
	if w.draining.Err() != nil {
		w.handOver(runs...)
		return
	}
	for _, r := range runs {
		w.queue.Add(r)
	}
}

// Look makes Sweep look for runs at once, because some were handed over.
func (w *Worker) Look() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// Drain makes the worker follow no more runs.
func (w *Worker) Drain() {
	w.drain()
	w.queue.ShutDown()
}

// handOverTimeout bounds the write that hands runs over.
const handOverTimeout = 5 * time.Second

// handOver lets other replicas do the tasks of runs at once. Otherwise they do them later.
func (w *Worker) handOver(runs ...store.RunRef) {
	if len(runs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	if err := w.store.HandOver(ctx, runs); err != nil {
		w.log.Info("tasks after runs were not handed over, so they are done later", "runs", len(runs), "error", err.Error())
	}
}

// Run hands runs to goroutines, as many at once as there are workers. It returns when ctx has ended, or Drain was called, and they are
// done. The runs that wait then are handed over, as are those whose tasks were cut off.
func (w *Worker) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, w.queue.ShutDown)()
	taking, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.draining, stop)()
	defer w.pool.Wait()
	for {
		run, shutdown := w.queue.Get()
		if shutdown {
			w.handOver(w.leave()...)
			return
		}
		w.mu.Lock()
		w.waiting[run] = struct{}{}
		w.mu.Unlock()
		w.pool.Go(w.namespace(taking, run), func() {
			defer w.queue.Done(run)
			if taking.Err() != nil || !w.take(run) {
				return // it is handed over
			}
			of, err := w.perform(ctx, run)
			if ctx.Err() != nil {
				w.handOver(run)
			} else if err != nil {
				w.log.Error(err, "cannot do the tasks after a run; they will be retried", of...)
			}
		})
	}
}

// namespace returns whose turn a run waits for. A run whose thread is gone, or cannot be read now, belongs to none.
func (w *Worker) namespace(ctx context.Context, run store.RunRef) string {
	t, err := w.store.Thread(ctx, run.ThreadID)
	if err != nil {
		return ""
	}
	return t.Namespace
}

// take begins a run that waits for its turn. It reports false if the run was handed over.
func (w *Worker) take(run store.RunRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waits := w.waiting[run]
	delete(w.waiting, run)
	return waits
}

// leave returns the runs that wait for their turn. They do not begin here any more.
func (w *Worker) leave() []store.RunRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := slices.Collect(maps.Keys(w.waiting))
	clear(w.waiting)
	return runs
}

// Sweep takes runs whose tasks a lost replica has left undone, or another one has handed over, until ctx ends. The former ended so long
// ago that no replica can still be doing the tasks.
func (w *Worker) Sweep(ctx context.Context) {
	if len(w.opts.Tasks) == 0 {
		return
	}
	ticker := w.opts.Clock.NewTicker(w.opts.SweepInterval)
	defer ticker.Stop()
	for {
		w.takeLeft(ctx)
		select {
		case <-ctx.Done():
			return
		case <-w.draining.Done():
			return
		case <-w.look:
		case <-ticker.C():
		}
	}
}

// takeLeft takes runs whose tasks another replica has left undone or handed over: as many as this replica can soon follow. The namespaces
// share twice as many places as there are workers, also with the runs that are here already. takeLeft leaves the others to replicas that
// have time.
func (w *Worker) takeLeft(ctx context.Context) {
	places := 2*w.opts.Workers - w.queue.Len()
	if places <= 0 {
		return
	}
	ttl := w.opts.Timeout + w.opts.LeaseTTL
	left, err := w.store.LeftPostRun(ctx, ttl, places)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Error(err, "cannot look for runs whose tasks are not done")
		}
		return
	}
	for _, run := range share(places, w.pool.Loads(), left) {
		taken, err := w.store.TakeTasks(ctx, run, ttl)
		switch {
		case err != nil && ctx.Err() == nil:
			w.log.Error(err, "cannot take a run whose tasks are not done", logValues(nil, run)...)
		case err == nil && taken:
			w.mu.Lock()
			w.swept[run] = struct{}{}
			w.mu.Unlock()
			w.Add(run)
		case err == nil:
			w.Look() // another replica took it, and has left others
		}
	}
}

// share returns the runs of which each namespace has its share of the places. here is how many runs of each namespace have a place already.
func share(places int, here map[string]int, left []store.LeftRun) (mine []store.RunRef) {
	counts := map[string]int{}
	var order []string
	for _, l := range left {
		if counts[l.Namespace]++; counts[l.Namespace] == 1 {
			order = append(order, l.Namespace)
		}
	}
	for namespace := range here {
		if counts[namespace] == 0 {
			order = append(order, namespace)
		}
	}
	waiting := make([]fairpool.Waiting, len(order))
	for i, namespace := range order {
		waiting[i] = fairpool.Waiting{Group: namespace, Count: counts[namespace] + here[namespace]}
	}
	shares := fairpool.Share(places, nil, waiting)
	for _, l := range left {
		if shares[l.Namespace] > here[l.Namespace] {
			shares[l.Namespace]--
			mine = append(mine, l.RunRef)
		}
	}
	return mine
}

// takeTasks reports whether this replica is to do the tasks after a run. A run that has waited for long may be taken by others,
// so it is taken first. No other replica takes one that has just ended.
func (w *Worker) takeTasks(ctx context.Context, ref store.RunRef, run *store.Run) (bool, error) {
	w.mu.Lock()
	_, swept := w.swept[ref]
	delete(w.swept, ref)
	w.mu.Unlock()
	if swept || w.opts.Clock.Now().UnixMicro()-run.EndedAt < w.opts.LeaseTTL.Microseconds()/2 {
		return true, nil
	}
	return w.store.TakeTasks(ctx, ref, w.opts.Timeout+w.opts.LeaseTTL)
}

// logValues returns the keys and values of log lines about a run. Its thread is nil while it is not known.
func logValues(t *store.Thread, run store.RunRef) []any {
	if t == nil {
		t = &store.Thread{ID: run.ThreadID}
	}
	return append(telemetry.OfThread(t.Namespace, t.Name, t.ID), "run", run.RunID)
}

// perform does the tasks of one run at once, and records that they are done. of has the keys and values of log lines about it.
func (w *Worker) perform(ctx context.Context, ref store.RunRef) (of []any, err error) {
	of = logValues(nil, ref)
	run, err := w.store.Run(ctx, ref.ThreadID, ref.RunID)
	if err != nil || !HasTasksDue(run) {
		return of, store.IgnoreGone(err) // the thread is gone, or another replica has done the tasks
	}
	if mine, err := w.takeTasks(ctx, ref, run); err != nil || !mine {
		return of, store.IgnoreGone(err)
	}
	ctx, leave := w.opts.Attach(ctx, ref.ThreadID) // before the thread is read, so that no deletion is missed
	defer leave()
	t, err := w.store.Thread(ctx, ref.ThreadID)
	if err != nil || t.Deleting || t.RetainedAt != 0 {
		return of, store.IgnoreGone(err) // a retained thread takes no outcome of a task: they are done once an object has adopted it
	}
	of = logValues(t, ref)
	limited, cancel := context.WithTimeoutCause(ctx, w.opts.Timeout, errSlowTask)
	defer cancel()
	var tasks sync.WaitGroup
	for _, task := range w.opts.Tasks {
		tasks.Go(func() {
			thread := *t // a copy for each task, since a task may change what it gets
			if err := doTask(limited, task, Run{Thread: &thread, Run: *run}); err != nil && ctx.Err() == nil {
				w.reportFailure(ctx, t, run, task.Name, err)
			}
		})
	}
	tasks.Wait()
	if errors.Is(context.Cause(ctx), cancelcause.ErrAborted) {
		return of, nil // they are done again if the thread is retained, and an object adopts it
	}
	if ctx.Err() != nil {
		return of, context.Cause(ctx) // the tasks may have been cut off: the next manager repeats them
	}
	w.fault("tasks.before")
	return of, w.store.FinishPostRun(ctx, ref)
}

// reportFailure reports a failed task once, in the log of the manager and in that of the thread.
func (w *Worker) reportFailure(ctx context.Context, t *store.Thread, run *store.Run, task string, failure error) {
	log := w.log.WithValues(logValues(t, store.RunRef{ThreadID: t.ID, RunID: run.ID})...).WithValues("task", task)
	log.Error(failure, "a task after a run failed")
	text, _, _ := strings.Cut(failure.Error(), "\n") // what follows is the stack of a panic
	data, err := json.Marshal(store.TaskFailure{Task: task, Error: clip.Text(w.opts.Redact(t.Namespace, text), maxFailure)})
	if err == nil {
		err = w.store.Apply(ctx, t.ID, nil, &store.Once{Key: "task/" + run.ID + "/" + task},
			&store.AppendEvent{Event: store.Event{Type: store.EventTaskFailed, RunID: run.ID, Data: data}})
	}
	if err = store.IgnoreGone(err); err != nil && ctx.Err() == nil {
		log.Error(err, "cannot record in the thread's log that a task failed")
	}
}

// fault marks a point around a durable write or an outside call, for crash tests.
func (w *Worker) fault(point string) { w.opts.Fault(point) }

// maxFailure bounds what the log of a thread says of a failed task, in bytes.
const maxFailure = 1000

var errSlowTask = errors.New("the tasks after the run took too long")

// doTask does a task. It returns a panic as an error.
func doTask(ctx context.Context, task Task, run Run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return task.Do(ctx, run)
}
