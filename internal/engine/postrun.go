package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/util/workqueue"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// PostRunTask is work that follows a run (SPEC THR-13).
type PostRunTask struct {
	// Name in the log.
	Name string
	// Do is called once the run's end is recorded and the thread's lease is no longer that run's. It keeps no other
	// run of the thread waiting, holds no lease, and must return when ctx ends. What it returns as an error, or
	// panics with, goes to the log: it is not called again for that. It is called again when the manager ended
	// before the run's tasks were done, so it must be able to bear a repeat.
	Do func(ctx context.Context, run PostRun) error
	// Due tells from the thread as it was when its run began, and from the agent, whether there may be anything to
	// do: what is not due costs nothing. Always, when it is nil or the agent is not known.
	Due func(t *store.Thread, a *definition.Agent) bool
}

// PostRun is what a task is told of the run that it follows.
type PostRun struct {
	Thread *store.Thread
	Run    store.Run
}

// postRunWorker does the tasks that follow runs. That they are to be done is recorded with the run's end.
type postRunWorker struct {
	engine *Engine
	log    logr.Logger
	queue  workqueue.TypedInterface[store.RunRef]
	slots  *semaphore.Weighted
}

func newPostRunWorker(e *Engine) *postRunWorker {
	return &postRunWorker{
		engine: e, log: e.log.WithName("post-run"), queue: workqueue.NewTyped[store.RunRef](),
		slots: semaphore.NewWeighted(int64(e.opts.PostRunWorkers)),
	}
}

// mark is the state of a run that ends: that tasks are to follow it, if any are. The agent may be nil.
func (w *postRunWorker) mark(t *store.Thread, a *definition.Agent) json.RawMessage {
	for _, task := range w.engine.opts.PostRun {
		if task.Due == nil || a == nil || task.Due(t, a) {
			return store.RunUnsettled
		}
	}
	return nil
}

// marked tells whether tasks are to follow a run.
func marked(r *store.Run) bool { return bytes.Equal(r.State, store.RunUnsettled) }

// add queues runs whose end is recorded.
func (w *postRunWorker) add(runs ...store.RunRef) {
	for _, r := range runs {
		w.queue.Add(r)
	}
}

// flush queues the runs of a thread that have ended since it was last called.
func (w *postRunWorker) flush(a *activeThread) {
	w.add(a.ended...)
	a.ended = nil
}

// loop hands runs to goroutines, as many at once as there are workers, and returns when they are done.
func (w *postRunWorker) loop(ctx context.Context) {
	defer context.AfterFunc(ctx, w.queue.ShutDown)()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		if w.slots.Acquire(ctx, 1) != nil {
			return
		}
		run, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		group.Go(func() {
			defer w.slots.Release(1)
			defer w.queue.Done(run)
			if err := w.follow(ctx, run); err != nil && ctx.Err() == nil {
				w.log.Error(err, "cannot do the tasks after a run: they will be tried again", "thread", run.ThreadID, "run", run.RunID)
			}
		})
	}
}

// sweepLoop looks for runs whose tasks a lost replica has left: those that ended so long ago that nobody can
// still be at them.
func (w *postRunWorker) sweepLoop(ctx context.Context) {
	if len(w.engine.opts.PostRun) == 0 {
		return
	}
	opts := &w.engine.opts
	ticker := opts.Clock.NewTicker(opts.SweepInterval)
	defer ticker.Stop()
	for {
		left := w.engine.now() - (opts.PostRunTimeout + opts.LeaseTTL).Microseconds()
		runs, err := w.engine.store.Unsettled(ctx, left, sweepBatch)
		if err != nil && ctx.Err() == nil {
			w.log.Error(err, "cannot look for runs whose tasks are not done")
		}
		w.add(runs...)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// follow does the tasks of one run, side by side, and records that they are done.
func (w *postRunWorker) follow(ctx context.Context, ref store.RunRef) error {
	run, err := w.engine.store.Run(ctx, ref.ThreadID, ref.RunID)
	if err != nil || !marked(run) {
		return ignoreNotFound(err) // it is gone, or another replica was faster
	}
	t, err := w.engine.store.Thread(ctx, ref.ThreadID)
	if err != nil {
		return ignoreNotFound(err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, w.engine.opts.PostRunTimeout, errSlowTask)
	defer cancel()
	var tasks sync.WaitGroup
	for _, task := range w.engine.opts.PostRun {
		tasks.Go(func() {
			thread := *t // of its own: a task may change what it is given
			if err := doTask(limited, task, PostRun{Thread: &thread, Run: *run}); err != nil && ctx.Err() == nil {
				w.failed(ctx, t, run, task.Name, err)
			}
		})
	}
	tasks.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx) // they may have been cut off: the next manager does them again
	}
	w.engine.fault("settle.before")
	return w.engine.store.Settle(ctx, ref)
}

// failed reports a task that failed, once, in the manager's log and in that of the thread.
func (w *postRunWorker) failed(ctx context.Context, t *store.Thread, run *store.Run, task string, failure error) {
	w.log.Error(failure, "a task after a run failed", "task", task, "namespace", t.Namespace, "name", t.Name, "run", run.ID)
	text, _, _ := strings.Cut(failure.Error(), "\n") // what follows is the stack of a panic
	data, err := json.Marshal(store.TaskFailure{Task: task, Error: clipText(w.engine.opts.Redact(t.Namespace, text), maxRunMessage)})
	if err == nil {
		err = w.engine.store.Apply(ctx, t.ID, nil, &store.Once{Key: "task/" + run.ID + "/" + task},
			&store.AppendEvent{Event: store.Event{Type: store.EventTaskFailed, RunID: run.ID, Data: data}})
	}
	if err = ignoreGone(err); err != nil && ctx.Err() == nil {
		w.log.Error(err, "cannot say in the thread's log that a task failed", "task", task, "thread", t.ID, "run", run.ID)
	}
}

// ignoreGone drops the error of a write to a thread that was deleted meanwhile, or has lost its object.
func ignoreGone(err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrRetained) {
		return nil
	}
	return err
}

var errSlowTask = errors.New("the tasks after the run took too long")

// doTask gives a panic as an error.
func doTask(ctx context.Context, task PostRunTask, run PostRun) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return task.Do(ctx, run)
}
