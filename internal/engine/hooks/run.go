package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// NewRun returns what calls the hooks of a run.
func NewRun(s *Service, run Port, log *logr.Logger) Run {
	return Run{service: s, run: run, log: log}
}

// Port is what hooks need of their run.
type Port interface {
	// Agent returns the agent of the run; nil when it could not be resolved.
	Agent() *definition.Agent
	// Side returns the side that acts; nil without an agent.
	Side() *definition.Side
	Thread() *store.Thread
	RunID() string
	// HookDepth returns the hook depth of the newest message that the run took in.
	HookDepth() int
	// Life returns the context with which the code of the run ends.
	Life() context.Context
	// OpenedExecution returns the execution of the run; nil when there was no need for one yet. Execution makes it then.
	OpenedExecution() *codeexec.Execution
	Execution(ctx context.Context) (*codeexec.Execution, error)
	// BeforeCall tells the run that a hook is about to be called, and Called that it was and may have written messages.
	BeforeCall()
	AfterCall()
	// System returns the system prompt.
	System(ctx context.Context) (string, error)
}

// Run calls the hooks of a run. A run of an agent without hooks never uses it. It belongs to the
// goroutine that executes the run.
type Run struct {
	service *Service
	run     Port
	log     *logr.Logger

	// with holds operations for the next transaction of the run: hook calls about what it writes, and log entries for
	// failed hooks.
	with []store.Op
	// due are the hook calls to make, in order. A call with Seq 0 could not be put into the inbox.
	due []store.InboxItem
	// seen are the sequence numbers of all calls that were ever due. handled are those that leave the inbox with the
	// next transaction.
	seen    map[int64]bool
	handled []int64
	// announced are the sides whose after_system_message was called.
	announced map[*definition.Side]bool
	// cut is the hook call that was under way when the run was ended.
	cut *store.InboxItem
}

// hasIsolate reports whether an execution has an isolate.
func hasIsolate(x *codeexec.Execution) bool { return x != nil && x.Code.HasIsolate() }

// Record adds operations to the next transaction of the run.
func (h *Run) Record(ops ...store.Op) { h.with = append(h.with, ops...) }

// Pending returns the hook calls to make, in order.
func (h *Run) Pending() []store.InboxItem { return h.due }

// TakeAgent tells the hooks that another agent has the run, which has a system prompt of its own.
func (h *Run) TakeAgent() { h.announced = nil }

// Hook returns the hook of that name of the acting side; nil when there is none.
func (h *Run) Hook(name skeinv1.HookName) *definition.Hook {
	if side := h.run.Side(); side != nil {
		return side.Hooks[name]
	}
	return nil
}

// Causation returns the context of what the run causes itself. Its hook depth is that of the newest message that the
// run took in.
func (h *Run) Causation(ctx context.Context) context.Context {
	if h.run.HookDepth() == 0 {
		return ctx
	}
	return causation.NewContext(ctx, causation.Chain{Depth: h.run.HookDepth()})
}

// BeforeCreate passes a message that the next transaction stores to before_create_message.
func (h *Run) BeforeCreate(ctx context.Context, m *store.Message) error {
	hook := h.Hook(skeinv1.HookBeforeCreateMessage)
	if hook == nil {
		return nil
	}
	x, err := h.run.Execution(ctx)
	if err != nil {
		return err
	}
	ops, err := h.service.callerFor(x).beforeCreate(h.Causation(ctx), hook, m)
	h.with = append(h.with, ops...)
	return err
}

// BeforeResult passes a result that the next transaction stores to before_store_tool_result.
func (h *Run) BeforeResult(ctx context.Context, call store.ToolCall, m *store.Message) error {
	hook := h.Hook(skeinv1.HookBeforeStoreToolResult)
	if hook == nil {
		return nil
	}
	x, err := h.run.Execution(ctx)
	if err != nil {
		return err
	}
	about := Subject{cause: call.ID, messageID: m.ID, toolCallID: call.ID}
	ops, err := h.service.callerFor(x).change(h.Causation(ctx), hook, about, func(v any) error { return changeResult(m, v) }, callForHook(call), resultForHook(m))
	h.with = append(h.with, ops...)
	return err
}

// AfterCreate queues after_create_message for a message that the next transaction stores.
func (h *Run) AfterCreate(ctx context.Context, m *store.Message) {
	if h.Hook(skeinv1.HookAfterCreateMessage) != nil {
		h.queueCall(ctx, m.ID, store.HookCall{Hook: string(skeinv1.HookAfterCreateMessage), MessageID: m.ID})
	}
}

// AfterResult queues after_tool_call_success or after_tool_call_failure for a result that the next transaction
// stores.
func (h *Run) AfterResult(ctx context.Context, call store.ToolCall, m *store.Message) {
	name := skeinv1.HookAfterToolCallSuccess
	if m.ToolStatus == "error" {
		name = skeinv1.HookAfterToolCallFailure
	}
	if h.Hook(name) != nil {
		h.queueCall(ctx, m.ID, store.HookCall{Hook: string(name), MessageID: m.ID, Call: &call})
	}
}

func (h *Run) queueCall(ctx context.Context, key string, call store.HookCall) {
	h.with = append(h.with, h.service.Queue(h.Causation(ctx), h.run.Side(), h.run.RunID(), key, call)...)
}

// HasOps reports whether the next transaction has operations because of hooks.
func (h *Run) HasOps() bool { return len(h.with) > 0 || len(h.handled) > 0 }

// AddTo adds the operations of hooks to a transaction of the run. Call written once it is committed.
func (h *Run) AddTo(ops []store.Op) (all []store.Op, written func()) {
	if !h.HasOps() {
		return ops, func() {}
	}
	with := h.with
	all = append(append(make([]store.Op, 0, len(ops)+len(with)+1), ops...), with...)
	if len(h.handled) > 0 {
		all = append(all, &store.Dequeue{Seqs: h.handled})
	}
	return all, func() {
		h.with, h.handled = nil, nil
		for _, op := range with {
			if q, ok := op.(*store.Enqueue); ok && !q.Existed {
				h.TakeDue([]store.InboxItem{q.Item})
			}
		}
		h.service.expectDelayed(with)
	}
}

// TakeDue moves hook calls from inbox items into h.due, and returns the other items.
func (h *Run) TakeDue(items []store.InboxItem) []store.InboxItem {
	hooks, rest := Split(items)
	for _, item := range hooks {
		if item.Seq != 0 && h.seen[item.Seq] {
			continue
		}
		if h.seen == nil {
			h.seen = map[int64]bool{}
		}
		h.seen[item.Seq] = true
		h.due = append(h.due, item)
	}
	return rest
}

// CallDue calls the hooks that are due. They leave the inbox with the next transaction of the run. After a crash before
// that, they are called again under the same ids. Hooks without a sandbox are delayed in the inbox.
func (h *Run) CallDue(ctx context.Context) error {
	for h.CanCall() {
		item := h.due[0]
		if h.run.Agent().HasHooks() {
			x, err := h.run.Execution(ctx)
			if err != nil {
				return err
			}
			h.run.BeforeCall()
			cause := fmt.Sprint(item.Seq)
			if item.Seq == 0 { // it has no place in the inbox
				cause = item.Key
			}
			failed, err := h.service.callerFor(x).callQueued(ctx, cause, item.Payload)
			if notCalled := (*notCalledError)(nil); errors.As(err, &notCalled) {
				if h.run.Life().Err() != nil {
					return context.Cause(h.run.Life()) // the isolate ended with the run, which does not count as a try
				}
				var ops []store.Op
				ops, h.due = h.service.callerFor(x).delay(h.due, notCalled.text)
				h.with = append(h.with, ops...)
				continue
			}
			if err != nil {
				h.cut = &item
				return err
			}
			if failed != nil {
				h.with = append(h.with, failed)
			}
			h.run.AfterCall() // the hook may have written messages
		}
		h.due = h.due[1:]
		if item.Seq != 0 {
			h.handled = append(h.handled, item.Seq)
		}
	}
	return nil
}

// DropCut keeps a hook that was interrupted with its run from being called again: stopped work must not start anew.
func (h *Run) DropCut() {
	item := h.cut
	if item == nil {
		return
	}
	h.cut = nil
	if item.Seq != 0 {
		h.handled = append(h.handled, item.Seq)
	}
	var call store.HookCall
	if json.Unmarshal(item.Payload, &call) != nil {
		return
	}
	hook := h.run.Agent().Side(call.Side).Hooks[skeinv1.HookName(call.Hook)]
	about := Subject{messageID: call.MessageID}
	if call.Call != nil {
		about.toolCallID = call.Call.ID
	}
	if hook != nil {
		h.with = append(h.with, failureEntry(hook, h.run.RunID(), about, "it was interrupted because the run was stopped"))
	}
}

// callAfterReach calls hooks after the end of the run, once reach has opened an isolate.
func (h *Run) callAfterReach(ctx context.Context, reach func(context.Context) error) error {
	if err := reach(ctx); err != nil {
		return err
	}
	return h.CallDue(ctx)
}

// Announce calls after_system_message before the first model call that uses the system prompt. called reports whether
// it was called now.
func (h *Run) Announce(ctx context.Context) (called bool, err error) {
	hook := h.Hook(skeinv1.HookAfterSystemMessage)
	side := h.run.Side()
	if hook == nil || h.announced[side] {
		return false, nil
	}
	if h.announced == nil {
		h.announced = map[*definition.Side]bool{}
	}
	h.announced[side] = true
	about := Subject{cause: h.run.RunID()}
	if side.Name == definition.SideB {
		about.cause += ":" + definition.SideB
	}
	x, err := h.run.Execution(ctx)
	if err != nil {
		return false, err
	}
	system, err := h.run.System(ctx)
	if err != nil {
		return false, err
	}
	h.run.BeforeCall()
	_, failed, err := h.service.callerFor(x).callHook(h.Causation(ctx), hook, about, map[string]any{"role": string(store.RoleSystem), "content": system})
	if failed != nil {
		h.with = append(h.with, failed)
	}
	h.run.AfterCall()
	return true, err
}

// recordTimeout bounds the write that records which hooks were not called.
const recordTimeout = 5 * time.Second

// CallFinal calls the hooks for the final messages of a thread that ends with them. The inbox of that thread takes no
// more items, so these hooks run at most once, including those that were delayed. reach
// opens an isolate for them.
func (h *Run) CallFinal(ctx context.Context, reach func(context.Context) error) {
	why := codeexec.ErrNoSandbox.Error()
	err := h.callAfterReach(ctx, reach)
	if len(h.due) > 0 && h.run.Life().Err() != nil && ctx.Err() == nil {
		err = h.callAfterReach(ctx, reach) // the termination ended the run's own isolate, and there is time to open another
	}
	if err != nil {
		why = codeexec.Explain(err)
		h.log.Info("hooks for the final messages of a terminated thread were not called", "run", h.run.RunID(), "error", err.Error())
	}
	for _, item := range h.due {
		h.with = append(h.with, h.service.notCalledEntry(h.run.Agent(), h.run.Thread(), h.run.RunID(), item, why+"; the thread is terminated")...)
	}
	var failed []store.Op
	for _, op := range h.with {
		if e, ok := op.(*store.AppendEvent); ok {
			failed = append(failed, e)
		}
	}
	if len(failed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout) // the time may be up, or the engine may be stopping
	defer cancel()
	if err := h.service.Store.Apply(ctx, h.run.Thread().ID, nil, failed...); err != nil {
		h.log.Error(err, "cannot record how hooks failed", "run", h.run.RunID())
	}
}

// LeavesOverdue reports whether a run that ends leaves hook retries behind that are due. No worker looks for those while
// the run is under way. For hooks that are due later it sets a timer.
func (h *Run) LeavesOverdue() bool {
	due := h.due
	if len(due) == 0 || due[0].DelayedUntil == 0 {
		return false
	}
	if due[0].DelayedUntil <= h.service.Now() {
		return true
	}
	h.service.Expect(due[0].DelayedUntil)
	return false
}

// CanCall reports whether any pending hook can be called now. The run does not wait for a sandbox for hooks that were
// delayed.
func (h *Run) CanCall() bool {
	due := h.due
	return len(due) > 0 && (due[0].DelayedUntil == 0 || !h.run.Agent().HasHooks() || hasIsolate(h.run.OpenedExecution()))
}
