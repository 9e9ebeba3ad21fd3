package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/causation"
	"github.com/skein-dev/skein/internal/engine/clip"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
	"github.com/skein-dev/skein/internal/store"
)

// defaultHookTimeout is the time limit of one call of a hook that sets no timeout.
const defaultHookTimeout = 10 * time.Second

// hookModule is the module that spreads the list of a hook's arguments. The default export is what defineHook
// returned, or a function. The name in defineHook must be that of the hook, so that no code runs for the wrong hook.
const hookModule = `import definition from './%[1]s.source';
const hook = typeof definition === 'function' ? { execute: definition } : definition;
if (typeof hook?.execute !== 'function') {
  throw new TypeError("the module has no default export that is a hook: export default defineHook('%[1]s', async (state) => …)");
}
if (hook.hook !== undefined && hook.hook !== '%[1]s') {
  throw new TypeError("the code defines the hook " + hook.hook + " but the object uses it for %[1]s: correct one of them");
}
export default { execute: (state, args) => hook.execute(state, ...args) };
`

// AddHooks adds the modules of the hooks of an execution's agent.
func AddHooks(x *codeexec.Execution) {
	for _, s := range x.Agent.Sides() {
		for _, h := range s.Hooks {
			module, of := moduleOfHook(x.Agent, h)
			if of != s {
				continue // side a has the same hook
			}
			x.Code.Add(module, sandbox.Module{Code: fmt.Sprintf(hookModule, h.Name), Filename: string(h.Name) + ".js"}, timeoutOfHook(h))
			x.Code.Add(module+".source", h.Module, timeoutOfHook(h))
		}
	}
}

// moduleOfHook returns the module that calls a hook, and the side that it belongs to. Hooks of the same name may belong to the agent
// or to the prompts of its sides. Hooks of side b that are not shared with side a have a folder of their own.
func moduleOfHook(a *definition.Agent, h *definition.Hook) (module string, of *definition.Side) {
	for _, s := range a.Sides() {
		own := s.Hooks[h.Name]
		if own == nil || own.Owner != h.Owner {
			continue
		}
		folder := codeexec.HookFolder
		if s.Name == definition.SideB {
			folder += definition.SideB + "/"
		}
		return folder + string(h.Name), s
	}
	return "", nil
}

func timeoutOfHook(h *definition.Hook) time.Duration {
	if h.Timeout <= 0 {
		return defaultHookTimeout
	}
	return h.Timeout
}

// Subject says what a call of a hook is about.
type Subject struct {
	// cause and the hook's name form the id of the call. A repeat after a crash has the same id, so that what the
	// hook does through state happens once.
	cause      string
	messageID  string
	toolCallID string
}

// callHook calls a hook. When the call fails, failed is the entry for the thread's log. err is not nil only when ctx
// ended.
func (c *Caller) callHook(ctx context.Context, h *definition.Hook, about Subject, args ...any) (v any, failed store.Op, err error) {
	v, err = c.invokeHook(ctx, h, about, args...)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	default:
		return nil, c.failedHook(h, about, codeexec.Explain(err)), nil
	}
	return v, nil, nil
}

func (c *Caller) invokeHook(ctx context.Context, h *definition.Hook, about Subject, args ...any) (any, error) {
	module, _ := moduleOfHook(c.x.Agent, h)
	c.service.fault("hook.before")
	ctx, over := membudget.Part(ctx) // what a hook answers is small, or refused
	defer over()
	v, err := c.x.Host.Code.Invoke(causation.NestedContext(ctx), "hook:"+string(h.Name)+":"+about.cause, module, args, timeoutOfHook(h))
	c.service.fault("hook.after")
	if err != nil {
		return nil, err
	}
	if (v == value.Undefined{}) {
		v = nil
	}
	return v, nil
}

// maxHookError bounds the error text of a hook in the log, in bytes.
const maxHookError = 4096

// failedHook is hookFailed for text from code. It removes secrets before the text is cut.
func (c *Caller) failedHook(h *definition.Hook, about Subject, text string) store.Op {
	return c.service.failedHook(c.x.Host.Thread, c.x.Host.RunID, h, about, text)
}

func (s *Service) failedHook(t *store.Thread, runID string, h *definition.Hook, about Subject, text string) store.Op {
	return failureEntry(h, runID, about, s.Redact(t.Namespace, text))
}

// failureEntry returns the log entry which says that a hook failed.
func failureEntry(h *definition.Hook, runID string, about Subject, text string) store.Op {
	return runlog.Event(runID, store.EventHookFailed, about.messageID, store.HookFailure{
		Hook: string(h.Name), Owner: h.Owner, Error: clip.Text(text, maxHookError), MessageID: about.messageID, ToolCallID: about.toolCallID,
	})
}

// ---- queued hooks ---------------------------------------------------------------------------------------

// Queue returns the operation that queues a call of an after hook, for the transaction that writes what the hook is
// about. The call waits in the inbox until that transaction is committed. key makes a repeat happen once; "" for
// none. It returns nil when there is no such hook.
func (s *Service) Queue(ctx context.Context, side *definition.Side, runID, key string, call store.HookCall) []store.Op {
	h := side.Hooks[skeinv1.HookName(call.Hook)]
	if h == nil {
		return nil
	}
	call.Side, call.NoSide = definition.ShortName(side), runID == ""
	call.Depth = causation.FromContext(ctx).Depth
	if limit := s.Depth; call.Depth >= limit {
		about := Subject{messageID: call.MessageID}
		if call.Call != nil {
			about.toolCallID = call.Call.ID
		}
		return []store.Op{failureEntry(h, runID, about, causation.TooDeep(limit))}
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

// callQueued calls the hook that an inbox item names, of the agent as it is now. It does nothing when the agent no longer
// has that hook, or when the message is gone. failed is an entry for the log. err is a *notCalledError, or says that
// ctx ended or the store failed.
func (c *Caller) callQueued(ctx context.Context, cause string, payload json.RawMessage) (failed store.Op, err error) {
	var call store.HookCall
	if err := json.Unmarshal(payload, &call); err != nil {
		c.service.Log.Error(err, "dropped an inbox item that is not a hook call", "thread", c.x.Host.Thread.ID)
		return nil, nil
	}
	h := c.x.Agent.HookOf(&call)
	if h == nil {
		return nil, nil
	}
	about := Subject{cause: cause, messageID: call.MessageID}
	if call.Call != nil {
		about.toolCallID = call.Call.ID
	}
	args, err := c.arguments(ctx, h.Name, &call)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case errors.Is(err, errNoArguments):
		c.service.Log.Error(err, "dropped the call of a hook", "thread", c.x.Host.Thread.ID, "hook", h.Name)
		return nil, nil
	case err != nil:
		return nil, err
	}
	_, err = c.invokeHook(causation.NewContext(ctx, causation.Chain{Depth: call.Depth}), h, about, args...)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case codeexec.NothingRan(err):
		return nil, &notCalledError{codeexec.Explain(err)}
	}
	return c.failedHook(h, about, codeexec.Explain(err)), nil
}

var errNoArguments = errors.New("this release does not know what the hook is called with")

// arguments returns what a queued hook is called with behind state. It returns store.ErrNotFound when the message is gone.
func (c *Caller) arguments(ctx context.Context, hook skeinv1.HookName, call *store.HookCall) ([]any, error) {
	switch hook {
	case skeinv1.HookAfterThreadCreated:
		return nil, nil
	case skeinv1.HookAfterSubagentCreated:
		return []any{call.Subagent}, nil
	case skeinv1.HookAfterCreateMessage, skeinv1.HookAfterUpdateMessage, skeinv1.HookAfterToolCallSuccess, skeinv1.HookAfterToolCallFailure:
		m, err := c.service.Store.Message(ctx, c.x.Host.Thread.ID, call.MessageID)
		if err != nil {
			return nil, err
		}
		if call.Call == nil {
			return []any{m}, nil
		}
		return []any{callForHook(*call.Call), resultForHook(m)}, nil
	}
	return nil, errNoArguments
}
