package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/value"
)

// maxOpenModelCalls bounds how many models the code of one handler call may ask at the same time.
const maxOpenModelCalls = 16

// ModelCalls are the model calls of one call of a handler. It may ask the models that its side lists, and no others.
// mu guards the fields below it.
type ModelCalls struct {
	run  ModelsPort
	side *definition.Side
	// fault marks a point around an outside call, for crash tests.
	fault func(point string)

	mu    sync.Mutex
	last  int64
	calls map[int64]*modelCall
	made  int
	usage *model.Usage
	names []string // of the Models that answered
	// trimmed is the last answer whose model did not read the whole request; nil when there was none since the last take.
	trimmed *model.Response
	cause   *failure.Error // of the last call that failed
}

// ModelsPort is what calls of models need of their run.
type ModelsPort interface {
	// Client returns a client for a model of the agent.
	Client(m *definition.Model) (model.Client, error)
	// MaxSteps returns how many models the code may ask in one call of a handler.
	MaxSteps() int
	// Arguments returns the arguments of the thread.
	Arguments() json.RawMessage
	// Fault returns what is called around outside calls.
	Fault() func(point string)
	// Log returns the log of the run.
	Log() logr.Logger
}

// NewModelCalls returns the model calls of a handler's call that has not begun.
func NewModelCalls(r ModelsPort, s *definition.Side) *ModelCalls {
	return &ModelCalls{run: r, side: s, fault: r.Fault(), calls: map[int64]*modelCall{}}
}

// Take returns what the calls have used since the last take: the usage (nil when no provider reported it), the names
// of the Models that answered, and the last answer of one that did not read the whole request.
func (m *ModelCalls) Take() (usage *model.Usage, names []string, trimmed *model.Response) {
	m.mu.Lock()
	defer m.mu.Unlock()
	usage, names, trimmed = m.usage, m.names, m.trimmed
	m.usage, m.names, m.trimmed = nil, nil, nil
	return usage, names, trimmed
}

// LastFailure returns why the last call that failed did so; nil for none.
func (m *ModelCalls) LastFailure() *failure.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}

// modelCall is one answer under way. Its pieces are kept until the code takes them. mu guards the fields below it.
type modelCall struct {
	cancel context.CancelFunc // also returns the memory of the answer

	mu              sync.Mutex
	text, reasoning strings.Builder
	reset           bool
	done            bool
	answer          map[string]any
	err             error
	changed         chan struct{} // closed when there is something to take
}

// asked is a request in the form in which the module "ai" makes it.
type asked struct {
	Provider   string         `json:"provider"`
	Model      string         `json:"model"`
	Messages   []askedMessage `json:"messages"`
	Tools      []model.Tool   `json:"tools"`
	ToolChoice string         `json:"toolChoice"`
	Schema     any            `json:"schema"`
	SchemaName string         `json:"schemaName"`
}

type askedMessage struct {
	Role       string           `json:"role"`
	Content    string           `json:"content"`
	Name       string           `json:"name"`
	ToolCallID string           `json:"toolCallId"`
	ToolCalls  []model.ToolCall `json:"toolCalls"`
	Metadata   map[string]any   `json:"metadata"` // metadata of an earlier answer
}

// open begins a call and returns its number.
func (m *ModelCalls) open(ctx context.Context, args []any) (any, error) {
	given, _ := argument(args, 0).(map[string]any)
	req, named, err := m.request(given)
	if err != nil {
		return nil, err
	}
	client, err := m.run.Client(named)
	if err != nil {
		return nil, m.fails(ctx, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch limit := m.run.MaxSteps(); {
	case len(m.calls) >= maxOpenModelCalls:
		return nil, &sandbox.Error{Name: "RangeError", Message: fmt.Sprintf("the handler already asks %d models at the same time, which is the limit: wait until one has answered", maxOpenModelCalls)}
	case m.made >= limit:
		m.cause = failure.New(skeinv1.ReasonMaxStepsReached, "the handler has asked models %d times, which is its side's limit (maxSteps)", limit)
		return nil, &sandbox.Error{Name: "ModelError", Message: m.cause.Message}
	}
	m.made++
	m.last++
	call := &modelCall{changed: make(chan struct{})}
	// The call outlives this host call, and so does its memory: until the code has the answer, closes the call, or ends.
	ctx, over := membudget.Part(ctx)
	ctx, call.cancel = context.WithCancel(ctx)
	context.AfterFunc(ctx, over)
	m.calls[m.last] = call
	go m.serve(ctx, call, client, req, named)
	return m.last, nil
}

// request reads a request of code, and returns it with the model that is to answer.
func (m *ModelCalls) request(given map[string]any) (model.Request, *definition.Model, error) {
	var a asked
	images := takeImages(given)
	if err := value.Into(given, &a); err != nil {
		return model.Request{}, nil, &sandbox.Error{Name: "TypeError", Message: "the request for a model: " + err.Error()}
	}
	named := m.side.Handler.Models[a.Provider+"/"+a.Model]
	if named == nil {
		named = m.side.Handler.Models[a.Model]
	}
	if named == nil {
		return model.Request{}, nil, m.unknownModelError(&a)
	}
	req := model.Request{Arguments: m.run.Arguments(), ToolChoice: model.ToolChoice(a.ToolChoice), Tools: a.Tools, SchemaName: a.SchemaName}
	if a.Schema != nil {
		raw, err := json.Marshal(a.Schema)
		if err != nil {
			return model.Request{}, nil, err
		}
		req.Schema = raw
	}
	for i, msg := range a.Messages {
		req.Messages = append(req.Messages, model.Message{
			Role: model.Role(msg.Role), Content: msg.Content, Name: msg.Name, ToolCallID: msg.ToolCallID, ToolCalls: msg.ToolCalls, Images: images[i],
			Metadata: msg.Metadata,
		})
	}
	return req, named, nil
}

// unknownModelError returns the error for code that asks a model which its agent does not name.
func (m *ModelCalls) unknownModelError(a *asked) error {
	name := a.Model
	if a.Provider != "" {
		name = a.Provider + "/" + name
	}
	return &sandbox.Error{Name: "ReferenceError", Message: fmt.Sprintf(
		"this agent may not ask the model %q: add {name: %s, modelRef: {name: …}} to handler.models of the Agent's side, with the Model that is to answer", name, a.Model)}
}

// takeImages removes the images from the messages of a request and returns them by message. Their bytes cannot be
// represented in JSON.
func takeImages(given map[string]any) map[int][]model.Image {
	list, _ := given["messages"].([]any)
	out := map[int][]model.Image{}
	for i, item := range list {
		message, _ := item.(map[string]any)
		images, _ := message["images"].([]any)
		delete(message, "images")
		for _, entry := range images {
			image, _ := entry.(map[string]any)
			data, ok := image["data"].([]byte)
			if !ok {
				continue
			}
			mime, _ := image["mimeType"].(string)
			out[i] = append(out[i], model.Image{MimeType: mime, Read: func(context.Context) ([]byte, error) { return data, nil }})
		}
	}
	return out
}

func (m *ModelCalls) serve(ctx context.Context, call *modelCall, client model.Client, req model.Request, named *definition.Model) {
	m.fault("model.before")
	res, err := m.stream(ctx, client, req, call.emit)
	if err == nil {
		m.count(res, named)
	}
	m.fault("model.after")
	call.mu.Lock()
	defer call.mu.Unlock()
	call.done = true
	if err != nil {
		call.err = m.fails(ctx, err)
	} else {
		call.answer = answerOf(res, named)
	}
	call.wake()
}

// stream asks a model. A panic is the failure of this call: nothing else on its goroutine would recover it, and the manager would end.
func (m *ModelCalls) stream(ctx context.Context, client model.Client, req model.Request, emit func(model.Delta)) (res *model.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			m.run.Log().Error(fmt.Errorf("panic: %v", p), "the call of a model by a handler failed because the engine panicked", "stack", string(debug.Stack()))
			err = model.Errorf(model.KindFailed, "internal error: see the manager's log")
		}
	}()
	return client.Stream(ctx, req, emit)
}

// count adds an answer to what the call of the handler has used.
func (m *ModelCalls) count(res *model.Response, named *definition.Model) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name := cmp.Or(res.Model, named.Name); !slices.Contains(m.names, name) {
		m.names = append(m.names, name)
	}
	if t := res.Trimmed; t != nil && (t.LeftOut > 0 || t.Shortened > 0) {
		m.trimmed = res
	}
	if res.Usage == nil {
		return
	}
	sum := *res.Usage
	if m.usage != nil {
		sum = m.usage.Add(sum)
	}
	m.usage = &sum
}

// fails records the failure of a call, and returns the error that the code sees.
func (m *ModelCalls) fails(ctx context.Context, err error) error {
	err = failure.OfModel(ctx, err)
	var f *failure.Error
	if !errors.As(err, &f) {
		return err
	}
	m.mu.Lock()
	m.cause = f
	m.mu.Unlock()
	return &sandbox.Error{Name: "ModelError", Message: f.Message}
}

// answerOf returns a whole answer in the form in which it crosses into the sandbox.
func answerOf(res *model.Response, named *definition.Model) map[string]any {
	calls := make([]any, 0, len(res.ToolCalls))
	for i, c := range res.ToolCalls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d", i+1)
		}
		calls = append(calls, map[string]any{"id": id, "name": c.Name, "arguments": c.Arguments})
	}
	usage := map[string]any{}
	if u := res.Usage; u != nil {
		usage = map[string]any{
			"inputTokens": u.InputTokens, "outputTokens": u.OutputTokens, "totalTokens": u.InputTokens + u.OutputTokens,
			"cachedInputTokens": u.CachedTokens, "reasoningTokens": u.ReasoningTokens,
		}
	}
	finish := res.FinishReason
	if finish == "" {
		finish = "stop"
	}
	return map[string]any{
		"text": res.Content, "reasoning": res.Reasoning, "toolCalls": calls, "usage": usage, "model": cmp.Or(res.Model, named.Name), "metadata": res.Metadata,
		"finishReason": strings.ReplaceAll(finish, "_", "-"),
	}
}

// emit adds a piece of the answer.
func (c *modelCall) emit(d model.Delta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Reset {
		c.text.Reset()
		c.reasoning.Reset()
		c.reset = true
	}
	c.text.WriteString(d.Text)
	c.reasoning.WriteString(d.Reasoning)
	c.wake()
}

// wake wakes the code that waits for the answer. The caller holds mu.
func (c *modelCall) wake() {
	select {
	case <-c.changed:
	default:
		close(c.changed)
	}
}

// next waits for new pieces of an answer and returns those that came since the last call, at the end with the whole
// answer.
func (m *ModelCalls) next(ctx context.Context, args []any) (any, error) {
	id, _ := argument(args, 0).(float64)
	var call *modelCall
	if m != nil {
		m.mu.Lock()
		call = m.calls[int64(id)]
		m.mu.Unlock()
	}
	if call == nil {
		return nil, errors.New("there is no such model call any more: it has ended or was closed")
	}
	call.mu.Lock()
	changed := call.changed
	call.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	call.mu.Lock()
	defer call.mu.Unlock()
	if call.done {
		m.mu.Lock()
		delete(m.calls, int64(id))
		m.mu.Unlock()
		call.cancel()
		if call.err != nil {
			return nil, call.err
		}
	}
	out := map[string]any{
		"text": strings.ToValidUTF8(call.text.String(), ""), "reasoning": strings.ToValidUTF8(call.reasoning.String(), ""),
		"reset": call.reset, "done": call.done, "answer": call.answer,
	}
	call.text.Reset()
	call.reasoning.Reset()
	call.reset = false
	if !call.done {
		call.changed = make(chan struct{})
	}
	return out, nil
}

// close abandons a call.
func (m *ModelCalls) close(args []any) (any, error) {
	id, _ := argument(args, 0).(float64)
	if m == nil {
		return nil, nil
	}
	m.mu.Lock()
	call := m.calls[int64(id)]
	delete(m.calls, int64(id))
	m.mu.Unlock()
	if call != nil {
		call.cancel()
	}
	return nil, nil
}

func argument(args []any, i int) any {
	if i >= len(args) {
		return nil
	}
	return args[i]
}
