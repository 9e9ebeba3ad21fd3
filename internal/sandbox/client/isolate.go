package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/stacks"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// isolate runs definition code. mu guards the fields below it.
type isolate struct {
	client *Client
	req    sandbox.IsolateRequest
	stream *stream
	mapper *stacks.Mapper
	ctx    context.Context // ends with the isolate
	cancel context.CancelFunc
	gone   chan struct{} // closed when err is set
	runs   runs

	mu          sync.Mutex
	err         *sandbox.IsolateGoneError
	started     bool
	lastID      uint64
	waiting     map[uint64]chan outcome
	invocations map[string]context.Context // current invocations, by the caller's id
	logs        int
	logBytes    int
}

// OpenIsolate implements sandbox.Sandbox.
func (c *Client) OpenIsolate(ctx context.Context, req sandbox.IsolateRequest) (sandbox.Isolate, error) {
	open, err := encodeIsolate(req)
	if err != nil {
		return nil, err
	}
	if !c.enter() {
		return nil, fmt.Errorf("opening an isolate: %w", &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: errClosed.Error()})
	}
	s, err := c.open(ctx, open, false)
	if err != nil {
		c.streams.Done()
		if errors.Is(err, sandbox.ErrBusy) {
			return nil, err
		}
		reason := err.Error()
		var refused *refusedError
		if !errors.As(err, &refused) && ctx.Err() == nil && !errors.Is(err, errClosed) {
			reason = wentAway(err, false)
		}
		return nil, fmt.Errorf("opening an isolate: %w", &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: reason})
	}
	i := &isolate{
		client: c, req: req, stream: s, mapper: stacks.New(req.Modules), gone: make(chan struct{}),
		waiting: map[uint64]chan outcome{}, invocations: map[string]context.Context{},
	}
	i.ctx, i.cancel = context.WithCancel(s.ctx)
	go func() {
		defer c.streams.Done()
		i.read()
	}()
	return i, nil
}

func encodeIsolate(req sandbox.IsolateRequest) ([]byte, error) {
	static := req.Static
	if static == nil {
		static = map[string]any{}
	}
	encoded, err := value.Encode(static)
	if err != nil {
		return nil, fmt.Errorf("the properties of state: %w", err)
	}
	o := &protocol.Open{
		Limits: protocol.Limits{Kind: protocol.KindIsolate, Memory: req.MemoryLimitBytes, Wall: req.WallTime},
		Static: encoded,
	}
	for _, name := range keys(req.Modules) {
		o.Modules = append(o.Modules, protocol.Module{Name: name, Form: protocol.FormCompiled, Source: req.Modules[name].Code})
	}
	return o.Encode()
}

// read handles frames until the isolate ends, and then informs all waiting callers.
func (i *isolate) read() {
	calls := &hostCalls{stream: i.stream}
	var end *sandbox.IsolateGoneError
	for end == nil {
		f, err := i.stream.next()
		if err == nil {
			end, err = i.take(calls, f)
		}
		if err != nil {
			end = i.broken(err)
		}
	}
	i.finish(end)
}

func (i *isolate) broken(err error) *sandbox.IsolateGoneError {
	i.mu.Lock()
	reason := wentAway(err, i.started)
	i.mu.Unlock()
	if why := short(err); why != nil {
		reason = why.Message
	} else if errors.Is(err, protocol.ErrProtocol) || errors.Is(err, value.ErrMalformed) {
		reason = "the code broke out of the engine and was stopped: " + err.Error()
	} else if cause := context.Cause(i.stream.ctx); cause != nil {
		reason = cause.Error()
	}
	return &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: reason}
}

// finish makes the isolate unusable. Only the first reason counts.
func (i *isolate) finish(end *sandbox.IsolateGoneError) {
	i.mu.Lock()
	if i.err == nil {
		end.Started = i.started
		i.err = end
		close(i.gone)
	}
	cause := i.err
	i.mu.Unlock()
	i.cancel()
	i.stream.close(cause)
}

// take handles one frame. It returns why the isolate ended when the frame was the last.
func (i *isolate) take(calls *hostCalls, f frame) (*sandbox.IsolateGoneError, error) {
	if f.kind == protocol.TypeSettled {
		s, err := protocol.ParseSettled(f.content)
		if err != nil {
			return nil, err
		}
		i.settled(s, f)
		return nil, nil
	}
	defer i.stream.release(f)
	content := f.content
	switch f.kind {
	case protocol.TypeStarted:
		i.mu.Lock()
		i.started = true
		i.mu.Unlock()
		return nil, nil
	case protocol.TypeHostCall:
		call, err := protocol.ParseHostCall(content)
		if err != nil {
			return nil, err
		}
		return nil, i.hostCall(calls, call)
	case protocol.TypeLog:
		l, err := protocol.ParseLog(content)
		if err == nil {
			i.log(l)
		}
		return nil, err
	case protocol.TypeDone:
		d, err := protocol.ParseDone(content)
		if err != nil {
			return nil, err
		}
		return ending(d), nil
	case protocol.TypeGone:
		g, err := protocol.ParseGone(content)
		if err != nil {
			return nil, err
		}
		return &sandbox.IsolateGoneError{Status: g.Status, Reason: g.Reason}, nil
	}
	return nil, protocol.Violation("frame type %d", f.kind)
}

func ending(d *protocol.Done) *sandbox.IsolateGoneError {
	end := &sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: "the isolate ended"}
	if d.Status == sandbox.StatusMemory {
		end.Status = d.Status
	}
	if d.Err != nil {
		end.Reason = d.Err.Message
	}
	return end
}

// outcome is an answer and the frame that it came in.
type outcome struct {
	protocol.Outcome
	frame frame
}

// settled passes an answer to the caller that waits for it, who also returns the memory of the frame.
func (i *isolate) settled(s *protocol.Settled, f frame) {
	i.mu.Lock()
	waiter := i.waiting[s.ID]
	delete(i.waiting, s.ID)
	if waiter != nil {
		waiter <- outcome{s.Outcome, f} // there is room for one, and it is the only one
	}
	i.mu.Unlock()
	if waiter == nil {
		i.stream.release(f)
		return
	}
	i.client.answered()
}

// methodName matches what can follow "state.".
var methodName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$.]{0,99}$`)

// hostCall handles a call of state. It is attributed to an invocation only while that runs, so that code can only
// claim the id of a current invocation.
func (i *isolate) hostCall(calls *hostCalls, call *protocol.HostCall) error {
	i.mu.Lock()
	ctx, active := i.invocations[call.Invocation]
	i.mu.Unlock()
	if !active {
		ctx = i.ctx
	}
	f := func(ctx context.Context, args []any) (any, error) {
		switch {
		case !active:
			return nil, errors.New("the call that this belongs to has ended: await what state gives before returning")
		case call.Method == methodTerminate:
			return nil, i.runs.terminate(args)
		case !methodName.MatchString(call.Method):
			return nil, fmt.Errorf("state has no method %q", call.Method)
		case i.req.Host == nil:
			return nil, fmt.Errorf("state.%s is not there: this code has no thread", call.Method)
		}
		return i.req.Host(ctx, call.Invocation, call.Method, args)
	}
	return calls.serve(ctx, call, f, true)
}

func (i *isolate) log(l *protocol.Log) {
	i.mu.Lock()
	i.logs++
	i.logBytes += len(l.Message)
	over := i.logs > sandbox.MaxIsolateLogs+1 || i.logBytes > sandbox.MaxIsolateLogBytes+protocol.MaxLog
	if _, active := i.invocations[l.Invocation]; !active {
		l.Invocation = ""
	}
	i.mu.Unlock()
	if i.req.Log != nil && !over {
		if strings.Contains(l.Message, "\n    at ") {
			l.Message = i.mapper.Stack(l.Message) // an error, with positions in the compiled code
		}
		i.req.Log(l.Invocation, l.Log)
	}
}

func (i *isolate) goneError() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// Close implements sandbox.Isolate.
func (i *isolate) Close() error {
	i.finish(&sandbox.IsolateGoneError{Status: sandbox.StatusTerminated, Reason: "the isolate was closed"})
	return nil
}
