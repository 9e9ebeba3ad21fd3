package handlers

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
)

// port is a run whose model draws the memory of its answer when it is told to go on.
type port struct{ goOn chan struct{} }

func (p port) Client(*definition.Model) (model.Client, error) { return p, nil }
func (p port) MaxSteps() int                                  { return 10 }
func (p port) Arguments() json.RawMessage                     { return nil }
func (p port) Fault() func(string)                            { return func(string) {} }
func (p port) Log() logr.Logger                               { return logr.Discard() }

func (p port) Stream(ctx context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	select {
	case <-p.goOn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := membudget.From(ctx).Draw(ctx, 1000); err != nil {
		return nil, err
	}
	emit(model.Delta{Text: "yes"})
	return &model.Response{Content: "yes"}, nil
}

func TestModelCallsKeepTheirMemory(t *testing.T) {
	for name, end := range map[string]func(g Gomega, m *ModelCalls, ctx context.Context, id any, stop func()){
		"until the answer is taken": func(g Gomega, m *ModelCalls, ctx context.Context, id any, _ func()) {
			for {
				out, err := m.next(ctx, []any{id})
				g.Expect(err).NotTo(HaveOccurred())
				if out.(map[string]any)["done"] == true {
					g.Expect(out).To(HaveKeyWithValue("answer", HaveKeyWithValue("text", "yes")))
					return
				}
			}
		},
		"until it is closed": func(g Gomega, m *ModelCalls, _ context.Context, id any, _ func()) {
			g.Expect(m.close([]any{id})).Error().NotTo(HaveOccurred())
		},
		"until the code ends": func(_ Gomega, _ *ModelCalls, _ context.Context, _ any, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			budget := membudget.New(1<<20, time.Second)
			code, stop := context.WithCancel(t.Context())
			defer stop()
			p := port{goOn: make(chan struct{})}
			m := NewModelCalls(p, &definition.Side{Handler: &definition.Handler{Models: map[string]*definition.Model{"m": {Name: "m"}}}})

			call, over := budget.Begin(code, "ns")
			id, err := m.open(call, []any{map[string]any{"model": "m"}})
			g.Expect(err).NotTo(HaveOccurred())
			over() // the host call has returned, and the model has not answered
			close(p.goOn)
			g.Eventually(budget.Used).Should(BeEquivalentTo(1000))
			end(g, m, code, float64(id.(int64)), stop)
			g.Eventually(budget.Used).Should(BeZero())
		})
	}
}

// broken is a run whose model makes the client panic.
type broken struct{ port }

func (b broken) Client(*definition.Model) (model.Client, error) { return b, nil }

func (b broken) Stream(_ context.Context, _ model.Request, emit func(model.Delta)) (*model.Response, error) {
	emit(model.Delta{Text: "half"})
	panic("of a client")
}

func TestModelCallThatPanicsFailsAlone(t *testing.T) {
	g := NewWithT(t)
	m := NewModelCalls(broken{}, &definition.Side{Handler: &definition.Handler{Models: map[string]*definition.Model{"m": {Name: "m"}}}})
	id, err := m.open(t.Context(), []any{map[string]any{"model": "m"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error {
		_, err := m.next(t.Context(), []any{float64(id.(int64))})
		return err
	}).Should(MatchError(ContainSubstring("internal error: see the manager's log")))
	g.Expect(m.LastFailure()).To(HaveField("Message", "internal error: see the manager's log"))
}
