package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/activethreads"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/compaction"
	"github.com/skein-dev/skein/internal/engine/deltas"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/engine/handlers"
	"github.com/skein-dev/skein/internal/engine/hooks"
	"github.com/skein-dev/skein/internal/engine/limits"
	"github.com/skein-dev/skein/internal/engine/plan"
	"github.com/skein-dev/skein/internal/engine/request"
	"github.com/skein-dev/skein/internal/engine/role"
	"github.com/skein-dev/skein/internal/engine/runcode"
	"github.com/skein-dev/skein/internal/engine/stop"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/engine/usage"
	"github.com/skein-dev/skein/internal/store"
)

// run is one execution of a thread, from wake-up to rest, or the part of it that this replica executes. It belongs to
// the goroutine that executes the run, except where a field says otherwise.
type run struct {
	role.Role
	service *Service
	log     logr.Logger
	fence   *store.Fence
	active  *activethreads.Active // shared with the engine, which may cancel it

	record      store.Run                // the row of the run, as the next checkpoint writes it
	resumed     bool                     // the run was under way before: calls without a result may have been made
	conv        *transcript.Conversation // what models read; that of the called prompt while frame is set; nil in a run that ends without being executed
	spawned     bool                     // immediate subagents were looked for
	usage       usage.Run
	limits      limits.Run
	parentEnded bool            // the parent's run that waited for this run has ended
	unawaited   map[string]bool // with parentEnded: the parent's calls that no longer wait for a result
	childStops  []store.Op      // stop requests to awaited children, written with the end of the run

	// current reports that nothing can have been added to the conversation or the inbox since they were read.
	current bool
	// known is the sequence number up to which everything in the thread is in the conversation or was taken out of
	// the inbox. It is 0 when that must be found out by reading.
	known int64
	// withholds reports that the run leaves messages in the inbox, for later runs or until it waits no more.
	withholds bool
	// seen is the sequence number up to which the conversation shows all edits and removals.
	seen int64
	// code is the code of the run, and the tools of the acting side.
	code  *runcode.Code
	hooks hooks.Run
	// requests makes the requests to models.
	requests *request.Maker
	// streams is where answers under way are streamed to.
	streams deltas.Options
	// compactor sums up older messages.
	compactor *compaction.Compactor
	// waiting is the id of the run that waits while this one, which has no record, only writes summaries.
	waiting string
	// destroys reports that a handler asked to clear the conversation with its answer.
	destroys bool
	// handlers holds the model calls of the run's handlers.
	handlers []*handlers.ModelCalls
}

// execute executes the run until it ends or is parked, and records how it ended. An error means that the run was
// interrupted: it stays as it is in the log, and will be resumed.
func (r *run) execute(ctx context.Context, items []store.InboxItem) error {
	defer r.code.Close()
	r.code.Saved, r.record.SessionState = r.record.SessionState, nil // nil leaves the stored state as it is when the run is saved
	err := guard(r.log, r.record.ID, func() error { return r.withinTime(ctx, items) })
	if ctx.Err() != nil {
		return r.endCancelled(context.WithoutCancel(ctx), context.Cause(ctx))
	}
	var f *failure.Error
	if errors.As(err, &f) {
		return r.fail(ctx, f)
	}
	if s := cancelcause.StopOf(err); s != nil {
		return r.stop(context.WithoutCancel(ctx), s)
	}
	return err
}

// withinTime reads the limits of the run and executes its loop. It fails the run when the limit of time is reached.
func (r *run) withinTime(ctx context.Context, items []store.InboxItem) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.code.Life = ctx
	rules, err := r.service.opts.Definitions.Rules(ctx, r.Thread.Namespace, r.Thread.Name, r.Thread.Agent)
	if err != nil {
		return err
	}
	if r.limits, err = limits.Of(rules.Limits); err != nil {
		return failure.New(skeinv1.ReasonInvalidLimits, "%v", err)
	}
	defer r.limits.KeepTime(r.service.opts.Clock, r.State.Worked, cancel)()
	err = r.loop(ctx, items)
	parked := err == nil && r.record.Status == store.RunWaiting // a parked run that could not continue returns an error
	if errors.Is(context.Cause(ctx), limits.ErrOverTime) && !r.record.Status.Ended() && !parked {
		return r.limits.DurationFailure()
	}
	return err
}

// countTime adds the time that the run has worked since the last count to its state, if the time is limited. The next
// transaction writes it with the run's row, so that it survives waits and crashes.
func (r *run) countTime() {
	if r.limits.CountTime(r.service.now(), &r.State.Worked) {
		r.record.State = r.State.Encode()
	}
}

// guard calls fn and turns a panic into a failure of the run.
func guard(log logr.Logger, runID string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error(fmt.Errorf("panic: %v", p), "run failed because the engine panicked", "run", runID, "stack", string(debug.Stack()))
			err = failure.New(skeinv1.ReasonInternalError, "internal error: see the manager's log for run %s", runID)
		}
	}()
	return fn()
}

// loop is the main loop of the run (RUN-01), which ends with the session. The input is in the log before the prompt
// is built, and every step is in the log before the next one begins (RUN-02).
func (r *run) loop(ctx context.Context, items []store.InboxItem) error {
	if len(r.record.Usage) > 0 {
		_ = json.Unmarshal(r.record.Usage, &r.usage) // a figure for people: never a reason to fail
	}
	if r.resumed {
		r.hooks.TakeDue(items)
	} else { // a resumed run may have ended already, so it takes in nothing before plan says so
		now, err := r.admit(ctx, items, false)
		if err != nil {
			return err
		}
		if err := r.takeIn(ctx, now); err != nil {
			return err
		}
		r.current = true
	}
	if waits, err := r.awaitEnv(ctx, items); waits || err != nil {
		return err
	}
	r.code.UseSide()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.checkInterrupted(); err != nil {
			return err
		}
		if err := r.hooks.CallDue(ctx); err != nil {
			return err
		}
		// What hooks have requested for the turn reaches the log with the row of the run, which is written before the run acts on
		// it. Until then the hooks are called again after a crash.
		_ = r.code.TakeDecisions()
		d := plan.ApplyTurn(plan.Next(r.conv, r.record.ID, r.Side(), r.State.Turn.After, r.State.Waits, r.Parallel()), r.State.Turn)
		switch d.Action {
		case plan.EndSession:
			return r.finish(ctx, d.End, nil)
		case plan.EndTurn:
			if ended, err := r.endTurn(ctx, d.End, nil); ended || err != nil {
				return err
			}
			continue
		case plan.MakeCalls:
			if err := r.makeCalls(ctx, d.Calls); err != nil {
				return err
			}
			continue
		case plan.Ask:
			if r.IsHanded() {
				if waits, err := r.continueWithAgent(ctx); waits || err != nil {
					return err
				}
				continue
			}
			if spawned, err := r.spawnImmediate(ctx); err != nil {
				return err
			} else if spawned {
				continue
			}
			if called, err := r.hooks.Announce(ctx); err != nil {
				return err
			} else if called {
				continue // the hook may have ended the turn
			}
		}
		if news, err := r.catchUp(ctx, d.Action == plan.Wait); err != nil {
			return err
		} else if news {
			continue // it may hold the awaited result, or a tool call
		}
		if d.Action == plan.Wait {
			return r.park(ctx)
		}
		if handlers.AnswersNothing(&r.Role, r.conv, r.record.ID) {
			if ended, err := r.endTurn(ctx, &plan.Ending{}, nil); ended || err != nil {
				return err
			}
			continue
		}
		if ended, err := r.ask(ctx); ended || err != nil {
			return err
		}
	}
}

// catchUp adds to the conversation what others have written since it was read, and what waits in the inbox. With waits, which
// says that the run has to wait, messages stay there. news reports whether there was anything.
func (r *run) catchUp(ctx context.Context, waits bool) (news bool, err error) {
	edited := r.code.TakeEdited()
	if r.current && !edited {
		return false, nil
	}
	r.active.Dirty.Store(false)
	at, err := r.service.opts.Store.Position(ctx, r.Thread.ID)
	if err != nil {
		return false, err
	}
	var items []store.InboxItem
	if edited || at.LastSeq != r.known || r.withholds {
		r.known = 0
		r.conv, news, err = transcript.Reread(ctx, r.service.opts.Store, r.Thread, r.conv, &r.seen, at, edited, r.service.opts.Limits.ContextMessages)
		if err != nil {
			return news, err
		}
		if items, err = r.service.opts.Store.Inbox(ctx, r.Thread.ID); err != nil {
			return news, err
		}
		r.known = at.LastSeq
	}
	r.Next = at.Agent
	news = news || r.IsHanded() && !waits // a run that waits is handed over when it goes on
	if items != nil {
		items = r.compactor.Take(items)
	}
	stops, unawaited, items := stop.Split(items)
	if r.State.RepliesToAny(unawaited) {
		return false, stop.AwaitedStop(r.record.ID)
	}
	if r.current = len(stops) == 0; !r.current {
		r.known = 0 // the stop requests may be about what is taken in now, so read them again
	}
	if items, err = r.admit(ctx, r.hooks.TakeDue(items), waits); err != nil {
		return news, err
	}
	if waits && r.withholds {
		r.current = false // the messages are read again once the run waits no more
	}
	if len(items) == 0 && !r.State.IsDue(r.service.now()) {
		return news || r.hooks.CanCall(), nil
	}
	return true, r.takeIn(ctx, items)
}

// park puts the run to rest until what it waits for is in the inbox, or a time has come. A parked run holds neither
// lease nor goroutine.
func (r *run) park(ctx context.Context) error {
	changed := r.code.SnapshotContext(ctx) || !bytes.Equal(r.record.State, r.State.Encode()) // a call that was queued may wait too
	if r.record.Status == store.RunWaiting && !changed && !r.hooks.HasOps() && !r.code.OwesState() {
		r.service.opts.Expect(r.record.WakeAt)
		return nil // takeIn has written it
	}
	r.record.Status = store.RunWaiting
	r.record.Reason, r.record.Message = r.State.WaitsFor(r.Thread.Name)
	r.record.WakeAt = r.State.WakeAt()
	r.countTime()
	r.record.State = r.State.Encode()
	if err := r.newTransaction("park").save(ctx); err != nil {
		return err
	}
	r.service.opts.Expect(r.record.WakeAt)
	return nil
}
