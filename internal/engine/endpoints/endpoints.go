// Package endpoints serves requests to the ThreadEndpoints of threads (END-01): it runs their code and sends its answer.
package endpoints

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/endpoint/headers"
	"github.com/skein-dev/skein/internal/engine/cancelcause"
	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/runlog"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool/code"
)

// Limits of requests to endpoints and of their answers (END-01).
const (
	// MaxRequest bounds the body of a request, in bytes.
	MaxRequest = 8 << 20
	// MaxAnswer bounds the body of an answer, streamed or not, in bytes.
	MaxAnswer = 64 << 20
	// defaultEndpointTimeout is the time limit of an endpoint that sets no timeout.
	defaultEndpointTimeout = 30 * time.Second
)

// endpointProperty tells an isolate which invocation is a request to an endpoint. Code does not see it.
const endpointProperty = "$endpoint"

// Request is a request to an endpoint of a thread, as its code sees it.
type Request struct {
	Method string
	// Path is the path below the thread's endpoints, split into segments.
	Path []string
	// URL is the full URL.
	URL string
	// Headers are names in lower case, and values as the bytes that were received.
	Headers [][2]string
	Body    []byte // at most MaxRequest
	// User is the name of the user who sends the request.
	User string
	// Key makes a repeat of the request have the same effects once. With an empty key the request gets a new one.
	Key string
	// Only are the names of the ThreadEndpoints that may answer. nil: all.
	Only []string
	// Reads reports that a terminated thread answers this request too (THR-05).
	Reads bool
}

// Answer receives the answer of an endpoint: Head once, then the body in pieces. An error that they return
// ends the code. They are not called after Serve has returned.
type Answer interface {
	// Head begins the answer. endpoint is the name of the ThreadEndpoint object. The values of headers are texts, of which each character
	// is a byte.
	Head(endpoint string, status int, headers [][2]string) error
	Write(piece []byte) error
}

// Error reports that the code of an endpoint did not answer as it should.
type Error struct {
	Endpoint string // the name of the ThreadEndpoint object
	Message  string
	// Timeout reports that the code took too long. Lost reports that its sandbox went away or was busy, so a retry may help.
	Timeout, Lost bool
}

// Error implements error.
func (e *Error) Error() string { return "ThreadEndpoint " + e.Endpoint + ": " + e.Message }

// Options of a Service. All are required.
type Options struct {
	Store       store.Store
	Definitions Definitions
	Executions  Executions
	Log         logr.Logger
}

// Definitions resolves ThreadEndpoints.
type Definitions interface {
	// Endpoint returns the ThreadEndpoint that answers a request to a thread.
	Endpoint(ctx context.Context, q definition.EndpointQuery) (*definition.Endpoint, error)
}

// Executions opens executions for the code of endpoints.
type Executions interface {
	// Attach returns a context that ends when the thread is terminated or purged. Call leave when the work is done.
	Attach(ctx context.Context, threadID string) (attached context.Context, leave func())
	// NewApart returns an execution apart from the runs of the thread. It has no tools if the thread's agent is not ready.
	NewApart(ctx context.Context, t *store.Thread) (*codeexec.Execution, error)
}

// Service serves requests to the endpoints of threads (END-01). It is safe for concurrent use.
type Service struct{ Options }

// New returns a service.
func New(o Options) *Service {
	return &Service{Options: o}
}

// Serve runs the ThreadEndpoint that a request belongs to (END-01). Its code runs in an isolate of its own,
// whether or not a run is under way. Its state is saved before the answer is sent. Work that it continues with
// waitUntil is saved later, when that work is done (STA-06). Errors before Head are a *definition.UnknownError, *definition.MethodError,
// *definition.NotReadyError or *Error, the errors of threads that take no requests, and that of a context that ended.
// The same errors after Head mean that the answer is cut off.
func (e *Service) Serve(ctx context.Context, threadID string, req Request, to Answer) error {
	// The code may outlive the request: its work after the answer continues.
	detached := context.WithoutCancel(ctx)
	life, leave := e.Executions.Attach(detached, threadID)
	t, err := e.Store.Thread(ctx, threadID)
	if err == nil && t.TerminatedAt != 0 && req.Reads {
		leave() // this replica may learn of the termination later, which must not end a request that reads
		life = detached
	}
	life, end := context.WithCancelCause(life)
	life, letGo := membudget.Part(life) // the request has one of its own, which ends with the answer
	over := func() {
		end(nil)
		letGo()
		leave()
	}
	gone := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer gone()
	var x *codeexec.Execution
	var ep *definition.Endpoint
	if err == nil {
		x, ep, err = e.prepare(life, t, &req)
	}
	if err != nil {
		over()
		return err
	}
	if err := e.run(life, x, ep, &req, to); err != nil || !x.Host.Session.Working() {
		x.Close()
		over()
		return err
	}
	gone() // the request is answered and no longer ends the code
	go func() {
		defer over()
		defer x.Close()
		e.finishWork(life, x)
	}()
	return nil
}

// prepare prepares the execution of a request, and returns it with the endpoint.
func (e *Service) prepare(ctx context.Context, t *store.Thread, req *Request) (*codeexec.Execution, *definition.Endpoint, error) {
	switch {
	case t.TerminatedAt != 0 && !req.Reads, t.Deleting:
		return nil, nil, store.ErrTerminated
	case t.RetainedAt != 0:
		return nil, nil, store.ErrRetained
	}
	ep, err := e.Definitions.Endpoint(ctx, definition.EndpointQuery{Namespace: t.Namespace, Agent: t.Agent, Method: req.Method, Path: req.Path, Only: req.Only})
	if err != nil {
		return nil, nil, err
	}
	x, err := e.Executions.NewApart(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	x.Host.Session.ID = runlog.NewRunID() // a session of its own (STA-01) without a run, so state.execution is null
	return x, ep, nil
}

// run runs the code and sends its answer.
func (e *Service) run(ctx context.Context, x *codeexec.Execution, ep *definition.Endpoint, req *Request, to Answer) error {
	module, timeout := "endpoints/"+ep.ObjectName, defaultEndpointTimeout
	if ep.Spec.Timeout != nil {
		timeout = ep.Spec.Timeout.Duration
	}
	x.Code.Add(module, ep.Module, timeout)
	a := &endpointAnswer{endpoint: ep.ObjectName, to: to}
	defer a.end()
	invocation := "endpoint_" + runlog.KeyFor(x.Host.Thread.ID, req.Key)
	x.Code.SetProperty(endpointProperty, invocation)
	x.Code.Handle(invocation, a)
	v, err := x.Code.Invoke(ctx, invocation, module, req.value(ep), timeout)
	if err != nil {
		return e.failureOf(ctx, x, ep, err)
	}
	// Save before the answer, so that its reader finds the state that it describes.
	if err := save(ctx, x); err != nil {
		return err
	}
	if err := a.sendWhole(v); err != nil {
		var bad *answerError
		if errors.As(err, &bad) {
			return &Error{Endpoint: ep.ObjectName, Message: bad.text}
		}
		return err
	}
	return nil
}

// value returns the request in the form in which it crosses into the sandbox.
func (r *Request) value(ep *definition.Endpoint) map[string]any {
	list := make([]any, len(r.Headers))
	for i, h := range r.Headers {
		list[i] = []any{h[0], headers.Text(h[1])}
	}
	params := make(map[string]any, len(ep.Params))
	for name, v := range ep.Params {
		params[name] = v
	}
	body := r.Body
	if body == nil {
		body = []byte{}
	}
	return map[string]any{"method": r.Method, "url": r.URL, "headers": list, "body": body, "params": params, "user": r.User}
}

// save stores what the code has changed in the thread's state so far.
func save(ctx context.Context, x *codeexec.Execution) error {
	save := x.Host.Session.Save(!x.Host.Session.Working())
	if len(save.Ops) == 0 {
		return nil
	}
	if err := x.Host.State.Apply(ctx, save.Ops...); err != nil {
		return err
	}
	save.Done()
	return nil
}

// finishWork waits for the work that continues after the answer, and saves what it changed.
func (e *Service) finishWork(ctx context.Context, x *codeexec.Execution) {
	ctx, cancel := context.WithTimeoutCause(ctx, codeexec.AfterResponse, codeexec.ErrSlowWork)
	defer cancel()
	if err := x.SaveExternal(ctx); err != nil {
		t := x.Host.Thread
		x.Code.Lines.Fail("", "work after the answer ended early, or its state could not be saved: "+err.Error())
		e.Log.Info("work after an endpoint's answer ended early, or its state could not be saved", "namespace", t.Namespace, "name", t.Name, "error", err.Error())
	}
}

// failureOf returns the error that says why there is no answer, or why it was cut off.
func (e *Service) failureOf(ctx context.Context, x *codeexec.Execution, ep *definition.Endpoint, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, cancelcause.ErrTerminal):
		return store.ErrTerminated
	case cause != nil:
		return cause // the client has gone
	}
	out := &Error{Endpoint: ep.ObjectName}
	var gone *sandbox.IsolateGoneError
	var thrown *sandbox.Error
	switch {
	case errors.Is(err, sandbox.ErrBusy): // nothing has run
		out.Lost, out.Message = true, err.Error()
	case errors.Is(err, codeexec.ErrTimeout):
		out.Timeout, out.Message = true, err.Error()
	case errors.As(err, &gone):
		out.Timeout = strings.Contains(gone.Reason, "ran for longer than") // the limit of the pool
		out.Lost, out.Message = gone.Status == sandbox.StatusTerminated, code.Explain(err)
	case errors.As(err, &thrown) && thrown.Name == "TimeoutError":
		out.Timeout, out.Message = true, thrown.Message
	case errors.As(err, &thrown):
		// The stack is for the author of the code, not for the client.
		x.Code.Lines.Fail("endpoint/"+ep.ObjectName, code.Explain(err))
		out.Message = "its code failed: " + thrown.Error()
	default:
		return err
	}
	return out
}
