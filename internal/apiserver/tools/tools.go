// Package tools calls the tools of a thread's agent, activates its skills and shows definitions.
package tools

import (
	"context"
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/convert"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Engine is the part of the engine that calls tools and shows definitions.
type Engine interface {
	InvokeTool(ctx context.Context, threadID, key, name string, args json.RawMessage) (tool.Result, error)
	QueueTool(ctx context.Context, threadID, key, name string, args json.RawMessage) error
	// CheckSkill checks the arguments of a skill against the schema that the thread's agent has for it (AGT-08).
	CheckSkill(ctx context.Context, t *store.Thread, a store.SkillActivation) (wrong string, err error)
	DefinitionNames(ctx context.Context, namespace, kind string) ([]string, error)
	Definition(ctx context.Context, namespace, kind, name string) (json.RawMessage, error)
}

// Handler calls the tools of a thread's agent, activates its skills and shows definitions.
type Handler struct {
	Engine Engine
}

// Call answers POST tools/{name}: invokeTool and queueTool (TOL-01). A request that waits for a result lasts as
// long as the call, and a client that disconnects ends the call.
func (h *Handler) Call(c *call.Call) error {
	if len(c.Path) != 1 {
		return status.NoSuchPath(c.Request)
	}
	var in runtimev1.ToolRequest
	if err := c.Decode(&in, true); err != nil {
		return err
	}
	args, err := call.Object(c.Name, "arguments", in.Arguments)
	if err != nil {
		return err
	}
	ctx, key := c.Context(), c.IdempotencyKey(in.IdempotencyKey)
	if in.Mode == runtimev1.ToolQueue || in.Mode == runtimev1.ToolInvoke || in.Mode == "" {
		if err := c.Claim("tool", key, []any{c.Path[0], in.Mode == runtimev1.ToolQueue, args}); err != nil {
			return err
		}
	}
	out := runtimev1.ToolResult{TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindToolResult)}
	switch in.Mode {
	case runtimev1.ToolQueue:
		if err := h.Engine.QueueTool(ctx, c.Row.ID, key, c.Path[0], args); err != nil {
			return err
		}
		out.Status = runtimev1.ToolQueued
		return c.WriteJSON(http.StatusAccepted, out)
	case "", runtimev1.ToolInvoke:
		res, err := h.Engine.InvokeTool(ctx, c.Row.ID, key, c.Path[0], args)
		if err != nil {
			return err
		}
		out.Status = string(res.Status)
		if res.Status == tool.StatusError {
			out.Error = res.Content
		} else {
			out.Result = res.Content
		}
		out.Attachments = convert.Slice(res.Attachments, func(a store.Attachment) runtimev1.Attachment { return runtimev1.Attachment(a) })
		out.Logs = convert.Slice(res.Logs, func(l store.CodeLine) runtimev1.CodeLog {
			return runtimev1.CodeLog{Level: l.Level, Message: l.Message, Time: l.Time}
		})
		return c.WriteJSON(http.StatusOK, out)
	}
	return status.Invalid(c.Name, metav1.CauseTypeFieldValueNotSupported, "mode", "it must be invoke, which waits for the result, or queue, which does not")
}
