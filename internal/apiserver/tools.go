package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/approval"
	"github.com/skein-dev/skein/internal/engine/endpoints"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// Outside is what the engine does for users of ThreadState outside a run.
type Outside interface {
	// MessageHooks returns the hooks that writes of messages pass (HOK-01), or nil.
	MessageHooks(ctx context.Context, t *store.Thread) thread.MessageHooks
	InvokeTool(ctx context.Context, threadID, key, name string, args json.RawMessage) (tool.Result, error)
	QueueTool(ctx context.Context, threadID, key, name string, args json.RawMessage) error
	NotifyParent(ctx context.Context, threadID, key, content string) error
	SetStatus(ctx context.Context, threadID, status string) error
	ServeEndpoint(ctx context.Context, threadID string, req endpoints.Request, to endpoints.Answer) error
	Stopping(threadID string) bool
	// CancelRun ends one run of a thread (RUN-10).
	CancelRun(ctx context.Context, threadID, runID, reason string) error
	// Queue queues a message with a policy (RUN-09).
	Queue(ctx context.Context, st *thread.State, t *store.Thread, n thread.NewMessage, policy skeinv1.RunPolicy) (*store.Message, error)
	// Approvals and Decide handle tool calls that wait for a person (RUN-11).
	Approvals(ctx context.Context, threadID string) ([]approval.Call, error)
	Decide(ctx context.Context, threadID, callID string, d store.Approval) (*approval.Call, error)
	// CheckSkill checks the arguments of a skill against the schema that the thread's agent has for it (AGT-08).
	CheckSkill(ctx context.Context, t *store.Thread, a store.SkillActivation) (wrong string, err error)
	// SearchMemory searches earlier messages (RUN-08).
	SearchMemory(ctx context.Context, t *store.Thread, q tool.MemoryQuery) ([]store.NearMessage, error)
	DefinitionNames(ctx context.Context, namespace, kind string) ([]string, error)
	Definition(ctx context.Context, namespace, kind, name string) (json.RawMessage, error)
}

// callTool answers POST tools/{name}: invokeTool and queueTool (TOL-01). A request that waits for a result lasts as
// long as the call, and a client that disconnects ends the call.
func (s *Server) callTool(c *call) error {
	if len(c.path) != 1 {
		return noSuchPath(c.r)
	}
	var in runtimev1.ToolRequest
	if err := c.decode(&in, true); err != nil {
		return err
	}
	args, err := objectOf(c.name, "arguments", in.Arguments)
	if err != nil {
		return err
	}
	ctx, key := c.r.Context(), c.idempotencyKey(in.IdempotencyKey)
	out := runtimev1.ToolResult{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindToolResult)}
	switch in.Mode {
	case runtimev1.ToolQueue:
		if err := s.opts.Engine.QueueTool(ctx, c.row.ID, key, c.path[0], args); err != nil {
			return err
		}
		out.Status = runtimev1.ToolQueued
		return c.writeJSON(http.StatusAccepted, out)
	case "", runtimev1.ToolInvoke:
		res, err := s.opts.Engine.InvokeTool(ctx, c.row.ID, key, c.path[0], args)
		if err != nil {
			return err
		}
		out.Status = string(res.Status)
		if res.Status == tool.StatusError {
			out.Error = res.Content
		} else {
			out.Result = res.Content
		}
		out.Attachments = mapped(res.Attachments, func(a store.Attachment) runtimev1.Attachment { return runtimev1.Attachment(a) })
		out.Logs = mapped(res.Logs, func(l store.CodeLine) runtimev1.CodeLog {
			return runtimev1.CodeLog{Level: l.Level, Message: l.Message, Time: l.Time}
		})
		return c.writeJSON(http.StatusOK, out)
	}
	return invalid(c.name, metav1.CauseTypeFieldValueNotSupported, "mode", "it must be invoke, which waits for the result, or queue, which does not")
}

// objectOf returns a field that must be a JSON object, or {} when it is absent.
func objectOf(name, field string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, invalid(name, metav1.CauseTypeTypeInvalid, field, "it must be a JSON object; or leave it out")
	}
	return raw, nil
}

// definitionKinds maps the kinds in the URL to their names in the engine.
var definitionKinds = map[string]string{
	runtimev1.DefinitionModels: "model", runtimev1.DefinitionPrompts: "prompt", runtimev1.DefinitionAgents: "agent",
}

// getDefinitions answers GET definitions/{kind} with names, and GET definitions/{kind}/{name} with the definition
// without secrets (AGT-07).
func (s *Server) getDefinitions(c *call) error {
	kind, ok := definitionKinds[c.path[0]]
	if !ok {
		return notFound(c.name, "unknown kind definitions/%s: use definitions/models, definitions/prompts or definitions/agents", c.path[0])
	}
	switch len(c.path) {
	case 1:
		return s.listDefinitions(c, kind)
	case 2:
		d, err := s.opts.Engine.Definition(c.r.Context(), c.namespace, kind, c.path[1])
		if err != nil {
			return err
		}
		return c.writeJSON(http.StatusOK, d)
	}
	return noSuchPath(c.r)
}

func (s *Server) listDefinitions(c *call, kind string) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	limit, offset := q.page()
	if err := q.check(); err != nil {
		return err
	}
	all, err := s.opts.Engine.DefinitionNames(c.r.Context(), c.namespace, kind)
	if err != nil {
		return err
	}
	page, more := cut(all, limit, offset)
	return c.writeJSON(http.StatusOK, runtimev1.DefinitionNames{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindDefinitionNames), Names: page, HasMore: more,
	})
}

// emitEvent answers POST events: the event reaches every client that follows the thread (EVT-01).
func (s *Server) emitEvent(c *call) error {
	var in runtimev1.NewEvent
	if err := c.decode(&in, false); err != nil {
		return err
	}
	if len(in.Data) == 0 {
		in.Data = json.RawMessage("null")
	}
	if err := c.thread.Emit(c.r.Context(), in.Event, in.Data); err != nil {
		return err
	}
	return c.writeSuccess()
}

// getExecution answers GET execution: the current run, or null when the thread rests (RUN-03).
func (s *Server) getExecution(c *call) error {
	run, err := s.opts.Threads.Store().Run(c.r.Context(), c.row.ID, "")
	if errors.Is(err, store.ErrNotFound) || err == nil && run.Status.Ended() {
		return c.writeJSON(http.StatusOK, nil)
	}
	if err != nil {
		return err
	}
	x := executionOf(run)
	x.Stopped = s.opts.Engine.Stopping(c.row.ID)
	return c.writeJSON(http.StatusOK, x)
}

func executionOf(r *store.Run) *runtimev1.ExecutionState {
	now := engine.Progress(r)
	return &runtimev1.ExecutionState{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindExecutionState),
		FlowID:   r.ID, Agent: r.Agent, CurrentSide: now.CurrentSide,
		StepCount: now.StepCount, SideAStepCount: now.SideAStepCount, SideBStepCount: now.SideBStepCount,
		Waiting: r.Status == store.RunWaiting, WaitingFor: r.Reason, StartedAt: r.StartedAt,
	}
}
