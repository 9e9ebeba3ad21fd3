package engine

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// InvokeTool calls a tool of the thread's agent outside of a run and returns its result (TOL-01), as
// executions.Service.InvokeTool does.
func (e *Engine) InvokeTool(ctx context.Context, threadID, key, name string, args json.RawMessage) (tool.Result, error) {
	return e.executions.InvokeTool(ctx, threadID, key, name, args)
}

// QueueTool queues a call of a tool and does not wait for it (TOL-01), as executions.Service.QueueTool does.
func (e *Engine) QueueTool(ctx context.Context, threadID, key, name string, args json.RawMessage) error {
	return e.executions.QueueTool(ctx, threadID, key, name, args)
}

// NotifyParent queues a silent message on the parent of a thread (SUB-05), as executions.Service.NotifyParent does.
func (e *Engine) NotifyParent(ctx context.Context, threadID, key, content string) error {
	return e.executions.NotifyParent(ctx, threadID, key, content)
}

// SetStatus changes the status that the parent's registry shows for a thread (SUB-05), as executions.Service.SetStatus does.
func (e *Engine) SetStatus(ctx context.Context, threadID, status string) error {
	return e.executions.SetStatus(ctx, threadID, status)
}

// RunCode runs code in the thread's sandbox, in an isolate of its own (COD-01), as executions.Service.RunCode does.
func (e *Engine) RunCode(ctx context.Context, threadID string, req sandbox.CodeRequest) (sandbox.Result, error) {
	return e.executions.RunCode(ctx, threadID, req)
}

// SearchMemory returns messages of the threads that have the agent and the user of t, or no user if t has none (RUN-08), as
// memory.Service.Search does.
func (e *Engine) SearchMemory(ctx context.Context, t *store.Thread, q tool.MemoryQuery) ([]store.NearMessage, error) {
	return e.memory.Search(ctx, t, q)
}

// DefinitionNames returns the names of the definitions of a kind in a namespace. kind is "agent", "prompt" or "model"
// (AGT-07).
func (e *Engine) DefinitionNames(ctx context.Context, namespace, kind string) ([]string, error) {
	return e.opts.Definitions.Names(ctx, namespace, kind)
}

// Definition returns a definition of a namespace as plain JSON without secrets, or an *UnknownError when there is
// none.
func (e *Engine) Definition(ctx context.Context, namespace, kind, name string) (json.RawMessage, error) {
	return e.opts.Definitions.Load(ctx, namespace, kind, name)
}
