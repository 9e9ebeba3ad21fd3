package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
)

// partingTime is how long the server may take to acknowledge that the client ends the code.
const partingTime = 5 * time.Second

// codeStream is the connection of one RunCode call.
type codeStream struct {
	thread    *Thread
	options   CodeOptions
	execution *CodeExecution
	functions map[runtimev1.CodeFunction]CodeFunc
	conn      *websocket.Conn
}

// run connects, sends the request and serves calls until the code has settled. Ending ctx ends the code.
func (s *codeStream) run(ctx context.Context, run *runtimev1.CodeRun) {
	if err := s.dial(ctx); err != nil {
		if ctx.Err() != nil { // ctx ended before the start
			s.execution.settle(ended(runtimev1.CodeTerminated, terminatedName, reasonOf(ctx)), nil, nil)
			return
		}
		s.execution.settle(nil, nil, err)
		return
	}
	defer func() { _ = s.conn.CloseNow() }()
	// The connection outlives ctx, so that the server can be told why the code is ended.
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	request, err := json.Marshal(run)
	if err == nil {
		err = s.send(life, runtimev1.CodeClientMessage{Type: runtimev1.CodeMessageRun, Run: request})
	}
	if err != nil {
		s.lost(err)
		return
	}
	stop := context.AfterFunc(ctx, func() {
		s.execution.settle(ended(runtimev1.CodeTerminated, terminatedName, reasonOf(ctx)), nil, nil)
		_ = s.send(life, runtimev1.CodeClientMessage{Type: runtimev1.CodeMessageTerminate, Reason: reasonOf(ctx)})
		time.AfterFunc(partingTime, hangUp)
	})
	defer stop()
	s.read(life)
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

func (s *codeStream) dial(ctx context.Context) error {
	// API servers do not time out a path below /watch/.
	r, err := s.thread.requestAt(http.MethodGet, "watch", runtimev1.SubresourceCode)
	if err != nil {
		return err
	}
	sockets, err := s.thread.client.sockets()
	if err != nil {
		return err
	}
	conn, resp, err := websocket.Dial(ctx, r.URL().String(), &websocket.DialOptions{
		HTTPClient: sockets, Subprotocols: []string{runtimev1.CodeSubprotocol},
	})
	if err != nil {
		if resp != nil && resp.StatusCode >= http.StatusBadRequest {
			defer func() { _ = resp.Body.Close() }()
			return explain(statusOf(resp))
		}
		if ctx.Err() == nil {
			err = &unreachable{err}
		}
		return err
	}
	conn.SetReadLimit(runtimev1.MaxCodeMessageBytes + 1<<20) // redaction may lengthen what the server sends
	s.conn = conn
	return nil
}

func (s *codeStream) send(ctx context.Context, m runtimev1.CodeClientMessage) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > runtimev1.MaxCodeMessageBytes {
		return &runtimev1.CodeError{Name: "RangeError", Message: fmt.Sprintf("the value is too large: a message holds at most %d MiB", runtimev1.MaxCodeMessageBytes>>20)}
	}
	return s.conn.Write(ctx, websocket.MessageText, data)
}

// lost settles code whose connection ended. The server then ends the code.
func (s *codeStream) lost(err error) {
	var tooLarge *runtimev1.CodeError
	if errors.As(err, &tooLarge) {
		s.execution.settle(ended(runtimev1.CodeLinkError, tooLarge.Name, "the request: "+tooLarge.Message), nil, nil)
		return
	}
	s.execution.settle(ended(runtimev1.CodeTerminated, terminatedName, "the connection to the runtime API ended, which also ended the code: "+err.Error()), nil, nil)
}

// read handles the server's messages up to the last.
func (s *codeStream) read(ctx context.Context) {
	ctx, over := context.WithCancel(ctx) // functions end with the code
	defer over()
	for {
		_, data, err := s.conn.Read(ctx)
		if err != nil {
			s.lost(err)
			return
		}
		var m runtimev1.CodeServerMessage
		if err := json.Unmarshal(data, &m); err != nil {
			s.lost(fmt.Errorf("a message cannot be read: %w", err))
			return
		}
		switch m.Type {
		case runtimev1.CodeMessageCall:
			go s.serve(ctx, m)
		case runtimev1.CodeMessageReport:
			s.report(m.Value)
		case runtimev1.CodeMessageLog:
			if m.Log != nil && s.execution.log(*m.Log) && s.options.Log != nil {
				s.options.Log(*m.Log)
			}
		case runtimev1.CodeMessageResult:
			s.settle(m.Result)
			_ = s.conn.Close(websocket.StatusNormalClosure, "")
			return
		case runtimev1.CodeMessageFailed:
			if m.Status == nil {
				m.Status = &metav1.Status{Code: http.StatusServiceUnavailable, Message: "the code did not run, and the server does not say why"}
			}
			s.execution.settle(nil, nil, explain(statusError(*m.Status)))
			return
		}
	}
}

// settle settles the execution with the server's result.
func (s *codeStream) settle(r *runtimev1.CodeResult) {
	if r == nil {
		s.lost(errors.New("the server's last message has no result"))
		return
	}
	var value any = values.Undefined{}
	if r.Status == runtimev1.CodeSuccess {
		var err error
		if value, err = values.Unmarshal(r.Result); err == nil {
			r.Result, err = values.Plain(value)
		}
		if err != nil {
			s.lost(fmt.Errorf("the result cannot be read: %w", err))
			return
		}
	}
	s.execution.settle(r, value, nil)
}

func (s *codeStream) report(raw json.RawMessage) {
	value, err := values.Unmarshal(raw)
	if err != nil {
		return
	}
	plain, err := values.Plain(value)
	if err != nil || !s.execution.report(plain) {
		return
	}
	if s.options.Report != nil {
		s.options.Report(plain)
	}
	if s.options.ReportValue != nil {
		s.options.ReportValue(value)
	}
}

// serve runs a function that the code called and sends its result.
func (s *codeStream) serve(ctx context.Context, m runtimev1.CodeServerMessage) {
	out := runtimev1.CodeClientMessage{Type: runtimev1.CodeMessageReturn, ID: m.ID}
	v, err := s.invoke(ctx, m)
	if err == nil {
		out.Value, err = values.Marshal(v)
	}
	if err == nil {
		err = s.send(ctx, out)
		var tooLarge *runtimev1.CodeError
		if !errors.As(err, &tooLarge) {
			return // sent, or the connection is gone
		}
	}
	var thrown *runtimev1.CodeError
	if !errors.As(err, &thrown) {
		thrown = &runtimev1.CodeError{Name: "Error", Message: err.Error()}
	}
	_ = s.send(ctx, runtimev1.CodeClientMessage{
		Type: runtimev1.CodeMessageThrow, ID: m.ID, Error: &runtimev1.CodeError{Name: thrown.Name, Message: thrown.Message},
	})
}

func (s *codeStream) invoke(ctx context.Context, m runtimev1.CodeServerMessage) (v any, err error) {
	if m.Function == nil || s.functions[*m.Function] == nil {
		return nil, errors.New("unknown function")
	}
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("the function %s panicked: %v", m.Function.Name, p)
		}
	}()
	args := make([]any, len(m.Args))
	for i, raw := range m.Args {
		if args[i], err = values.Unmarshal(raw); err != nil {
			return nil, err
		}
	}
	return s.functions[*m.Function](ctx, args)
}
