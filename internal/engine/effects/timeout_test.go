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

// unanswered is a Runner whose calls of a Tool wait for an answer until their time is up, and then return an error.
type unanswered struct {
	Runner
	err error
}

func (r unanswered) CallTool(ctx context.Context, _ Call) error {
	<-ctx.Done()
	return r.err
}

// TestTimeoutOfACall covers EFF-04: a service that has not answered in time is called again, and nothing else is.
func TestTimeoutOfACall(t *testing.T) {
	g := NewWithT(t)
	target := toolTarget()
	target.Timeout = time.Millisecond
	for _, c := range []struct{ err, want error }{
		{&ServiceError{Text: "no answer", After: time.Hour}, &ServiceError{Text: "it did not end within 1ms, which spec.timeout allows"}},
		{&HandlerError{"the MCP server failed"}, &HandlerError{"it did not end within 1ms, which spec.timeout allows"}},
		{context.DeadlineExceeded, &HandlerError{"it did not end within 1ms, which spec.timeout allows"}},
	} {
		w, _ := newWorker(unanswered{err: c.err})
		g.Expect(w.attempt(t.Context(), &Call{Firing: &store.Firing{Attempts: 1}, Target: target, Log: &Log{}})).To(Equal(c.want))
	}
}
