package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/code"
)

// Limits of requests to endpoints and of their answers (END-01).
const (
	// MaxEndpointRequest bounds the body of a request, in bytes.
	MaxEndpointRequest = 8 << 20
	// MaxEndpointAnswer bounds the body of an answer, streamed or not, in bytes.
	MaxEndpointAnswer = 64 << 20
	// defaultEndpointTimeout is the time limit of an endpoint that sets no timeout.
	defaultEndpointTimeout = 30 * time.Second
)

// EndpointRequest is a request to an endpoint of a thread, as its code sees it.
type EndpointRequest struct {
	Method string
	// Path is the path below the thread's endpoints, split into segments.
	Path []string
	// URL is the full URL.
	URL     string
	Headers [][2]string
	Body    []byte // at most MaxEndpointRequest
	// User is the name of the user who sends the request.
	User string
	// Key makes a repeat of the request have the same effects once. With an empty key the request gets a new one.
	Key string
	// Reads reports that a terminated thread answers this request too (THR-05).
	Reads bool
}

// EndpointAnswer receives the answer of an endpoint: Head once, then the body in pieces. An error that they return
// ends the code. They are not called after ServeEndpoint has returned.
type EndpointAnswer interface {
	// Head begins the answer. endpoint is the name of the ThreadEndpoint object.
	Head(endpoint string, status int, headers [][2]string) error
	Write(piece []byte) error
}

// EndpointError reports that the code of an endpoint did not answer as it should.
type EndpointError struct {
	Endpoint string // the name of the ThreadEndpoint object
	Message  string
	// Timeout reports that the code took too long. Lost reports that its sandbox went away, so a retry may help.
	Timeout, Lost bool
}

// Error implements error.
func (e *EndpointError) Error() string { return "ThreadEndpoint " + e.Endpoint + ": " + e.Message }

// ServeEndpoint runs the ThreadEndpoint that a request belongs to (END-01). Its code runs in an isolate of its own,
// whether or not a run is under way. Its state is saved before the answer is sent. Work that it continues with
// waitUntil is saved later, when that work is done (STA-06). Errors before Head are an *UnknownError, *MethodError,
// *NotReadyError or *EndpointError, the errors of threads that take no requests, and that of a context that ended.
// The same errors after Head mean that the answer is cut off.
func (e *Engine) ServeEndpoint(ctx context.Context, threadID string, req EndpointRequest, to EndpointAnswer) error {
	// The code may outlive the request: its work after the answer continues.
	detached := context.WithoutCancel(ctx)
	life, leave := e.attach(detached, threadID)
	t, err := e.store.Thread(ctx, threadID)
	if err == nil && t.TerminatedAt != 0 && req.Reads {
		leave() // this replica may learn of the termination later, which must not end a request that reads
		life = detached
	}
	life, end := context.WithCancelCause(life)
	over := func() {
		end(nil)
		leave()
	}
	gone := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer gone()
	var x *execution
	var ep *definition.Endpoint
	if err == nil {
		x, ep, err = e.endpoint(life, t, &req)
	}
	if err != nil {
		over()
		return err
	}
	if err := x.serveEndpoint(life, ep, &req, to); err != nil || !x.host.Session.Working() {
		x.close()
		over()
		return err
	}
	gone() // the request is answered and no longer ends the code
	go func() {
		defer over()
		defer x.close()
		x.finishWork(life)
	}()
	return nil
}

// endpoint prepares the execution of a request, and returns it with the endpoint.
func (e *Engine) endpoint(ctx context.Context, t *store.Thread, req *EndpointRequest) (*execution, *definition.Endpoint, error) {
	switch {
	case t.TerminatedAt != 0 && !req.Reads:
		return nil, nil, store.ErrTerminated
	case t.RetainedAt != 0:
		return nil, nil, store.ErrRetained
	}
	ep, err := e.opts.Definitions.Endpoint(ctx, t.Namespace, t.Agent, req.Method, req.Path)
	if err != nil {
		return nil, nil, err
	}
	st, err := e.threads.Open(ctx, t.ID)
	if err != nil {
		return nil, nil, err
	}
	if _, err := e.threads.LoadEnv(ctx, t); err != nil {
		return nil, nil, err
	}
	// Without an agent the sandbox comes from the default pool, and there are no tools to call.
	agent, err := e.opts.Definitions.Agent(ctx, t.Namespace, t.Agent)
	var notReady *definition.NotReadyError
	if err != nil && !errors.As(err, &notReady) {
		return nil, nil, err
	}
	x := e.newExecution(ctx, t, st, agent, "")
	x.host.Session.ID = newRunID() // a session of its own (STA-01) without a run, so state.execution is null
	return x, ep, nil
}

// serveEndpoint runs the code and sends its answer.
func (x *execution) serveEndpoint(ctx context.Context, ep *definition.Endpoint, req *EndpointRequest, to EndpointAnswer) error {
	module, timeout := "endpoints/"+ep.ObjectName, defaultEndpointTimeout
	if ep.Spec.Timeout != nil {
		timeout = ep.Spec.Timeout.Duration
	}
	x.code.add(module, ep.Module, timeout)
	a := &endpointAnswer{endpoint: ep.ObjectName, to: to}
	defer a.end()
	x.code.endpoint, x.code.answer = "endpoint_"+keyed(x.host.Thread.ID, req.Key), a
	v, err := x.code.Invoke(ctx, x.code.endpoint, module, req.value(ep), timeout)
	if err != nil {
		return x.endpointFailed(ctx, ep, err)
	}
	// Save before the answer, so that whoever receives it finds the state that it describes.
	if err := x.saveEndpoint(ctx); err != nil {
		return err
	}
	if err := a.whole(v); err != nil {
		var bad *answerError
		if errors.As(err, &bad) {
			return &EndpointError{Endpoint: ep.ObjectName, Message: bad.text}
		}
		return err
	}
	return nil
}

// value returns the request in the form in which it crosses into the sandbox.
func (r *EndpointRequest) value(ep *definition.Endpoint) map[string]any {
	headers := make([]any, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = []any{h[0], h[1]}
	}
	params := make(map[string]any, len(ep.Params))
	for name, v := range ep.Params {
		params[name] = v
	}
	body := r.Body
	if body == nil {
		body = []byte{}
	}
	return map[string]any{"method": r.Method, "url": r.URL, "headers": headers, "body": body, "params": params, "user": r.User}
}

// saveEndpoint stores what the code has changed in the thread's state so far.
func (x *execution) saveEndpoint(ctx context.Context) error {
	save := x.host.Session.Save(!x.host.Session.Working())
	if len(save.Ops) == 0 {
		return nil
	}
	if err := x.host.State.Apply(ctx, save.Ops...); err != nil {
		return err
	}
	save.Done()
	return nil
}

// finishWork waits for the work that continues after the answer, and saves what it changed.
func (x *execution) finishWork(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, afterResponse, errSlowWork)
	defer cancel()
	if err := x.saveOutside(ctx); err != nil {
		t := x.host.Thread
		x.code.lines.Fail("", "work after the answer ended early, or its state could not be saved: "+err.Error())
		x.engine.log.Info("work after an endpoint's answer ended early, or its state could not be saved", "namespace", t.Namespace, "name", t.Name, "error", err.Error())
	}
}

// endpointFailed returns the error that says why there is no answer, or why it was cut off.
func (x *execution) endpointFailed(ctx context.Context, ep *definition.Endpoint, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTerminal):
		return store.ErrTerminated
	case cause != nil:
		return cause // the client has gone
	}
	out := &EndpointError{Endpoint: ep.ObjectName}
	var gone *sandbox.IsolateGoneError
	var thrown *sandbox.Error
	switch {
	case errors.Is(err, errCodeTimeout):
		out.Timeout, out.Message = true, err.Error()
	case errors.As(err, &gone):
		out.Timeout = strings.Contains(gone.Reason, "ran for longer than") // the limit of the pool
		out.Lost, out.Message = gone.Status == sandbox.StatusTerminated, code.Explain(err)
	case errors.As(err, &thrown) && thrown.Name == "TimeoutError":
		out.Timeout, out.Message = true, thrown.Message
	case errors.As(err, &thrown):
		// The stack is for the author of the code, not for the client.
		x.code.lines.Fail("endpoint/"+ep.ObjectName, code.Explain(err))
		out.Message = "its code failed: " + thrown.Error()
	default:
		return err
	}
	return out
}
