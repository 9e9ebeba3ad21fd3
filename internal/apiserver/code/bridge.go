package code

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/sandbox"
)

// maxBridged bounds the functions that a client provides to one execution.
const maxBridged = 1000

// request decodes the request in the first message.
func (a *attendance) request(raw json.RawMessage) (sandbox.CodeRequest, error) {
	var in runtimev1.CodeRun
	name := a.call.Name
	if err := call.DecodeStrict(name, raw, &in); err != nil {
		return sandbox.CodeRequest{}, err
	}
	if in.Source == "" {
		return sandbox.CodeRequest{}, status.Invalid(name, metav1.CauseTypeFieldValueRequired, "source", "set it to the source of an ES module")
	}
	req, err := codeRequest(name, &in.CodeRequest, values.Unmarshal)
	if err != nil {
		return req, err
	}
	if len(in.Functions) > maxBridged {
		return req, status.Invalid(name, metav1.CauseTypeTooMany, "functions", "at most 1000 functions may be provided")
	}
	for _, f := range in.Functions {
		if err := a.bridge(&req, f); err != nil {
			return req, err
		}
	}
	req.Report, req.Log = a.report, a.log
	return req, nil
}

// bridge makes a function of the client callable from the code.
func (a *attendance) bridge(req *sandbox.CodeRequest, f runtimev1.CodeFunction) error {
	bindings := req.Globals
	if f.Import != "" {
		bindings = req.Imports[f.Import]
	}
	if _, twice := bindings[f.Name]; twice {
		return status.Invalid(a.call.Name, metav1.CauseTypeFieldValueDuplicate, "functions", "\""+f.Name+"\" is given twice: as a value and a function, or two functions")
	}
	if bindings == nil {
		bindings = map[string]sandbox.Binding{}
	}
	bindings[f.Name] = sandbox.Binding{Func: func(ctx context.Context, args []any) (any, error) { return a.ask(ctx, f, args) }}
	if f.Import == "" {
		req.Globals = bindings
		return nil
	}
	if req.Imports == nil {
		req.Imports = map[string]map[string]sandbox.Binding{}
	}
	req.Imports[f.Import] = bindings
	return nil
}

// ask makes the client execute a call and returns its reply.
func (a *attendance) ask(ctx context.Context, f runtimev1.CodeFunction, args []any) (any, error) {
	m := runtimev1.CodeServerMessage{Type: runtimev1.CodeMessageCall, Function: &f, Args: make([]json.RawMessage, len(args))}
	for i, arg := range args {
		var err error
		if m.Args[i], err = values.Marshal(arg); err != nil {
			return nil, err
		}
	}
	waiter := make(chan reply, 1)
	a.mu.Lock()
	a.lastID++
	m.ID = a.lastID
	a.waiting[m.ID] = waiter
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.waiting, m.ID)
		a.mu.Unlock()
		select {
		case unread := <-waiter:
			a.release(unread.cost)
		default:
		}
	}()
	if err := a.send(m); err != nil {
		return nil, err
	}
	select {
	case got := <-waiter:
		a.release(got.cost) // the sandbox's client encodes the value at once, and draws what that takes
		return got.value, got.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-a.ctx.Done():
		return nil, context.Cause(a.ctx)
	}
}

// report and log forward what the code emits. Reports wait for a slow client. A client that is too slow ends the
// code.
func (a *attendance) report(v any) {
	raw, err := marshalBounded(v)
	if err != nil {
		a.end(&EndedError{"a report cannot be sent: " + err.Error()})
		return
	}
	_ = a.send(runtimev1.CodeServerMessage{Type: runtimev1.CodeMessageReport, Value: raw})
}

func (a *attendance) log(l sandbox.Log) {
	out := codeLog(l)
	_ = a.send(runtimev1.CodeServerMessage{Type: runtimev1.CodeMessageLog, Log: &out})
}
