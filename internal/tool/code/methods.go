package code

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/tool"
)

type method func(ctx context.Context, c *stateCall) (any, error)

// methods are those of `state` (TOL-03). internalMethods are those that the isolate calls for properties of `state`.
// They are filled in init because some of them refer back to the maps.
var methods, internalMethods map[string]method

func init() {
	methods = map[string]method{
		"getMessages": getMessages, "getMessage": getMessage, "injectMessage": injectMessage,
		"queueMessage": queueMessage, "sendMessage": sendMessage, "updateMessage": updateMessage, "deleteMessage": deleteMessage,

		"writeFile": writeFile, "readFile": readFile, "readFileStream": readFileStream, "statFile": statFile, "readdirFile": readdirFile,
		"unlinkFile": unlinkFile, "mkdirFile": mkdirFile, "rmdirFile": rmdirFile, "getFileStats": getFileStats,
		"grepFiles": grepFiles, "findFiles": findFiles,
		"getFileThumbnail": getFileThumbnail,

		"getValue": getValue, "setValue": setValue,

		"scheduleEffect": scheduleEffect, "getScheduledEffects": getScheduledEffects, "removeScheduledEffect": removeScheduledEffect,

		"getChildThread": getChildThread, "getParentThread": getParentThread, "notifyParent": notifyParent, "setStatus": setStatus,

		"loadModel": load("model"), "loadPrompt": load("prompt"), "loadAgent": load("agent"),
		"getModelNames": names("model"), "getPromptNames": names("prompt"), "getAgentNames": names("agent"),

		"queueTool": queueTool, "invokeTool": invokeTool,
		"emit": emit, "runCode": runCode, "terminate": terminate,

		"env": env, "envType": envType, "setEnv": setEnv,
	}
	internalMethods = map[string]method{
		"state.now": now, "state.of": of,
		"readFileStream.open": openStream, "readFileStream.next": nextChunk, "readFileStream.close": closeStream,
		"execution.stop": stopExecution, "execution.forceTurn": forceTurn,

		"kv.get": kvGet, "kv.set": kvSet, "kv.delete": kvDelete, "kv.keys": kvKeys,

		"state.skip":  skipState,
		"session.set": sessionSet, "session.delete": sessionDelete, "session.clear": sessionClear,
		"thread.get": threadGet, "thread.has": threadHas, "thread.set": threadSet, "thread.delete": threadDelete,
		"thread.clear": threadClear, "thread.push": threadPush, "thread.entries": threadEntries, "thread.status": threadStatus,
	}
}

func getValue(ctx context.Context, c *stateCall) (any, error) {
	key, err := c.text(0, "key")
	if err != nil {
		return nil, err
	}
	adjust, err := membudget.Reserve(ctx, maxValueBytes)
	if err != nil {
		return nil, err
	}
	raw, err := c.host.State.Value(ctx, key)
	if err != nil || raw == nil {
		return nil, err
	}
	adjust(int64(len(raw)))
	return raw, nil // decoded as it is sent
}

// maxValueBytes is what most values have as JSON. The thread service refuses larger ones, unless it is told otherwise.
const maxValueBytes = 1 << 20

func setValue(ctx context.Context, c *stateCall) (any, error) {
	key, err := c.text(0, "key")
	if err != nil {
		return nil, err
	}
	raw, err := c.exactly(1, key)
	if err != nil {
		return nil, err
	}
	return nil, c.host.State.SetValue(ctx, key, raw)
}

func scheduleEffect(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.text(0, "effect's name")
	if err != nil {
		return nil, err
	}
	args, err := c.object(1, "the effect's arguments")
	if err != nil {
		return nil, err
	}
	delay := 0.0
	if v := c.arg(2); v != nil {
		var ok bool
		if delay, ok = v.(float64); !ok || !(delay >= 0 && delay <= float64(tool.MaxEffectDelay.Milliseconds())) { // NaN fails both comparisons
			return nil, c.wrong(2, tool.EffectDelay)
		}
	}
	return c.host.Effects.Schedule(ctx, c.key(), name, args, time.Duration(delay*float64(time.Millisecond)))
}

func getScheduledEffects(ctx context.Context, c *stateCall) (any, error) {
	name, err := c.optionalText(0, "effect's name")
	if err != nil {
		return nil, err
	}
	return c.host.Effects.List(ctx, name)
}

func removeScheduledEffect(ctx context.Context, c *stateCall) (any, error) {
	id, err := c.text(0, "effect's id")
	if err != nil {
		return nil, err
	}
	return c.host.Effects.Remove(ctx, id)
}

func notifyParent(ctx context.Context, c *stateCall) (any, error) {
	content, err := c.text(0, "content")
	if err != nil {
		return nil, err
	}
	return nil, c.host.Lifecycle.NotifyParent(ctx, c.key(), content)
}

func setStatus(ctx context.Context, c *stateCall) (any, error) {
	status, err := c.text(0, "status")
	if err != nil {
		return nil, err
	}
	return nil, c.host.Lifecycle.SetStatus(ctx, status)
}

func load(kind string) method {
	return func(ctx context.Context, c *stateCall) (any, error) {
		name, err := c.text(0, kind+"'s name")
		if err != nil {
			return nil, err
		}
		return c.host.Definitions.Load(ctx, kind, name)
	}
}

func names(kind string) method {
	return func(ctx context.Context, c *stateCall) (any, error) {
		return c.host.Definitions.Names(ctx, kind)
	}
}

func queueTool(ctx context.Context, c *stateCall) (any, error) {
	name, args, err := c.toolArgs()
	if err != nil {
		return nil, err
	}
	return nil, c.host.Tools.QueueTool(ctx, c.key(), name, args)
}

func invokeTool(ctx context.Context, c *stateCall) (any, error) {
	name, args, err := c.toolArgs()
	if err != nil {
		return nil, err
	}
	res, err := c.host.Tools.InvokeTool(ctx, "call_"+c.key(), name, args)
	if err != nil {
		return nil, err
	}
	return Answer(res), nil
}

// Answer returns the form of a tool's result that code reads: {status, result, error} (TOL-01).
func Answer(res tool.Result) map[string]any {
	out := map[string]any{"status": string(res.Status)}
	if res.Status == tool.StatusError {
		out["error"] = res.Content
	} else {
		out["result"] = res.Content
	}
	if len(res.Attachments) > 0 {
		out["attachments"] = res.Attachments
	}
	return out
}

func (c *stateCall) toolArgs() (name string, args json.RawMessage, err error) {
	if name, err = c.text(0, "tool's name"); err != nil {
		return "", nil, err
	}
	args, err = c.object(1, "the tool's arguments")
	return name, args, err
}

func emit(ctx context.Context, c *stateCall) (any, error) {
	event, err := c.text(0, "event's name")
	if err != nil {
		return nil, err
	}
	data, err := c.json(1, "the data")
	if err != nil {
		return nil, err
	}
	return nil, c.host.State.Emit(ctx, event, data)
}

func runCode(ctx context.Context, c *stateCall) (any, error) {
	if c.asker != nil {
		return c.host.Code.ServeRunCodeFor(ctx, c.asker.host.Code, c.args)
	}
	return c.host.Code.ServeRunCode(ctx, c.args)
}

func terminate(ctx context.Context, c *stateCall) (any, error) {
	return nil, c.host.Lifecycle.Terminate(ctx)
}
