package runcode

import (
	"context"
	"encoding/json"

	"github.com/skein-dev/skein/internal/engine/codeexec"
	"github.com/skein-dev/skein/internal/engine/transcript"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/tool"
)

// Offer returns the tools for calls: those of the side and, for queued calls, also agents that its prompt does not
// list.
func (c *Code) Offer(ctx context.Context, conv *transcript.Conversation, calls []store.ToolCall) (*tool.Set, error) {
	set := c.Tools
	for _, call := range calls {
		m := conv.Caller(call.ID)
		if set.Has(call.Name) || m == nil || m.Metadata[transcript.MetadataQueuedTool] == nil {
			continue
		}
		x, err := c.Execution(ctx)
		if err != nil {
			return nil, err
		}
		t, err := x.QueuedTool(ctx, call.Name, m)
		if err != nil {
			return nil, err
		}
		if t != nil {
			set = set.With(t)
		}
	}
	return set, nil
}

// OpenBroker lets the code of calls ask for prompts until shut is called. It returns nil when the agent has no
// prompts to call, or the run has no code.
func (c *Code) OpenBroker() (d *codeexec.Broker, shut func()) {
	if c.Exec == nil || len(c.role.Agent.Prompts) == 0 {
		return nil, func() {}
	}
	d = &codeexec.Broker{Execution: c.Exec, Side: c.role.Side(), Reader: c.role.Reader(), Asks: make(chan *codeexec.Ask), Closed: make(chan struct{})}
	if c.role.Frame != nil {
		d.Within = c.role.Frame.Side
	}
	return d, func() { close(d.Closed) }
}

// AsksFirst reports whether a call of the newest answer needs approval before it starts.
func (c *Code) AsksFirst(call store.ToolCall) bool {
	return c.Tools != nil && !c.role.CodeWaits() && c.Tools.NeedsApproval(call.Name, json.RawMessage(call.Arguments)) != nil
}
