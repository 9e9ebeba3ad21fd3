package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// runHooks is the state of a run for its hooks. A run of an agent without hooks never uses it. It belongs to the
// goroutine that executes the run.
type runHooks struct {
	// with holds operations for the next transaction of the run: hook calls about what it writes, and log entries for
	// failed hooks.
	with []store.Op
	// due are the hook calls to make, in order. A call with Seq 0 could not be put into the inbox.
	due []store.InboxItem
	// seen are the sequence numbers of all calls that were ever due. told are those that leave the inbox with the
	// next transaction.
	seen map[int64]bool
	told []int64
	// announced are the sides whose after_system_message was called.
	announced map[*definition.Side]bool
	// cut is the hook call that was under way when the run was ended.
	cut *store.InboxItem
}

// hook returns the hook of that name of the acting side; nil when there is none.
func (r *run) hook(name skeinv1.HookName) *definition.Hook {
	if r.agent == nil {
		return nil
	}
	return r.side().Hooks[name]
}

// causation returns the context of what the run causes itself. Its hook depth is that of the newest message that the
// run took in.
func (r *run) causation(ctx context.Context) context.Context {
	if r.checkpoint.HookDepth == 0 {
		return ctx
	}
	return withCausation(ctx, causation{depth: r.checkpoint.HookDepth})
}

// beforeCreate passes a message that the next transaction stores to before_create_message.
func (r *run) beforeCreate(ctx context.Context, m *store.Message) error {
	h := r.hook(skeinv1.HookBeforeCreateMessage)
	if h == nil {
		return nil
	}
	x, err := r.execution(ctx)
	if err != nil {
		return err
	}
	ops, err := x.beforeCreate(r.causation(ctx), h, m)
	r.hooks.with = append(r.hooks.with, ops...)
	return err
}

// beforeResult passes a result that the next transaction stores to before_store_tool_result.
func (r *run) beforeResult(ctx context.Context, call store.ToolCall, m *store.Message) error {
	h := r.hook(skeinv1.HookBeforeStoreToolResult)
	if h == nil {
		return nil
	}
	x, err := r.execution(ctx)
	if err != nil {
		return err
	}
	about := hookSubject{cause: call.ID, messageID: m.ID, toolCallID: call.ID}
	ops, err := x.change(r.causation(ctx), h, about, func(v any) error { return changeResult(m, v) }, callForHook(call), resultForHook(m))
	r.hooks.with = append(r.hooks.with, ops...)
	return err
}

// afterCreate queues after_create_message for a message that the next transaction stores.
func (r *run) afterCreate(ctx context.Context, m *store.Message) {
	if r.hook(skeinv1.HookAfterCreateMessage) != nil {
		r.tellWith(ctx, m.ID, store.HookCall{Hook: string(skeinv1.HookAfterCreateMessage), MessageID: m.ID})
	}
}

// afterResult queues after_tool_call_success or after_tool_call_failure for a result that the next transaction
// stores.
func (r *run) afterResult(ctx context.Context, call store.ToolCall, m *store.Message) {
	name := skeinv1.HookAfterToolCallSuccess
	if m.ToolStatus == "error" {
		name = skeinv1.HookAfterToolCallFailure
	}
	if r.hook(name) != nil {
		r.tellWith(ctx, m.ID, store.HookCall{Hook: string(name), MessageID: m.ID, Call: &call})
	}
}

func (r *run) tellWith(ctx context.Context, key string, call store.HookCall) {
	r.hooks.with = append(r.hooks.with, r.engine.tellOps(r.causation(ctx), r.side(), r.record.ID, key, call)...)
}

// owesHooks reports whether the next transaction has operations because of hooks.
func (r *run) owesHooks() bool { return len(r.hooks.with) > 0 || len(r.hooks.told) > 0 }

// withHooks adds the operations of hooks to a transaction of the run. Call written once it is committed.
func (r *run) withHooks(ops []store.Op) (all []store.Op, written func()) {
	if !r.owesHooks() {
		return ops, func() {}
	}
	with := r.hooks.with
	all = append(append(make([]store.Op, 0, len(ops)+len(with)+1), ops...), with...)
	if len(r.hooks.told) > 0 {
		all = append(all, &store.Dequeue{Seqs: r.hooks.told})
	}
	return all, func() {
		r.hooks.with, r.hooks.told = nil, nil
		for _, op := range with {
			if q, ok := op.(*store.Enqueue); ok && !q.Existed {
				r.takeDue([]store.InboxItem{q.Item})
			}
		}
		r.engine.expectHeld(with)
	}
}

// takeDue moves hook calls from inbox items into r.hooks.due, and returns the other items.
func (r *run) takeDue(items []store.InboxItem) []store.InboxItem {
	hooks, rest := splitHooks(items)
	for _, item := range hooks {
		if item.Seq != 0 && r.hooks.seen[item.Seq] {
			continue
		}
		if r.hooks.seen == nil {
			r.hooks.seen = map[int64]bool{}
		}
		r.hooks.seen[item.Seq] = true
		r.hooks.due = append(r.hooks.due, item)
	}
	return rest
}

// tell calls the hooks that are due. They leave the inbox with the next transaction of the run. After a crash before
// that, they are called again under the same ids. Hooks without a sandbox are held in the inbox.
func (r *run) tell(ctx context.Context) error {
	for r.canTell() {
		item := r.hooks.due[0]
		if r.agent.HasHooks() {
			x, err := r.execution(ctx)
			if err != nil {
				return err
			}
			r.beginTurn()
			cause := fmt.Sprint(item.Seq)
			if item.Seq == 0 { // it has no place in the inbox
				cause = item.Key
			}
			failed, err := x.tell(ctx, cause, item.Payload)
			if untold := (*untoldError)(nil); errors.As(err, &untold) {
				if r.life.Err() != nil {
					return context.Cause(r.life) // the isolate ended with the run, which does not count as a try
				}
				var ops []store.Op
				ops, r.hooks.due = x.hold(r.hooks.due, untold.text)
				r.hooks.with = append(r.hooks.with, ops...)
				continue
			}
			if err != nil {
				r.hooks.cut = &item
				return err
			}
			if failed != nil {
				r.hooks.with = append(r.hooks.with, failed)
			}
			r.current = false // the hook may have written messages
		}
		r.hooks.due = r.hooks.due[1:]
		if item.Seq != 0 {
			r.hooks.told = append(r.hooks.told, item.Seq)
		}
	}
	return nil
}

// dropCut prevents that a hook which was interrupted with its run is called again: what was stopped must not start
// anew.
func (r *run) dropCut() {
	item := r.hooks.cut
	if item == nil {
		return
	}
	r.hooks.cut = nil
	if item.Seq != 0 {
		r.hooks.told = append(r.hooks.told, item.Seq)
	}
	var call store.HookCall
	if json.Unmarshal(item.Payload, &call) != nil {
		return
	}
	h := r.agent.Side(call.Side).Hooks[skeinv1.HookName(call.Hook)]
	about := hookSubject{messageID: call.MessageID}
	if call.Call != nil {
		about.toolCallID = call.Call.ID
	}
	if h != nil {
		r.hooks.with = append(r.hooks.with, hookFailed(h, r.record.ID, about, "it was interrupted because the run was stopped"))
	}
}

// lastWordsTime bounds how long the hooks for the final messages of a terminated thread may take.
const lastWordsTime = 2 * time.Minute

// pastTermination returns a context like ctx that survives the termination of the thread, which its final messages
// bring about. It ends with the engine, since ctx no longer shows that once the thread was terminated.
func (e *Engine) pastTermination(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWordsTime)
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), errTerminal) {
			cancel()
		}
	})
	stopEnding := context.AfterFunc(e.life, cancel)
	return out, func() {
		stop()
		stopEnding()
		cancel()
	}
}

// reachLast ensures that hooks can be called after the end of the run: in the run's isolate while it is open, else in
// one that does not end with the run. For held hooks it waits for that isolate as long as a thread at rest would.
func (r *run) reachLast(ctx context.Context) error {
	if !r.agent.HasHooks() {
		return nil // the hook calls are dropped
	}
	if r.exec == nil || r.life.Err() != nil || !r.exec.code.opened() {
		if r.life = ctx; r.exec != nil {
			r.session = r.exec.host.Session
			r.exec.close()
			r.exec = nil
		}
	}
	x, err := r.execution(ctx)
	if err != nil || r.hooks.due[0].HeldUntil == 0 || x.code.opened() {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, hookRetryWait)
	defer cancel()
	_, _, err = x.code.isolate(wait, false)
	return err
}

// tellReached calls hooks after the end of the run, once an isolate is open.
func (r *run) tellReached(ctx context.Context) error {
	if err := r.reachLast(ctx); err != nil {
		return err
	}
	return r.tell(ctx)
}

// announce calls after_system_message before the first model call that uses the system prompt. told reports whether
// it was called now.
func (r *run) announce(ctx context.Context) (told bool, err error) {
	h := r.hook(skeinv1.HookAfterSystemMessage)
	if h == nil || r.hooks.announced[r.side()] {
		return false, nil
	}
	if r.hooks.announced == nil {
		r.hooks.announced = map[*definition.Side]bool{}
	}
	r.hooks.announced[r.side()] = true
	about := hookSubject{cause: r.record.ID}
	if r.side().Name == definition.SideB {
		about.cause += ":" + definition.SideB
	}
	x, err := r.execution(ctx)
	if err != nil {
		return false, err
	}
	system, err := r.system(ctx)
	if err != nil {
		return false, err
	}
	r.beginTurn()
	_, failed, err := x.callHook(r.causation(ctx), h, about, map[string]any{"role": string(store.RoleSystem), "content": system})
	if failed != nil {
		r.hooks.with = append(r.hooks.with, failed)
	}
	r.current = false
	return true, err
}

// takeDecisions takes over what hooks have requested for the turn. It reaches the log with the row of the run, which
// is written before the run acts on it. Until then the hooks are called again after a crash.
func (r *run) takeDecisions() { _ = r.decided() }

// recordAhead puts the answer that ends a turn into the log before the end of the run, when hooks are called about
// it, since those calls belong to the run. m is nil when the answer is in the log already. The returned message is
// nil once it is.
func (r *run) recordAhead(ctx context.Context, m *store.Message) (*store.Message, error) {
	if r.hook(skeinv1.HookAfterCreateMessage) == nil {
		return m, nil
	}
	if m != nil {
		s := r.newStep("answer")
		s.clear()
		s.createMessage(ctx, m)
		s.checkpoint(r.record)
		if err := s.commit(ctx); err != nil {
			return m, err
		}
	}
	return nil, r.tell(ctx)
}

// tellLast calls the hooks for the final messages of a thread that ends with them. The inbox of that thread takes no
// more items, so these hooks run at most once, including those that were held.
func (r *run) tellLast(ctx context.Context) {
	if len(r.hooks.due) == 0 || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTerminal) {
		return
	}
	ctx, cancel := r.engine.pastTermination(ctx)
	defer cancel()
	why := errNoSandbox.Error()
	err := r.tellReached(ctx)
	if len(r.hooks.due) > 0 && r.life.Err() != nil && ctx.Err() == nil {
		err = r.tellReached(ctx) // the termination ended the run's own isolate, and there is time to open another
	}
	if err != nil {
		why = explainHook(err)
		r.log.Info("hooks for the final messages of a terminated thread were not called", "run", r.record.ID, "error", err.Error())
	}
	for _, item := range r.hooks.due {
		r.hooks.with = append(r.hooks.with, r.engine.untold(r.agent, r.thread, r.record.ID, item, why+"; the thread is terminated")...)
	}
	var failed []store.Op
	for _, op := range r.hooks.with {
		if e, ok := op.(*store.AppendEvent); ok {
			failed = append(failed, e)
		}
	}
	if len(failed) == 0 {
		return
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout) // the time may be up, or the engine may be stopping
	defer cancel()
	if err := r.engine.store.Apply(ctx, r.thread.ID, nil, failed...); err != nil {
		r.log.Error(err, "cannot record how hooks failed", "run", r.record.ID)
	}
}
