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

// runHooks is what a run has to do with hooks. A run of an agent without hooks never touches it.
type runHooks struct {
	// with belongs into the next transaction of the run: what hooks are to be told of what it writes, and how those
	// failed that were asked about it.
	with []store.Op
	// due are to be told, in order; those without a place in the inbox could not be put there.
	due []store.InboxItem
	// seen are those that were ever due, told those that leave the inbox with the next transaction.
	seen map[int64]bool
	told []int64
	// announced are the sides whose after_system_message has been told.
	announced map[*definition.Side]bool
	// cut is the one that was being told when the run was ended.
	cut *store.InboxItem
}

// hook of the run's agent; nil when it has none of that name.
func (r *run) hook(name skeinv1.HookName) *definition.Hook {
	if r.agent == nil {
		return nil
	}
	return r.side().Hooks[name]
}

// trail is the context of what the run causes itself: as deep as the newest message that it took in.
func (r *run) causation(ctx context.Context) context.Context {
	if r.checkpoint.HookDepth == 0 {
		return ctx
	}
	return withCausation(ctx, causation{depth: r.checkpoint.HookDepth})
}

// beforeCreate shows before_create_message a message that the next transaction stores.
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

// beforeResult shows before_store_tool_result a result that the next transaction stores.
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

// afterCreate has after_create_message told of a message that the next transaction stores.
func (r *run) afterCreate(ctx context.Context, m *store.Message) {
	if r.hook(skeinv1.HookAfterCreateMessage) != nil {
		r.tellWith(ctx, m.ID, store.HookCall{Hook: string(skeinv1.HookAfterCreateMessage), MessageID: m.ID})
	}
}

// afterResult has the hook told that is for results like the one that the next transaction stores.
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

// owesHooks tells whether the next transaction has to do with hooks.
func (r *run) owesHooks() bool { return len(r.hooks.with) > 0 || len(r.hooks.told) > 0 }

// withHooks adds to a transaction of the run what hooks have to do with it. Call written once it is committed.
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

// takeDue takes the hooks that are to be told out of what waits in the inbox, and gives the rest.
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

// tell tells the hooks that are due. They leave the inbox with the next transaction of the run: after a crash before
// that they are told again, under the same ids. Those for which there is no sandbox are held there.
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
					return context.Cause(r.life) // its isolate ended with the run: no try was made
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
			r.current = false // it may have written messages
		}
		r.hooks.due = r.hooks.due[1:]
		if item.Seq != 0 {
			r.hooks.told = append(r.hooks.told, item.Seq)
		}
	}
	return nil
}

// dropCut has a hook that was cut off with its run not be told again: what is stopped does not begin anew.
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
		r.hooks.with = append(r.hooks.with, hookFailed(h, r.record.ID, about, "it was cut off: the run was stopped"))
	}
}

// lastWordsTime bounds for how long hooks are told of the last words of a thread.
const lastWordsTime = 2 * time.Minute

// pastTermination is ctx, but that it does not end because the thread is terminated, which it is by its last words. It
// ends with the engine, of which ctx says nothing any more once the thread was terminated.
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

// reachLast sees to it that hooks can be told after the end of the run: in its isolate while there is one, else in one
// that does not end with it, which is waited for as a thread at rest would where they were held.
func (r *run) reachLast(ctx context.Context) error {
	if !r.agent.HasHooks() {
		return nil // they are dropped
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

// tellReached tells hooks after the end of the run, once they can be.
func (r *run) tellReached(ctx context.Context) error {
	if err := r.reachLast(ctx); err != nil {
		return err
	}
	return r.tell(ctx)
}

// announce tells after_system_message of the system prompt, before the first model call that it is for.
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

// takeDecisions takes over what hooks have asked of the turn. It comes into the log with the run's row, which is written before
// what it leads to is done; until then the hooks are called again after a crash.
func (r *run) takeDecisions() { _ = r.decided() }

// recordAhead puts the answer that ends a turn into the log before the run's end, where hooks are to be told of it:
// they belong to the run. m is nil when it is there already, and nil comes back once it is.
func (r *run) recordAhead(ctx context.Context, m *store.Message) (*store.Message, error) {
	if r.hook(skeinv1.HookAfterCreateMessage) == nil {
		return m, nil
	}
	if m != nil {
		s := r.newStep("answer")
		s.createMessage(ctx, m)
		s.checkpoint(r.record)
		if err := s.commit(ctx); err != nil {
			return m, err
		}
	}
	return nil, r.tell(ctx)
}

// tellLast tells the hooks of the last words of a thread that is over with them: its inbox takes nothing any more, so
// that they are told at most once, those too that were held.
func (r *run) tellLast(ctx context.Context) {
	if len(r.hooks.due) == 0 || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTerminal) {
		return
	}
	ctx, cancel := r.engine.pastTermination(ctx)
	defer cancel()
	why := errNoSandbox.Error()
	err := r.tellReached(ctx)
	if len(r.hooks.due) > 0 && r.life.Err() != nil && ctx.Err() == nil {
		err = r.tellReached(ctx) // the run's own isolate ended, as the thread was terminated: there is time for another
	}
	if err != nil {
		why = explainHook(err)
		r.log.Info("hooks were not told of the last words of a thread that is over", "run", r.record.ID, "error", err.Error())
	}
	for _, item := range r.hooks.due {
		r.hooks.with = append(r.hooks.with, r.engine.untold(r.agent, r.thread, r.record.ID, item, why+"; and the thread is over")...)
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
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout) // the time may be up, or the engine's over
	defer cancel()
	if err := r.engine.store.Apply(ctx, r.thread.ID, nil, failed...); err != nil {
		r.log.Error(err, "cannot record how hooks failed", "run", r.record.ID)
	}
}
