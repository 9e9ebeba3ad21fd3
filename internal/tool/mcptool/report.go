package mcptool

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/tool"
)

// reporter turns the progress of a call into events of the thread, at most one in each reportInterval. mu guards the
// fields below it.
type reporter struct {
	ctx  context.Context
	host *tool.Host
	call tool.Call

	mu      sync.Mutex
	last    time.Time
	waiting *Progress
	over    bool
}

func newReporter(ctx context.Context, h *tool.Host, call tool.Call) *reporter {
	return &reporter{ctx: ctx, host: h, call: call}
}

func (r *reporter) add(p Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !finite(p.Progress) || !finite(p.Total) {
		return
	}
	r.waiting = &p
	if now := time.Now(); now.Sub(r.last) >= reportInterval {
		r.last = now
		r.send()
	}
}

// flush reports the latest progress. Later progress is ignored.
func (r *reporter) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.send()
}

// send reports the waiting progress. The caller holds mu.
func (r *reporter) send() {
	p := r.waiting
	r.waiting = nil
	if p == nil || r.host.Progress == nil || r.ctx.Err() != nil {
		return
	}
	r.host.Progress(r.ctx, tool.Progress{ToolCallID: r.call.ID, Name: r.call.Name, Progress: p.Progress, Total: p.Total, Message: p.Message})
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
