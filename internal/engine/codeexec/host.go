package codeexec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-dev/skein/internal/engine/codelog"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/code"
)

// runtimeContextProperty passes to an isolate what the platform team configured, for modules that name it (TOL-04).
const runtimeContextProperty = "$runtimeContext"

// DefaultTimeout is the time limit of one call of definition code whose object sets no timeout.
const DefaultTimeout = time.Minute

// Host runs the code of one execution in the thread's sandbox. It acquires the sandbox when it is first needed,
// and releases it when the execution ends. The same holds for the isolate, which all definition code shares.
//
// mu guards sbx, releases, iso, responses, sources and servers. The other fields are set before the isolate opens.
type Host struct {
	life   context.Context // ends with the execution
	memory *membudget.Account
	env    *Environment
	thread *store.Thread
	pool   string
	State  State
	host   *tool.Host
	// reads is called with the code of each module; nil for nothing.
	reads func(code string)
	// static are properties that the isolate gets besides those of state. Code does not see them.
	static map[string]any

	mu       sync.Mutex
	modules  map[string]sandbox.Module
	wall     time.Duration
	sbx      sandbox.Sandbox
	releases []func() // of every sandbox that was acquired
	iso      sandbox.Isolate
	// responses holds, by invocation under way, the channel for an answer that comes before the invocation ends.
	responses map[string]chan any
	// sources holds, by invocation under way, the name of its code for people.
	sources map[string]string
	// Lines receives the log lines of the code.
	Lines *codelog.Lines

	// servers serve methods to single invocations. The owners of these methods refuse them to other invocations with the error
	// that is in reserved.
	servers  map[string]Server
	reserved map[string]error

	// outage says that a call of the code failed because the store was not available. What the code did about it says nothing of the code.
	outage atomic.Bool
}

// State is what code sees as `state`.
type State interface {
	// Static returns the properties that the isolate gets when it is opened.
	Static(ctx context.Context) (map[string]any, error)
	// Serve answers a call of a method.
	Serve(ctx context.Context, invocation, method string, args []any) (any, error)
}

// Server serves methods of its own to the code of one invocation.
type Server interface {
	// Serves reports whether the server serves a method.
	Serves(method string) bool
	// Serve answers a call of such a method.
	Serve(ctx context.Context, method string, args []any) (any, error)
}

// NewHost returns a Host without a sandbox. When life ends, its code ends too.
func NewHost(life context.Context, env *Environment, t *store.Thread, pool string, state State) *Host {
	memory := env.Memory.Open(t.Namespace)
	return &Host{
		life: membudget.With(life, memory), memory: memory, env: env, thread: t, pool: pool, State: state, modules: map[string]sandbox.Module{snapshotModule: snapshotCode}, static: map[string]any{},
		responses: map[string]chan any{}, sources: map[string]string{}, servers: map[string]Server{}, reserved: map[string]error{},
	}
}

// SetProperty sets a property that the isolate gets besides those of state. It must be called before the isolate is opened.
func (c *Host) SetProperty(name string, value any) { c.static[name] = value }

// Reserve makes the host refuse methods with err to invocations whose Server does not serve them. It must be called before the
// isolate is opened.
func (c *Host) Reserve(err error, methods ...string) {
	for _, m := range methods {
		c.reserved[m] = err
	}
}

// Add adds a module. It must be called before the isolate is opened.
func (c *Host) Add(name string, m sandbox.Module, timeout time.Duration) {
	c.modules[name] = m
	if c.reads != nil {
		c.reads(m.Code)
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	c.wall = max(c.wall, timeout)
}

// Close ends the isolate and releases the sandbox.
func (c *Host) Close() {
	defer c.memory.Close()
	defer c.Lines.End() // includes what the code logged while it ended
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
func (c *Host) sandbox(ctx context.Context) (sandbox.Sandbox, error) {
	if c.sbx != nil {
		return c.sbx, nil
	}
	c.env.fault("sandbox.acquire.before")
	sbx, release, err := c.env.Sandboxes.Acquire(ctx, c.thread, c.pool)
	if err != nil {
		return nil, err
	}
	ports.ReportWait(ctx, nil)
	c.releases = append(c.releases, release)
	c.sbx = sbx
	c.env.fault("sandbox.acquire.after")
	return sbx, nil
}

// discard gives up a sandbox that failed, unless another call has done so already.
func (c *Host) discard(ctx context.Context, sbx sandbox.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sbx != sbx {
		return
	}
	c.env.Log.Info("discarding a sandbox that failed", "namespace", c.thread.Namespace, "name", c.thread.Name)
	if c.iso != nil {
		_ = c.iso.Close() // it belongs to the discarded sandbox
	}
	c.env.Sandboxes.Discard(ctx, c.thread, sbx)
	c.sbx, c.iso = nil, nil
}

// RunCode implements tool.Code. If the sandbox goes away before any of the code has run, the code runs once more in
// another sandbox.
func (c *Host) RunCode(ctx context.Context, req sandbox.CodeRequest) (res sandbox.Result, err error) {
	ctx, observed := c.observe(ctx, "runCode")
	defer func() {
		if res.Error != nil {
			observed(res.Error)
			return
		}
		observed(err)
	}()
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
func (c *Host) ServeRunCode(ctx context.Context, args []any) (_ any, err error) {
	ctx, observed := c.observe(ctx, "runCode")
	defer func() { observed(err) }()
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
func (c *Host) ServeRunCodeFor(ctx context.Context, caller tool.Code, args []any) (_ any, err error) {
	ctx, observed := c.observe(ctx, "runCode")
	defer func() { observed(err) }()
	from, ok := caller.(*Host)
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
			return nil, NoSandbox(err)
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
func (c *Host) Invoke(ctx context.Context, invocation, module string, args any, timeout time.Duration) (_ any, err error) {
	ctx, observed := c.observe(ctx, cmp.Or(SourceOf(module), module))
	defer func() { observed(err) }()
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if membudget.From(ctx) == nil {
		ctx = membudget.With(ctx, c.memory) // what the code answers is returned when the execution ends
	}
	for retried := false; ; retried = true {
		iso, sbx, err := c.Isolate(ctx, retried)
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

func (c *Host) invoke(ctx context.Context, iso sandbox.Isolate, invocation, module string, args any, timeout time.Duration) (any, error) {
	until := time.Now().Add(timeout)
	call, cancel := context.WithDeadline(ctx, until)
	responded := make(chan any, 1)
	c.mu.Lock()
	c.responses[invocation] = responded
	c.sources[invocation] = SourceOf(module)
	c.mu.Unlock()
	settled := make(chan outcomeOf, 1)
	over := func() {
		cancel()
		c.mu.Lock()
		delete(c.responses, invocation)
		delete(c.sources, invocation)
		c.mu.Unlock()
		c.Lines.Flush()
	}
	go func() {
		v, err := iso.Invoke(call, invocation, module, args)
		// Compare with the time limit itself: the isolate ends code by its own clock, which may be ahead of the
		// context.
		if err != nil && ctx.Err() == nil && !time.Now().Before(until) {
			c.drop(iso) // the code may still be running
			err = fmt.Errorf("%w within %s: make it faster, or raise the timeout of the tool, the effect, the hook, the endpoint or the handler", ErrTimeout, timeout)
		}
		settled <- outcomeOf{v, err}
	}()
	select {
	case o := <-settled:
		over()
		select {
		case v := <-responded: // the response came first, so an error of the work after it is not part of the answer
			c.recordWork(iso, invocation, SourceOf(module), o.err)
			return v, nil
		default:
			return o.value, o.err
		}
	case v := <-responded:
		done := c.host.Session.Begin() // the session lasts until the work is done (STA-06)
		go func() {
			defer done()
			defer over()
			c.recordWork(iso, invocation, SourceOf(module), (<-settled).err)
		}()
		return v, nil
	}
}

// recordWork records how the work after a response failed, if it did. If the isolate ended with it, the next call does
// not use that isolate.
func (c *Host) recordWork(iso sandbox.Isolate, invocation, source string, err error) {
	var gone *sandbox.IsolateGoneError
	if errors.As(err, &gone) {
		c.drop(iso)
	}
	if err != nil {
		c.Lines.Fail(source, "work after the response failed: "+code.Explain(err))
		c.env.Log.Info("work after the response failed", "namespace", c.thread.Namespace, "name", c.thread.Name, "call", invocation, "error", err.Error())
	}
}

// outcomeOf is the outcome of an invocation.
type outcomeOf struct {
	value any
	err   error
}

// methodRespond is the method with which code answers before its invocation ends.
const methodRespond = "waitUntil.respond"

// Serve answers the calls that code makes to the host.
func (c *Host) Serve(ctx context.Context, invocation, method string, args []any) (any, error) {
	v, err := c.serve(ctx, invocation, method, args)
	if errors.Is(err, store.ErrUnavailable) {
		c.outage.Store(true)
	}
	return v, err
}

// Outage reports whether the store was not available for a call that the code made.
func (c *Host) Outage() bool { return c.outage.Load() }

func (c *Host) serve(ctx context.Context, invocation, method string, args []any) (any, error) {
	c.mu.Lock()
	server := c.servers[invocation]
	c.mu.Unlock()
	if server != nil && server.Serves(method) {
		return server.Serve(ctx, method, args)
	}
	if err := c.reserved[method]; err != nil {
		return nil, err
	}
	if method != methodRespond {
		return c.State.Serve(ctx, invocation, method, args)
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

// Handle makes a Server serve an invocation. It must be called before the invocation is made.
func (c *Host) Handle(invocation string, s Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers[invocation] = s
}

// logLine receives the console output of definition code. It belongs to the thread, and the manager's own log has none
// of it.
func (c *Host) logLine(invocation string, l sandbox.Log) {
	c.mu.Lock()
	source := c.sources[invocation]
	c.mu.Unlock()
	call := ""
	if strings.HasPrefix(source, "tool/") {
		call = invocation
	}
	c.Lines.Console(source, call, l)
}
