package code

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/sandbox"
)

// Attend answers GET code, a WebSocket (COD-01 to COD-07). The code runs in the thread's sandbox. Meanwhile the
// client serves the functions that it provided, receives reports and logs as they come, and may end the code. When
// the connection ends, for whatever reason, the code ends too.
func (h *Handler) Attend(c *call.Call) error {
	if !c.IsWebSocket() {
		return apierrors.NewBadRequest("GET code is a WebSocket: connect with a WebSocket client, or use POST for code that calls no functions of yours")
	}
	// A WebSocket can only be opened with GET, but running code changes things.
	allowed, err := h.Access.May(c.Context(), "create", runtimev1.SubresourceCode, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	if !allowed {
		return apierrors.NewForbidden(status.ThreadsResource, c.Name, errors.New("running code needs the verb create on threads/code, besides get"))
	}
	conn, err := c.AcceptWebSocket(runtimev1.CodeSubprotocol)
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(runtimev1.MaxCodeMessageBytes)
	a := &attendance{handler: h, call: c, conn: conn, waiting: map[int64]chan reply{}}
	a.ctx, a.end = context.WithCancelCause(c.Context())
	defer a.end(nil)
	a.run()
	return nil
}

// attendance is one WebSocket connection that serves one execution. mu guards lastID and waiting.
type attendance struct {
	handler *Handler
	call    *call.Call
	conn    *websocket.Conn
	ctx     context.Context // of the execution; its cause says why the code was ended
	end     context.CancelCauseFunc

	mu      sync.Mutex
	lastID  int64
	waiting map[int64]chan reply
}

// reply is the client's answer to a call. cost is what was drawn for it.
type reply struct {
	value any
	err   error
	cost  int64
}

// EndedError says why something other than the code ended it.
type EndedError struct{ Reason string }

// Error implements error.
func (e *EndedError) Error() string { return e.Reason }

// Errors with which the server ends code.
var (
	// ErrLeft means that the client is gone.
	ErrLeft = &EndedError{"the client's connection ended, which also ended the code"}
	// ErrStopping means that the server stops.
	ErrStopping = &EndedError{"the server is stopping: run the code again"}
	errDeaf     = &EndedError{"the client reads what the code sends too slowly"}
)

// run reads the request, executes it, and sends the result.
func (a *attendance) run() {
	first, err := a.first()
	if err != nil {
		a.refuse(err)
		return
	}
	go a.read()
	go a.watch()
	go a.beat()
	req, err := a.request(first)
	if err != nil {
		var refused *apierrors.StatusError
		if !errors.As(err, &refused) {
			a.refuse(err)
			return
		}
		// An unknown or malformed option is a result of the code (COD-02).
		a.finish(runtimev1.CodeServerMessage{Type: runtimev1.CodeMessageResult, Result: linkError(refused.ErrStatus.Message)})
		return
	}
	result, err := a.handler.Engine.RunCode(a.ctx, a.call.Row.ID, req)
	var ended *EndedError
	if err != nil && errors.As(context.Cause(a.ctx), &ended) {
		result, err = sandbox.Result{Status: sandbox.StatusTerminated, Error: &sandbox.Error{Name: "Terminated", Message: ended.Reason}}, nil
	}
	if err != nil {
		failed := status.Of(a.call.Context(), a.call.Name, err)
		a.finish(runtimev1.CodeServerMessage{Type: runtimev1.CodeMessageFailed, Status: &failed.ErrStatus})
		return
	}
	out := codeResult(result, marshalBounded)
	a.finish(runtimev1.CodeServerMessage{Type: runtimev1.CodeMessageResult, Result: out})
}

// first reads the message with which every client begins.
func (a *attendance) first() (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.handler.TransferTimeout)
	defer cancel()
	m, _, err := a.receive(ctx) // what the request takes is kept as long as the code may use it
	if err != nil {
		return nil, err
	}
	if m.Type != runtimev1.CodeMessageRun {
		return nil, violationf("the first message is of type %.20q: it must be run", m.Type)
	}
	return m.Run, nil
}

// violation is an error of a client that breaks the protocol.
type violation struct{ error }

func (v *violation) Unwrap() error { return v.error }

// violationf returns a violation with a formatted text.
func violationf(format string, args ...any) error { return &violation{fmt.Errorf(format, args...)} }

// refuse closes the connection of a client that breaks the protocol, with the reason.
func (a *attendance) refuse(err error) {
	const room = 123 // of a close frame, in bytes
	reason := err.Error()
	if len(reason) > room {
		reason = strings.ToValidUTF8(reason[:room], "")
	}
	_ = a.conn.Close(websocket.StatusPolicyViolation, reason)
}

// outOfMemory tells the client that there is no memory for its message.
func outOfMemory(err error) error {
	var busy *membudget.BusyError
	var large *membudget.TooLargeError
	if errors.As(err, &busy) || errors.As(err, &large) {
		return violationf("%w", err)
	}
	return err
}

// receive reads a message of the client. cost is the memory that was drawn for it. A caller that no longer needs the message gives cost
// to release; otherwise that memory is returned when the execution ends.
func (a *attendance) receive(ctx context.Context) (m *runtimev1.CodeClientMessage, cost int64, err error) {
	kind, in, err := a.conn.Reader(ctx)
	if err != nil {
		return nil, 0, err
	}
	work, done := membudget.Part(ctx)
	defer done()
	data, err := membudget.ReadAll(work, membudget.From(work), in)
	if err != nil {
		return nil, 0, outOfMemory(err)
	}
	if kind != websocket.MessageText {
		return nil, 0, violationf("a message is binary: send text")
	}
	cost = membudget.JSONCost(data)
	if err := membudget.From(ctx).Draw(ctx, cost); err != nil {
		return nil, 0, outOfMemory(err)
	}
	m = new(runtimev1.CodeClientMessage)
	if err := call.DecodeStrict(a.call.Name, data, m); err != nil {
		a.release(cost)
		return nil, 0, violationf("a message cannot be read: %w", err)
	}
	return m, cost, nil
}

// release returns what was drawn for a message.
func (a *attendance) release(cost int64) { membudget.From(a.call.Context()).Return(cost) }

// read handles the client's messages until the connection ends.
func (a *attendance) read() {
	for {
		m, cost, err := a.receive(a.call.Context())
		if err == nil {
			err = a.take(m, cost)
		}
		if err == nil {
			continue
		}
		var v *violation
		if errors.As(err, &v) {
			a.refuse(v)
		}
		a.end(ErrLeft)
		return
	}
}

// take acts on one message, for which cost was drawn.
func (a *attendance) take(m *runtimev1.CodeClientMessage, cost int64) error {
	switch m.Type {
	case runtimev1.CodeMessageTerminate:
		reason := m.Reason
		if reason == "" {
			reason = "terminated by its caller"
		}
		a.end(&EndedError{reason})
		return nil
	case runtimev1.CodeMessageReturn:
		v, err := values.Unmarshal(m.Value)
		if err != nil {
			err = &sandbox.Error{Name: "TypeError", Message: "the value that the function returned cannot be read: " + err.Error()}
		}
		return a.settle(m.ID, reply{v, err, cost})
	case runtimev1.CodeMessageThrow:
		thrown := &sandbox.Error{Name: "Error"}
		if m.Error != nil {
			thrown.Message = m.Error.Message
			if m.Error.Name != "" {
				thrown.Name = m.Error.Name
			}
		}
		return a.settle(m.ID, reply{nil, thrown, cost})
	}
	return violationf("a message is of type %.20q: after run they are return, throw and terminate", m.Type)
}

// settle passes a reply to the call that waits for it. It holds the lock, so that no reply is left for a call that has stopped waiting.
func (a *attendance) settle(id int64, with reply) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiter := a.waiting[id]
	delete(a.waiting, id)
	if waiter != nil {
		waiter <- with // it has room for one
		return nil
	}
	a.release(with.cost)
	if id <= 0 || id > a.lastID {
		return violationf("there was no call %d to answer", id)
	}
	return nil
}

// watch ends the code when the server stops.
func (a *attendance) watch() {
	select {
	case <-a.ctx.Done():
	case <-a.handler.Stopping:
		a.end(ErrStopping)
	}
}

// beat ends the code of a client that is gone. It is separate from watch because a client that reads nothing for a
// while, for example while it computes, answers no ping until then.
func (a *attendance) beat() {
	heartbeat := time.NewTicker(a.handler.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-heartbeat.C:
			ctx, cancel := context.WithTimeout(a.ctx, a.handler.TransferTimeout)
			err := a.conn.Ping(ctx)
			cancel()
			if err != nil && a.ctx.Err() == nil {
				a.end(ErrLeft)
				return
			}
		}
	}
}

// send sends a message. When the client does not read it in time, the code ends.
func (a *attendance) send(m runtimev1.CodeServerMessage) error {
	body, err := call.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > runtimev1.MaxCodeMessageBytes {
		return errTooLarge
	}
	ctx, cancel := context.WithTimeout(a.call.Context(), a.handler.TransferTimeout)
	defer cancel()
	if err := a.conn.Write(ctx, websocket.MessageText, a.call.Clean(body)); err != nil {
		a.end(errDeaf)
		return err
	}
	return nil
}

// errTooLarge is the error for code that sends more than one message can hold.
var errTooLarge = &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("the value is too large: a message holds at most %d MiB", runtimev1.MaxCodeMessageBytes>>20)}

// marshalBounded is values.Marshal with an error for a value that does not fit into one message.
func marshalBounded(v any) (json.RawMessage, error) {
	raw, err := values.Marshal(v)
	if err == nil && len(raw) > runtimev1.MaxCodeMessageBytes-(64<<10) { // leaves room for the rest of the result
		err = errTooLarge
	}
	return raw, err
}

// finish sends the last message and closes the connection.
func (a *attendance) finish(last runtimev1.CodeServerMessage) {
	if a.send(last) != nil {
		return
	}
	code := websocket.StatusNormalClosure
	if errors.Is(context.Cause(a.ctx), ErrStopping) {
		code = websocket.StatusGoingAway
	}
	_ = a.conn.Close(code, "")
}
