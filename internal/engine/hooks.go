package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/code"
)

// defaultHookTimeout is the time limit of one call of a hook that sets no timeout.
const defaultHookTimeout = 10 * time.Second

// hookCaller is the module that spreads the list of a hook's arguments. The default export is what defineHook
// returned, or a function. The name in defineHook must be that of the hook, so that no code runs for the wrong hook.
const hookCaller = `import definition from './%[1]s.source';
const hook = typeof definition === 'function' ? { execute: definition } : definition;
if (typeof hook?.execute !== 'function') {
  throw new TypeError("the module has no default export that is a hook: export default defineHook('%[1]s', async (state) => …)");
}
if (hook.hook !== undefined && hook.hook !== '%[1]s') {
  throw new TypeError("the code defines the hook " + hook.hook + " but the object uses it for %[1]s: correct one of them");
}
export default { execute: (state, args) => hook.execute(state, ...args) };
`

// addHook adds the modules of a hook. Hooks of side b that are not shared with side a have a folder of their own.
func (c *codeHost) addHook(s *definition.Side, h *definition.Hook) {
	key := hookKey{h.Owner, h.Name}
	if c.hooks[key] != "" {
		return
	}
	folder := hookFolder
	if s.Name == definition.SideB {
		folder += definition.SideB + "/"
	}
	module := folder + string(h.Name)
	c.hooks[key] = module
	c.add(module, sandbox.Module{Code: fmt.Sprintf(hookCaller, h.Name), Filename: string(h.Name) + ".js"}, timeoutOfHook(h))
	c.add(module+".source", h.Module, timeoutOfHook(h))
}

// hookKey identifies a hook of a thread. Hooks of the same name may belong to the agent or to the prompts of its
// sides.
type hookKey struct {
	owner string
	name  skeinv1.HookName
}

// hookFolder holds the modules of hooks in the isolate: for each hook the module that calls it, and the hook's own
// module with the suffix .source.
const hookFolder = "hooks/"

func timeoutOfHook(h *definition.Hook) time.Duration {
	if h.Timeout <= 0 {
		return defaultHookTimeout
	}
	return h.Timeout
}

// hookSubject says what a call of a hook is about.
type hookSubject struct {
	// cause and the hook's name form the id of the call. A repeat after a crash has the same id, so that what the
	// hook does through state happens once.
	cause      string
	messageID  string
	toolCallID string
}

// callHook calls a hook. When the call fails, failed is the entry for the thread's log. err is not nil only when ctx
// ended.
func (x *execution) callHook(ctx context.Context, h *definition.Hook, about hookSubject, args ...any) (v any, failed store.Op, err error) {
	v, err = x.invokeHook(ctx, h, about, args...)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	default:
		return nil, x.failedHook(h, about, explainHook(err)), nil
	}
	return v, nil, nil
}

func (x *execution) invokeHook(ctx context.Context, h *definition.Hook, about hookSubject, args ...any) (any, error) {
	x.engine.fault("hook.before")
	v, err := x.host.Code.Invoke(deeper(ctx), "hook:"+string(h.Name)+":"+about.cause, x.code.hooks[hookKey{h.Owner, h.Name}], args, timeoutOfHook(h))
	x.engine.fault("hook.after")
	if err != nil {
		return nil, err
	}
	if (v == value.Undefined{}) {
		v = nil
	}
	return v, nil
}

func explainHook(err error) string {
	if errors.Is(err, errCodeTimeout) {
		return err.Error()
	}
	return code.Explain(err)
}

// maxHookError bounds the error text of a hook in the log, in bytes.
const maxHookError = 4096

// failedHook is hookFailed for text from code. It removes secrets before the text is cut.
func (x *execution) failedHook(h *definition.Hook, about hookSubject, text string) store.Op {
	return x.engine.failedHook(x.host.Thread, x.host.RunID, h, about, text)
}

func (e *Engine) failedHook(t *store.Thread, runID string, h *definition.Hook, about hookSubject, text string) store.Op {
	return hookFailed(h, runID, about, e.opts.Redact(t.Namespace, text))
}

// hookFailed returns the log entry which says that a hook failed.
func hookFailed(h *definition.Hook, runID string, about hookSubject, text string) store.Op {
	return eventOp(runID, store.EventHookFailed, about.messageID, store.HookFailure{
		Hook: string(h.Name), Owner: h.Owner, Error: clip.Text(text, maxHookError), MessageID: about.messageID, ToolCallID: about.toolCallID,
	})
}

// ---- causation: how many hooks led to a call ------------------------------------------------------------

// causation describes what led to a call of code.
type causation struct {
	// depth is the number of hooks, each caused by the one before, that led to the call, including those of earlier
	// runs.
	depth int
	// nested is the number of these hooks that are being called right now, one within the other.
	nested int
}

type causationKey struct{}

func causationOf(ctx context.Context) causation {
	t, _ := ctx.Value(causationKey{}).(causation)
	return t
}

func withCausation(ctx context.Context, t causation) context.Context {
	return context.WithValue(ctx, causationKey{}, t)
}

// deeper returns the context of a hook that is called in ctx.
func deeper(ctx context.Context) context.Context {
	t := causationOf(ctx)
	return withCausation(ctx, causation{depth: t.depth + 1, nested: t.nested + 1})
}

// tooDeep returns the text for a hook that is not called because too many hooks led to it.
func tooDeep(limit int) string {
	return fmt.Sprintf("not called: %d hooks, one caused by the other, have led here: a hook must not keep causing what it is called for", limit)
}

// anewAfter is the shortest delay after which an effect starts a new chain of causation. Hooks that cause each other
// once a minute do not exhaust anything, and may be intended.
const anewAfter = time.Minute

// depthOfEffect returns the hook depth of an effect that is scheduled with a delay by code with causation t.
func depthOfEffect(t causation, delay time.Duration) int {
	if delay >= anewAfter {
		return 0
	}
	return t.depth
}

// effectTooDeep returns the text for an effect that is not scheduled because too many hooks led to it.
func effectTooDeep(limit int) string {
	return fmt.Sprintf("not scheduled: %d hooks, one caused by the other, have led here: a hook must not keep causing what it is called for; what is to be done again and again takes a delay of %s or more", limit, anewAfter)
}

// ---- queued hooks ---------------------------------------------------------------------------------------

// tellOps returns the operation that queues a call of an after hook, for the transaction that writes what the hook is
// about. The call waits in the inbox until that transaction is committed. key makes a repeat happen once; "" for
// none. It returns nil when there is no such hook.
func (e *Engine) tellOps(ctx context.Context, s *definition.Side, runID, key string, call store.HookCall) []store.Op {
	h := s.Hooks[skeinv1.HookName(call.Hook)]
	if h == nil {
		return nil
	}
	call.Side, call.Outside = definition.ShortName(s), runID == ""
	call.Depth = causationOf(ctx).depth
	if limit := e.opts.Limits.HookDepth; call.Depth >= limit {
		about := hookSubject{messageID: call.MessageID}
		if call.Call != nil {
			about.toolCallID = call.Call.ID
		}
		return []store.Op{hookFailed(h, runID, about, tooDeep(limit))}
	}
	item := hookItem(key, call)
	return []store.Op{&store.Enqueue{Item: item, IgnoreTerminated: true}}
}

func hookItem(key string, call store.HookCall) store.InboxItem {
	payload, _ := json.Marshal(call) // texts and numbers: cannot fail
	if key != "" {
		key = "hook:" + call.Hook + ":" + key
	}
	return store.InboxItem{Key: key, Kind: store.InboxHook, Payload: payload}
}

// tell calls the hook that an inbox item names, of the agent as it is now. It does nothing when the agent no longer
// has that hook, or when the message is gone. failed is an entry for the log. err is an *untoldError, or says that
// ctx ended or the store failed.
func (x *execution) tell(ctx context.Context, cause string, payload json.RawMessage) (failed store.Op, err error) {
	var call store.HookCall
	if err := json.Unmarshal(payload, &call); err != nil {
		x.engine.log.Error(err, "dropped an inbox item that is not a hook call", "thread", x.host.Thread.ID)
		return nil, nil
	}
	h := x.agent.HookOf(&call)
	if h == nil {
		return nil, nil
	}
	about := hookSubject{cause: cause, messageID: call.MessageID}
	var args []any
	switch h.Name {
	case skeinv1.HookAfterThreadCreated:
	case skeinv1.HookAfterSubagentCreated:
		args = append(args, call.Subagent)
	default:
		m, err := x.engine.store.Message(ctx, x.host.Thread.ID, call.MessageID)
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if call.Call == nil {
			args = append(args, m)
			break
		}
		about.toolCallID = call.Call.ID
		args = append(args, callForHook(*call.Call), resultForHook(m))
	}
	_, err = x.invokeHook(withCausation(ctx, causation{depth: call.Depth}), h, about, args...)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case nothingRan(err):
		return nil, &untoldError{explainHook(err)}
	}
	return x.failedHook(h, about, explainHook(err)), nil
}
