package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

type noChildren struct{}

func (noChildren) List(context.Context, *store.Thread) ([]skeinv1.ChildStatus, error) {
	return nil, nil
}

func (noChildren) Entry(context.Context, *store.Thread, string) (*skeinv1.ChildStatus, error) {
	return nil, store.ErrNotFound
}

type noObjects struct{ family.Objects }

type noEffects struct{ apiserver.Effects }

// Next implements effects.Effects.
func (noEffects) Next(context.Context, string, string, int) ([]int64, error) { return nil, nil }

// ID is made of the namespace and the name, so that specs can store firings under it.
func (noEffects) ID(_ context.Context, namespace, name string) (string, error) {
	return "effect-" + namespace + "-" + name, nil
}

func (*echo) Queue(ctx context.Context, st *thread.State, _ *store.Thread, n thread.NewMessage, _ skeinv1.RunPolicy) (*store.Message, error) {
	return st.Queue(ctx, n)
}

// echo replaces an engine: it takes queued messages and answers them. "fail" gets a run that fails.
type echo struct {
	apiserver.External
	svc  *thread.Service
	mu   sync.Mutex
	runs int
	// free lets messages that begin with "wait" be taken.
	free atomic.Bool
	// approvals wait in every thread.
	approvals []approval.Call
	// held is open while calls of the tool slow and requests to /slow wait; nil when none do.
	held chan struct{}
	// ended receives why code ended that ends only when it is ended.
	ended chan error
}

// Approvals returns pages of one call, as if their arguments were large.
func (e *echo) Approvals(_ context.Context, _ string, p approval.Page) (calls []approval.Call, more bool, err error) {
	rest := e.approvals[min(p.Offset, len(e.approvals)):]
	return rest[:min(len(rest), 1)], len(rest) > 1, nil
}

func (e *echo) MessageHooks(context.Context, *store.Thread) thread.MessageHooks { return nil }

func (e *echo) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	work := make(chan string, 100)
	unsubscribe := e.svc.Store().Subscribe(func(h store.Notification) {
		if h.Changed&store.ChangedInbox != 0 {
			work <- h.ThreadID
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case id := <-work:
				e.turn(ctx, id)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { unsubscribe(); cancel(); <-done }
}

func (e *echo) turn(ctx context.Context, id string) {
	defer GinkgoRecover()
	items, err := e.svc.Store().Inbox(ctx, id)
	if err != nil || len(items) == 0 {
		return
	}
	for _, item := range items {
		if item.Kind != store.InboxMessage {
			continue // only a run that waits needs it
		}
		var m store.Message
		Expect(json.Unmarshal(item.Payload, &m)).To(Succeed())
		if strings.HasPrefix(*m.Content, "wait") && !e.free.Load() {
			continue
		}
		e.mu.Lock()
		e.runs++
		r := store.Run{ID: fmt.Sprintf("sess_%032x", e.runs), ThreadID: id, Agent: "helper", Status: store.RunRunning, StartedAt: time.Now().UnixMicro()}
		e.mu.Unlock()
		m.RunID = r.ID
		say := "echo: " + *m.Content
		var others []store.Op
		if *m.Content == "in a crowd" {
			others = append(others, &store.AppendMessage{Message: &store.Message{Role: store.RoleAssistant, Content: ptr.To("by somebody else")}})
		}
		call := &store.Message{Role: store.RoleAssistant, RunID: r.ID, ToolCalls: []store.ToolCall{{ID: "c", Name: "look", Arguments: `{"x":1}`}}}
		result := &store.Message{Role: store.RoleTool, Name: "look", RunID: r.ID, ToolCallID: "c", ToolStatus: "success", Content: ptr.To("seen")}
		answer := &store.Message{Role: store.RoleAssistant, RunID: r.ID, Content: &say}
		ended := r
		ended.Status, ended.EndedAt, ended.Steps = store.RunSucceeded, time.Now().UnixMicro(), 2
		switch *m.Content {
		case "fail":
			ended.Status, ended.Reason, ended.Message = store.RunFailed, "ModelTimeout", "the model took too long"
		case "stop":
			ended.Status, ended.Reason = store.RunStopped, "StoppedByUser"
		}
		ops := append([]store.Op{&store.PutRun{Run: r}, &store.AppendMessage{Message: &m}, &store.Dequeue{Seqs: []int64{item.Seq}}}, others...)
		Expect(e.svc.Store().Apply(ctx, id, nil, append(ops,
			&store.AppendMessage{Message: call}, &store.AppendMessage{Message: result},
			&store.AppendEvent{Event: store.Event{Type: store.EventDelta, RunID: r.ID, Data: []byte(`{"text":"echo: "}`)}},
			&store.AppendMessage{Message: answer}, &store.PutRun{Run: ended})...)).To(Succeed())
	}
}

func (e *echo) Terminate(ctx context.Context, id, reason string) error {
	st, err := e.svc.Open(ctx, id)
	if err != nil {
		return err
	}
	return st.Terminate(ctx, reason)
}

func (e *echo) Destroy(ctx context.Context, id string) error {
	return e.svc.Store().Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit})
}

func (*echo) Stop(context.Context, string, string) error { return nil }

func (e *echo) RunCode(ctx context.Context, _ string, req sandbox.CodeRequest) (sandbox.Result, error) {
	if strings.Contains(req.Source, "for (;;)") {
		req.Report("on")
		<-ctx.Done()
		e.ended <- context.Cause(ctx)
		return sandbox.Result{Status: sandbox.StatusTerminated, Error: &sandbox.Error{Name: "Terminated", Message: context.Cause(ctx).Error()}}, nil
	}
	if strings.Contains(req.Source, "slow") {
		e.wait(ctx)
		return sandbox.Result{Status: sandbox.StatusSuccess, Value: "slow"}, nil
	}
	if strings.Contains(req.Source, "throw") {
		return sandbox.Result{Status: sandbox.StatusError, Error: &sandbox.Error{Name: "Error", Message: "no", Stack: "at " + req.Filename + ":1:1"}}, nil
	}
	req.Log(sandbox.Log{Level: "warn", Message: "careful"})
	v := map[string]any{"fn": req.Fn, "args": req.Args, "language": string(req.Language)}
	if len(req.Globals) > 0 {
		v["limit"], v["modules"], v["memory"] = req.Globals["limit"].Value, req.Modules, req.MemoryLimitBytes
	}
	return sandbox.Result{Status: sandbox.StatusSuccess, Value: v}, nil
}

// hold makes calls that are slow wait until release is called.
func (e *echo) hold() (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := make(chan struct{})
	e.held = held
	return sync.OnceFunc(func() { close(held) })
}

func (e *echo) wait(ctx context.Context) {
	e.mu.Lock()
	held := e.held
	e.mu.Unlock()
	select {
	case <-held:
	case <-ctx.Done():
	}
}

func (e *echo) InvokeTool(ctx context.Context, _, _, name string, args json.RawMessage) (tool.Result, error) {
	if name == "slow" {
		e.wait(ctx)
	}
	if name == "bad" {
		return tool.Failure("no good"), nil
	}
	res := tool.Success(name + "(" + string(args) + ")")
	res.Logs = []store.CodeLine{{Level: "info", Message: "called", Time: 5}}
	return res, nil
}

// ServeEndpoint answers with the request. A path with "teapot" gets that status.
func (e *echo) ServeEndpoint(ctx context.Context, _ string, req endpoints.Request, to endpoints.Answer) error {
	if req.Path[0] == "slow" {
		e.wait(ctx)
	}
	if req.Path[0] == "none" {
		return &definition.UnknownError{Message: "no endpoint has the path /none"}
	}
	status := 200
	if req.Path[0] == "teapot" {
		status = 418
	}
	asked, err := json.Marshal(map[string]any{"method": req.Method, "path": req.Path, "body": string(req.Body), "query": req.URL[strings.Index(req.URL, "?")+1:], "headers": req.Headers})
	if err != nil {
		return err
	}
	if err := to.Head("echo", status, [][2]string{{"content-type", "application/json"}}); err != nil {
		return err
	}
	return to.Write(asked)
}

func (*echo) QueueTool(context.Context, string, string, string, json.RawMessage) error { return nil }
