package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// runtimeContextProperty passes to an isolate what the platform team configured, for modules that name it (TOL-04).
const runtimeContextProperty = "$runtimeContext"

// endpointProperty tells an isolate which invocation is a request to an endpoint. Code does not see it.
const endpointProperty = "$endpoint"

// defaultCodeTimeout is the time limit of one call of definition code whose object sets no timeout.
const defaultCodeTimeout = time.Minute

// errNoSandbox reports that there was no sandbox, so none of the code has run.
var errNoSandbox = errors.New("no sandbox is available")

var errCodeTimeout = errors.New("the code did not finish")

// codeHost runs the code of one execution in the thread's sandbox. It acquires the sandbox when it is first needed,
// and releases it when the execution ends. The same holds for the isolate, which all definition code shares.
//
// mu guards sbx, releases, iso, responses, sources and handlers. The other fields are set before the isolate opens.
type codeHost struct {
	life   context.Context // ends with the execution
	engine *Engine
	thread *store.Thread
	pool   string
	state  *code.State
	host   *tool.Host
	turn   *turn // nil outside of a run

	mu       sync.Mutex
	modules  map[string]sandbox.Module
	hooks    map[hookKey]string // the modules that call the hooks
	wall     time.Duration
	sbx      sandbox.Sandbox
	releases []func() // of every sandbox that was acquired
	iso      sandbox.Isolate
	// responses holds, by invocation under way, the channel for an answer that comes before the invocation ends.
	responses map[string]chan any
	// sources holds, by invocation under way, the name of its code for people.
	sources map[string]string
	// lines receives the log lines of the code.
	lines *codelog.Lines

	// endpoint is the invocation that answers a request, and answer receives its output. Both are set before the
	// isolate opens.
	endpoint string
	answer   *endpointAnswer

	// prefix is the prefix of invocations for handlers of the agent's sides; "" without any. handlers holds these
	// invocations.
	prefix   string
	handlers map[string]*handlerCall
}

func newCodeHost(life context.Context, e *Engine, t *store.Thread, pool string, state *code.State) *codeHost {
	return &codeHost{life: life, engine: e, thread: t, pool: pool, state: state, modules: map[string]sandbox.Module{scratchModule: scratchCode}, hooks: map[hookKey]string{}, responses: map[string]chan any{}, sources: map[string]string{}}
}

// add adds a module. It must be called before the isolate is opened.
func (c *codeHost) add(name string, m sandbox.Module, timeout time.Duration) {
	c.modules[name] = m
	if c.turn != nil {
		c.turn.reads(m.Code)
	}
	if timeout <= 0 {
		timeout = defaultCodeTimeout
	}
	c.wall = max(c.wall, timeout)
}

func (c *codeHost) close() {
	defer c.lines.End() // includes what the code logged while it ended
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.iso != nil {
		_ = c.iso.Close() // its process ends in any case
		c.iso = nil
	}
	for _, release := range c.releases {
		release()
	}
	c.releases, c.sbx = nil, nil
}

// sandbox returns the thread's sandbox, and acquires it if needed. The caller holds mu.
func (c *codeHost) sandbox(ctx context.Context) (sandbox.Sandbox, error) {
	if c.sbx != nil {
		return c.sbx, nil
	}
	c.engine.fault("sandbox.acquire.before")
	sbx, release, err := c.engine.opts.Sandboxes.Acquire(ctx, c.thread, c.pool)
	if err != nil {
		return nil, err
	}
	c.releases = append(c.releases, release)
	c.sbx = sbx
	c.engine.fault("sandbox.acquire.after")
	return sbx, nil
}

// discard gives up a sandbox that failed, unless another call has done so already.
func (c *codeHost) discard(ctx context.Context, sbx sandbox.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sbx != sbx {
		return
	}
	c.engine.log.Info("discarding a sandbox that failed", "namespace", c.thread.Namespace, "name", c.thread.Name)
	if c.iso != nil {
		_ = c.iso.Close() // it belongs to the discarded sandbox
	}
	c.engine.opts.Sandboxes.Discard(ctx, c.thread, sbx)
	c.sbx, c.iso = nil, nil
}

// RunCode implements tool.Code. If the sandbox goes away before any of the code has run, the code runs once more in
// another sandbox.
func (c *codeHost) RunCode(ctx context.Context, req sandbox.CodeRequest) (sandbox.Result, error) {
	for retried := false; ; retried = true {
		c.mu.Lock()
		sbx, err := c.sandbox(ctx)
		c.mu.Unlock()
		if err != nil {
			return sandbox.Result{}, err
		}
		res := sbx.RunCode(ctx, req).Wait(ctx)
		if !res.Retriable || retried || ctx.Err() != nil {
			return res, nil
		}
		c.discard(ctx, sbx)
	}
}

// ServeRunCode implements tool.Code.
func (c *codeHost) ServeRunCode(ctx context.Context, args []any) (any, error) {
	c.mu.Lock()
	sbx, iso := c.sbx, c.iso
	c.mu.Unlock()
	if sbx == nil || iso == nil {
		return nil, errIsolateEnded
	}
	return client.ServeRunCode(ctx, sbx, iso, args)
}

// errIsolateEnded is returned to code in an isolate when there is no isolate. The isolate can only have ended.
var errIsolateEnded = errors.New("the isolate has ended")

// ServeRunCodeFor implements tool.Code. The sandbox may differ from the caller's. As in RunCode, code that had not
// begun when the sandbox went away runs once more.
func (c *codeHost) ServeRunCodeFor(ctx context.Context, caller tool.Code, args []any) (any, error) {
	from, ok := caller.(*codeHost)
	if !ok {
		return nil, errIsolateEnded
	}
	from.mu.Lock()
	iso := from.iso
	from.mu.Unlock()
	if iso == nil {
		return nil, errIsolateEnded
	}
	for retried := false; ; retried = true {
		c.mu.Lock()
		sbx, err := c.sandbox(ctx)
		c.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoSandbox, err)
		}
		res, err := client.RunCodeFor(ctx, sbx, iso, args)
		if err != nil {
			return nil, err
		}
		if !res.Retriable || retried || ctx.Err() != nil {
			return client.ResultObject(res), nil
		}
		c.discard(ctx, sbx)
	}
}

// Invoke implements tool.Code. A call that had not begun when its isolate went away is repeated once in a fresh
// sandbox. A call that had begun is not repeated, since it may have done half of its work.
func (c *codeHost) Invoke(ctx context.Context, invocation, module string, args any, timeout time.Duration) (any, error) {
	if timeout <= 0 {
		timeout = defaultCodeTimeout
	}
	for retried := false; ; retried = true {
		iso, sbx, err := c.isolate(ctx, retried)
		if err != nil {
			return nil, err
		}
		v, err := c.invoke(ctx, iso, invocation, module, args, timeout)
		var gone *sandbox.IsolateGoneError
		if !errors.As(err, &gone) {
			return v, err
		}
		c.drop(iso)
		if gone.Started || retried || ctx.Err() != nil || c.life.Err() != nil {
			return nil, err
		}
		c.discard(ctx, sbx)
	}
}

func (c *codeHost) invoke(ctx context.Context, iso sandbox.Isolate, invocation, module string, args any, timeout time.Duration) (any, error) {
	until := time.Now().Add(timeout)
	call, cancel := context.WithDeadline(ctx, until)
	responded := make(chan any, 1)
	c.mu.Lock()
	c.responses[invocation] = responded
	c.sources[invocation] = sourceOf(module)
	c.mu.Unlock()
	settled := make(chan outcomeOf, 1)
	over := func() {
		cancel()
		c.mu.Lock()
		delete(c.responses, invocation)
		delete(c.sources, invocation)
		c.mu.Unlock()
		c.lines.Flush()
	}
	go func() {
		v, err := iso.Invoke(call, invocation, module, args)
		// Compare with the time limit itself: the isolate ends code by its own clock, which may be ahead of the
		// context.
		if err != nil && ctx.Err() == nil && !time.Now().Before(until) {
			c.drop(iso) // the code may still be running
			err = fmt.Errorf("%w within %s: make it faster, or raise the timeout of the tool, the effect, the hook, the endpoint or the handler", errCodeTimeout, timeout)
		}
		settled <- outcomeOf{v, err}
	}()
	select {
	case o := <-settled:
		over()
		select {
		case v := <-responded: // the response came first, so an error of the work after it is not part of the answer
			c.worked(iso, invocation, sourceOf(module), o.err)
			return v, nil
		default:
			return o.value, o.err
		}
	case v := <-responded:
		done := c.host.Session.Begin() // the session lasts until the work is done (STA-06)
		go func() {
			defer done()
			defer over()
			c.worked(iso, invocation, sourceOf(module), (<-settled).err)
		}()
		return v, nil
	}
}

// worked records how the work after a response failed, if it did. If the isolate ended with it, the next call does
// not use that isolate.
func (c *codeHost) worked(iso sandbox.Isolate, invocation, source string, err error) {
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) {
		c.drop(iso)
	}
	if err != nil {
		c.lines.Fail(source, "work after the response failed: "+code.Explain(err))
		c.engine.log.Info("work after the response failed", "namespace", c.thread.Namespace, "name", c.thread.Name, "call", invocation, "error", err.Error())
	}
}

// outcomeOf is the outcome of an invocation.
type outcomeOf struct {
	value any
	err   error
}

// methodRespond is the method with which code answers before its invocation ends.
const methodRespond = "waitUntil.respond"

// serve answers the calls that code makes to the host.
func (c *codeHost) serve(ctx context.Context, invocation, method string, args []any) (any, error) {
	if c.answer != nil && invocation == c.endpoint && (method == methodEndpointHead || method == methodEndpointChunk) {
		return c.answer.serve(ctx, method, args)
	}
	if serve := handlerMethods[method]; serve != nil {
		c.mu.Lock()
		call := c.handlers[invocation]
		c.mu.Unlock()
		if call == nil {
			return nil, errors.New("only handlers of an agent's sides can use this, while they are called")
		}
		return serve(call, ctx, args)
	}
	if method != methodRespond {
		return c.state.Serve(ctx, invocation, method, args)
	}
	c.mu.Lock()
	responded := c.responses[invocation]
	c.mu.Unlock()
	if responded == nil || len(args) != 1 {
		return nil, errors.New("there is no invocation to respond to")
	}
	select {
	case responded <- args[0]:
		return nil, nil
	default:
		return nil, errors.New("the code has responded already")
	}
}

// handle records, before it is made, which call of a handler an invocation is.
func (c *codeHost) handle(invocation string, call *handlerCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handlers == nil {
		c.handlers = map[string]*handlerCall{}
	}
	c.handlers[invocation] = call
}

// logged receives the console output of definition code. It belongs to the thread, and the manager's own log has none
// of it.
func (c *codeHost) logged(invocation string, l sandbox.Log) {
	c.mu.Lock()
	source := c.sources[invocation]
	c.mu.Unlock()
	call := ""
	if strings.HasPrefix(source, "tool/") {
		call = invocation
	}
	c.lines.Console(source, call, l)
}
