package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// Limits on what one execution may send besides its result.
const (
	maxReports     = 10_000
	maxReportBytes = 34 << 20
	// maxReportCost bounds the memory of all reports of an execution, which are kept until it ends. Small values can take
	// seventy times their encoded size.
	maxReportCost = 2 * value.MaxCost
	maxLogs       = 1100
	maxLogBytes   = 2 << 20
)

// execution is one runCode call.
type execution struct {
	client *Client
	req    sandbox.CodeRequest
	begun  time.Time
	done   chan struct{}
	cancel context.CancelCauseFunc // ends the stream

	mu          sync.Mutex
	stream      *stream
	settled     bool
	result      sandbox.Result
	reports     []any
	reportBytes int
	reportCost  int64
	logs        []sandbox.Log
	logBytes    int
	started     bool
	terminated  string // the reason of the first Terminate
	timers      []*time.Timer
}

// RunCode implements sandbox.Sandbox.
func (c *Client) RunCode(ctx context.Context, req sandbox.CodeRequest) sandbox.Execution {
	e := &execution{client: c, req: req, begun: time.Now(), done: make(chan struct{})}
	// The stream outlives ctx, so that a cancelled execution still reports how it ended.
	streamCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e.cancel = cancel
	if !c.enter() {
		e.settle(e.lost(errClosed))
		return e
	}
	go func() {
		defer c.streams.Done()
		e.run(ctx, streamCtx)
	}()
	return e
}

// Done implements sandbox.Execution.
func (e *execution) Done() <-chan struct{} { return e.done }

// Reports implements sandbox.Execution.
func (e *execution) Reports() []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]any(nil), e.reports...)
}

// Wait implements sandbox.Execution.
func (e *execution) Wait(ctx context.Context) sandbox.Result {
	select {
	case <-e.done:
	case <-ctx.Done():
		e.Terminate(reasonOf(ctx))
		<-e.done
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.result
}

func reasonOf(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.Canceled):
		return "the call was cancelled"
	case errors.Is(cause, context.DeadlineExceeded):
		return "the call's time was up"
	default:
		return cause.Error()
	}
}

// Terminate implements sandbox.Execution.
func (e *execution) Terminate(reason string) {
	if reason == "" {
		reason = "terminated"
	}
	reason = protocol.Cut(reason, protocol.MaxReason)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settled || e.terminated != "" {
		return
	}
	e.terminated = reason
	if s := e.stream; s != nil {
		// In a goroutine, because the pipe may be full and the caller must not wait for it.
		go func() { _ = s.Write(protocol.TypeTerminate, protocol.EncodeText(reason)) }()
		e.timers = append(e.timers, time.AfterFunc(lateGrace, func() { e.settle(e.ended(sandbox.StatusTerminated, reason)) }))
		return
	}
	go e.settle(e.ended(sandbox.StatusTerminated, reason))
}

// run executes the request and settles the execution.
func (e *execution) run(ctx, streamCtx context.Context) {
	stop := context.AfterFunc(ctx, func() { e.Terminate(reasonOf(ctx)) })
	defer stop()
	p, failed := prepare(e.req)
	if failed != nil {
		e.settle(sandbox.Result{Status: sandbox.StatusLinkError, Error: failed})
		return
	}
	s, err := e.client.open(streamCtx, p.open, e.req.Depth > 1)
	if err != nil {
		e.settle(e.lost(err))
		return
	}
	defer s.close(errSettled)
	if !e.attach(s) {
		return
	}
	e.settle(e.read(ctx, s, p))
}

// errSettled is the reason why a stream ends after its execution has settled.
var errSettled = errors.New("the execution has settled")

// attach makes the stream known to Terminate and starts the clock. It returns false when the execution has ended
// already.
func (e *execution) attach(s *stream) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settled {
		return false
	}
	e.stream = s
	wall, most := e.req.WallTime, e.client.opts.MaxWallTime
	if most > 0 && (wall <= 0 || wall > most) {
		wall = most
	}
	if wall > 0 {
		reason := fmt.Sprintf("the code ran for longer than %s, its limit, and did not stop", wall)
		e.timers = append(e.timers, time.AfterFunc(wall+wallGrace, func() { e.settle(e.ended(sandbox.StatusTerminated, reason)) }))
	}
	return true
}

// read handles frames up to the last.
func (e *execution) read(ctx context.Context, s *stream, p *prepared) sandbox.Result {
	calls := &hostCalls{stream: s}
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(s.ctx, cancel)
	for {
		f, err := s.next()
		if err == nil {
			var last *sandbox.Result
			last, err = e.take(callCtx, calls, p, f.kind, f.content)
			s.release(f)
			if last != nil {
				return *last
			}
		}
		if err != nil {
			if errors.Is(err, errReports) {
				return e.ended(sandbox.StatusTerminated, err.Error())
			}
			if why := short(err); why != nil {
				return e.ended(sandbox.StatusTerminated, why.Message)
			}
			if errors.Is(err, protocol.ErrProtocol) || errors.Is(err, value.ErrMalformed) {
				return e.ended(sandbox.StatusTerminated, "the code broke out of the engine and was stopped: "+err.Error())
			}
			return e.lost(err)
		}
	}
}

// take handles one frame. It returns the result when the frame was the last.
func (e *execution) take(ctx context.Context, calls *hostCalls, p *prepared, t protocol.Type, content []byte) (*sandbox.Result, error) {
	switch t {
	case protocol.TypeStarted:
		e.mu.Lock()
		e.started = true
		e.mu.Unlock()
		return nil, nil
	case protocol.TypeHostCall:
		call, err := protocol.ParseHostCall(content)
		if err != nil {
			return nil, err
		}
		if call.Func >= uint64(len(p.funcs)) || p.funcs[call.Func] == nil {
			return nil, protocol.Violation("a call of a function that was not given")
		}
		return nil, calls.serve(ctx, call, p.funcs[call.Func], false)
	case protocol.TypeReport:
		return nil, e.report(ctx, content)
	case protocol.TypeLog:
		l, err := protocol.ParseLog(content)
		if err == nil {
			e.log(l.Log)
		}
		return nil, err
	case protocol.TypeDone:
		d, err := protocol.ParseDone(content)
		if err != nil {
			return nil, err
		}
		return e.finished(ctx, d)
	case protocol.TypeGone:
		g, err := protocol.ParseGone(content)
		if err != nil {
			return nil, err
		}
		r := e.ended(g.Status, g.Reason)
		return &r, nil
	}
	return nil, protocol.Violation("frame type %d", t)
}

// errReports ends code whose reports take too much memory of the host.
var errReports = fmt.Errorf("too much was reported: decoded, the reports take more than %d MiB of memory", maxReportCost>>20)

func (e *execution) report(ctx context.Context, content []byte) error {
	cost, err := value.CheckCost(content)
	if err != nil {
		return err
	}
	e.mu.Lock()
	settled := e.settled
	e.reportBytes += len(content)
	e.reportCost += cost
	over := len(e.reports) >= maxReports || e.reportBytes > maxReportBytes
	costly := e.reportCost > maxReportCost
	e.mu.Unlock()
	switch {
	case settled:
		return nil
	case over:
		return protocol.Violation("too much was reported")
	case costly:
		return errReports
	}
	v, err := decode(ctx, content)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.reports = append(e.reports, v)
	e.mu.Unlock()
	if e.req.Report != nil {
		e.req.Report(v)
	}
	return nil
}

func (e *execution) log(l sandbox.Log) {
	e.mu.Lock()
	kept := !e.settled && len(e.logs) < maxLogs && e.logBytes < maxLogBytes
	if kept {
		e.logs = append(e.logs, l)
		e.logBytes += len(l.Message)
	}
	e.mu.Unlock()
	if kept && e.req.Log != nil {
		e.req.Log(l)
	}
}

// finished converts a Done to a result.
func (e *execution) finished(ctx context.Context, d *protocol.Done) (*sandbox.Result, error) {
	e.client.answered()
	r := sandbox.Result{Status: d.Status, Error: d.Err, MemoryUsedBytes: d.Memory}
	if d.Err == nil {
		v, err := decode(ctx, d.Value)
		if why := short(err); why != nil {
			r.Status, r.Error = sandbox.StatusError, why
		} else if err != nil {
			return nil, err
		}
		r.Value = v
	}
	if d.Status == sandbox.StatusTerminated {
		e.explain(&r)
	}
	return &r, nil
}

// ended returns the result of code that did not end by itself.
func (e *execution) ended(status sandbox.Status, reason string) sandbox.Result {
	name := "Terminated"
	if status == sandbox.StatusMemory {
		name = "InternalError"
	}
	return sandbox.Result{Status: status, Error: &sandbox.Error{Name: name, Message: reason}}
}

// explain sets the reason of our own Terminate in place of the child's error.
func (e *execution) explain(r *sandbox.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.terminated != "" && r.Error != nil {
		r.Error = &sandbox.Error{Name: "Terminated", Message: e.terminated}
	}
}

// lost returns the result for a sandbox that disappeared or refused.
func (e *execution) lost(err error) sandbox.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.terminated != "" {
		return sandbox.Result{Status: sandbox.StatusTerminated, Error: &sandbox.Error{Name: "Terminated", Message: e.terminated}}
	}
	// Another replica may also have given the sandbox up between two calls, which closes the connection.
	r := sandbox.Result{Status: sandbox.StatusTerminated, Retriable: !e.started}
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		r.Error = &sandbox.Error{Name: "SandboxError", Message: refused.text}
		// A busy sandbox works well: new code must not take it away from the code that it runs.
		r.Retriable = refused.status != http.StatusBadRequest && !errors.Is(err, sandbox.ErrBusy)
	case errors.Is(err, errClosed):
		r.Error = &sandbox.Error{Name: "Terminated", Message: errClosed.Error()}
	default:
		r.Error = &sandbox.Error{Name: "SandboxError", Message: wentAway(err, e.started)}
	}
	return r
}

// settle ends the execution. Only the first result counts.
func (e *execution) settle(r sandbox.Result) {
	if r.Status == sandbox.StatusTerminated && !r.Retriable {
		e.explain(&r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settled {
		return
	}
	e.settled = true
	for _, t := range e.timers {
		t.Stop()
	}
	r.Duration = time.Since(e.begun)
	r.Reports = append([]any(nil), e.reports...)
	r.Logs = append([]sandbox.Log(nil), e.logs...)
	e.result = r
	close(e.done)
	e.cancel(errSettled)
}
