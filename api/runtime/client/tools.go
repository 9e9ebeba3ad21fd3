package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// InvokeTool calls a tool of the thread's agent beside the conversation and waits for its result (TOL-01). args must
// encode as a JSON object; nil means {}. The result says whether the tool failed. An error means that the tool was
// not called: ErrNotFound when the agent has no such tool, ErrTerminated, ErrUnavailable when the agent is not ready.
// Ending ctx ends the call.
func (t *Thread) InvokeTool(ctx context.Context, name string, args any) (*runtimev1.ToolResult, error) {
	return t.callTool(ctx, name, args, runtimev1.ToolInvoke)
}

// QueueTool adds a tool call to the current execution, or starts one, and does not wait (TOL-01). The call and its
// result become messages of the conversation. Errors are those of InvokeTool.
func (t *Thread) QueueTool(ctx context.Context, name string, args any) error {
	_, err := t.callTool(ctx, name, args, runtimev1.ToolQueue)
	return err
}

func (t *Thread) callTool(ctx context.Context, name string, args any, mode string) (*runtimev1.ToolResult, error) {
	req := runtimev1.ToolRequest{Mode: mode}
	if args != nil {
		var err error
		if req.Arguments, err = json.Marshal(args); err != nil {
			return nil, fmt.Errorf("%w: the arguments cannot be written as JSON: %w", ErrInvalid, err)
		}
	}
	return sendAs[runtimev1.ToolResult](ctx, t, http.MethodPost, req, runtimev1.SubresourceTools, name)
}

// LoadModel returns the definition of a model of the namespace as JSON: its name and spec, without secrets (AGT-07).
// It returns ErrNotFound when there is none of that name.
func (t *Thread) LoadModel(ctx context.Context, name string) (json.RawMessage, error) {
	return t.load(ctx, runtimev1.DefinitionModels, name)
}

// LoadPrompt returns the definition of a prompt, as LoadModel does for models.
func (t *Thread) LoadPrompt(ctx context.Context, name string) (json.RawMessage, error) {
	return t.load(ctx, runtimev1.DefinitionPrompts, name)
}

// LoadAgent returns the definition of an agent, as LoadModel does for models.
func (t *Thread) LoadAgent(ctx context.Context, name string) (json.RawMessage, error) {
	return t.load(ctx, runtimev1.DefinitionAgents, name)
}

func (t *Thread) load(ctx context.Context, kind, name string) (json.RawMessage, error) {
	var d json.RawMessage
	err := t.getAt(ctx, &d, nil, runtimev1.SubresourceDefinitions, kind, name)
	return d, err
}

// ModelNames returns the names of the models of the namespace, sorted (AGT-07).
func (t *Thread) ModelNames(ctx context.Context) ([]string, error) {
	return t.names(ctx, runtimev1.DefinitionModels)
}

// PromptNames returns the names of the prompts of the namespace, sorted.
func (t *Thread) PromptNames(ctx context.Context) ([]string, error) {
	return t.names(ctx, runtimev1.DefinitionPrompts)
}

// AgentNames returns the names of the agents of the namespace, sorted.
func (t *Thread) AgentNames(ctx context.Context) ([]string, error) {
	return t.names(ctx, runtimev1.DefinitionAgents)
}

func (t *Thread) names(ctx context.Context, kind string) ([]string, error) {
	names := []string{}
	for name, err := range pages(func(offset int) ([]string, bool, error) {
		var l runtimev1.DefinitionNames
		err := t.getAt(ctx, &l, Page{Limit: runtimev1.MaxPageSize, Offset: offset}.params(), runtimev1.SubresourceDefinitions, kind)
		return l.Names, l.HasMore, err
	}) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Emit sends an event to every client that follows the thread (EVT-01). data must encode as JSON, at most 1 MiB.
// event must have at most 100 letters, digits, "_", "-", "." and ":", and begin with a letter; otherwise Emit returns
// ErrInvalid. The log contains the event with the type "event:<name>".
func (t *Thread) Emit(ctx context.Context, event string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("%w: the data of event %q cannot be written as JSON: %w", ErrInvalid, event, err)
	}
	return t.send(ctx, http.MethodPost, runtimev1.NewEvent{Event: event, Data: raw}, nil, runtimev1.SubresourceEvents)
}

// Execution returns the current run, or nil when the thread rests (RUN-03).
func (t *Thread) Execution(ctx context.Context) (*Execution, error) {
	var s *runtimev1.ExecutionState
	if err := t.getAt(ctx, &s, nil, runtimev1.SubresourceExecution); err != nil || s == nil {
		return nil, err
	}
	return &Execution{ExecutionState: *s, thread: t}, nil
}

// Execution is the current run, as it was at the time of the request.
type Execution struct {
	runtimev1.ExecutionState
	thread *Thread
}

// Stop ends the current run, not the thread. message says why, for people.
func (e *Execution) Stop(ctx context.Context, message string) error {
	_, err := e.thread.Stop(ctx, message)
	return err
}

// absent reports whether an error means that something does not exist.
func absent(err error) bool { return apierrors.IsNotFound(err) }
