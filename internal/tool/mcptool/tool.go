package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skein-dev/skein/internal/tool"
)

// IdempotencyMeta is the key in the _meta of a call with its idempotency key, which is the same when the call is
// repeated after a crash.
const IdempotencyMeta = "skein.dev/idempotencyKey"

type remoteTool struct {
	servers *Servers
	config  *Server
	remote  Remote
	host    *tool.Host
}

// Tool returns the tool for one of a server's tools.
func (s *Servers) Tool(config *Server, r Remote, h *tool.Host) tool.Tool {
	return &remoteTool{servers: s, config: config, remote: r, host: h}
}

// Definition implements tool.Tool.
func (t *remoteTool) Definition() tool.Definition {
	return tool.Definition{Name: t.remote.Name, Description: t.remote.Description, Parameters: t.remote.Parameters}
}

// Call implements tool.Tool.
func (t *remoteTool) Call(ctx context.Context, call tool.Call) tool.Result {
	timeout := t.config.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := t.servers.call(limited, t, call)
	if err != nil {
		if errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
			return tool.Failure(fmt.Sprintf("the MCP server of the tool %s did not answer within %s: it may have done what it was asked to; try again later, or raise spec.timeout of the Tool", t.config.Name, timeout))
		}
		return tool.Failure(fmt.Sprintf("the MCP server of the tool %s failed: %v", t.config.Name, err))
	}
	return t.result(ctx, call.ID, res)
}

// call makes a call over the present session. When that session is dead, or the server no longer knows it, the call had
// no effect: it is made once more, over a new session, with the same idempotency key.
func (s *Servers) call(ctx context.Context, t *remoteTool, call tool.Call) (*mcp.CallToolResult, error) {
	key := tool.IdempotencyKey(t.host.Thread.ID, call.ID)
	for retried := false; ; retried = true {
		v, err := s.of(t.config)
		if err != nil {
			return nil, err
		}
		session, err := v.connected(ctx)
		if errors.Is(err, errForgotten) && !retried {
			continue
		}
		if err != nil {
			return nil, err
		}
		params := &mcp.CallToolParams{Name: t.remote.Remote, Arguments: json.RawMessage(call.Arguments), Meta: mcp.Meta{IdempotencyMeta: key}}
		params.SetProgressToken(key)
		calling, end := context.WithCancelCause(ctx)
		way := &delivery{end: end}
		report := newReporter(ctx, t.host, call)
		v.onProgress(key, report.add)
		// The SDK passes nothing of a call but its context on to the transport that sends the request.
		res, err := session.CallTool(context.WithValue(calling, deliveryKey{}, way), params)
		end(nil)
		v.onProgress(key, nil)
		report.flush()
		if err == nil {
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if refused := way.noMemory(); refused != nil {
			return nil, fmt.Errorf("it was called, and there is no memory for its answer: %w", refused)
		}
		undone := way.undone()
		if saidBy(err) != nil && !undone {
			return nil, errors.New(v.explain(err)) // the session is still usable
		}
		v.lost(session)
		session.close()
		switch {
		case !undone:
			return nil, fmt.Errorf("%s; it may have done what it was asked to", v.explain(err))
		case retried:
			return nil, errors.New(v.explain(err))
		}
	}
}

// Progress is the progress of a call, as a server reports it.
type Progress struct {
	Progress float64
	Total    float64 // 0 when unknown
	Message  string
}

// onProgress passes the progress of a call to a function; nil ends that.
func (v *server) onProgress(token string, fn func(Progress)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if fn == nil {
		delete(v.progress, token)
		return
	}
	v.progress[token] = fn
}

func (v *server) progressed(p *mcp.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	v.mu.Lock()
	fn := v.progress[token]
	v.mu.Unlock()
	if fn != nil {
		fn(Progress{Progress: p.Progress, Total: p.Total, Message: v.owner.bounded(v.config, p.Message, 1<<10)})
	}
}

// reportInterval is the shortest time between two events about the progress of a call.
const reportInterval = 250 * time.Millisecond
