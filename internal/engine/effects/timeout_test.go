package effects

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/store"
)

// limits is a Runner whose calls note whether they have a time limit. It also has the definition of each effect.
type limits struct{ limited bool }

func (r *limits) note(ctx context.Context) error {
	_, r.limited = ctx.Deadline()
	return nil
}

func (r *limits) RunEffect(ctx context.Context, _ Call) error    { return r.note(ctx) }
func (r *limits) CallTool(ctx context.Context, _ Call) error     { return r.note(ctx) }
func (r *limits) QueueTool(ctx context.Context, _ Call) error    { return r.note(ctx) }
func (r *limits) QueueMessage(ctx context.Context, _ Call) error { return r.note(ctx) }

func (r *limits) Effect(context.Context, string, string) (*definition.Effect, error) {
	return &definition.Effect{}, nil
}

// TestTimeoutOfWhatNeedsNoSandbox covers EFF-04: the timeout limits an attempt as a whole only if it cannot wait for a sandbox.
func TestTimeoutOfWhatNeedsNoSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		target  Target
		limited bool
	}{
		"an effect":     {Target{}, false},
		"a queued tool": {Target{Queue: &ToolCall{}}, false},
		"a called tool": {toolTarget(), true},
		"a message":     {Target{Message: &Message{}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := &limits{}
			w, _ := newWorker(r)
			w.opts.Definitions = r
			f := &store.Firing{Attempts: 1}
			g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: c.target, Log: &Log{}})).To(Succeed())
			g.Expect(r.limited).To(BeFalse(), "without a timeout")
			c.target.Timeout = time.Hour
			g.Expect(w.attempt(t.Context(), &Call{Firing: f, Target: c.target, Log: &Log{}})).To(Succeed())
			g.Expect(r.limited).To(Equal(c.limited))
		})
	}
}
