package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/model"
)

var _ = Describe("The memory of runs", Label("K8S-12", "RUN-04"), func() {
	It("is drawn for their conversations, and a run that finds none goes on when there is some", func(ctx SpecContext) {
		w := newWorld()
		budget := membudget.New(64<<20, time.Millisecond)
		w.Definitions.Put("agent", enginetest.Script(enginetest.Say("echo")))
		start(w, func(o *engine.Options) { o.Memory = budget })
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, strings.Repeat("x", 100<<10))
		rest(ctx, w, id)
		Eventually(budget.Used).Should(BeZero(), "a run returns what it has drawn")

		hoard := budget.Open(enginetest.Namespace)
		Expect(hoard.TryDraw(32 << 20)).To(Succeed())
		asked := make(chan struct{}, 100)
		budget.OnShortage(func(int64) {
			select {
			case asked <- struct{}{}:
			default:
			}
		})
		send(ctx, w, id, "again")
		Eventually(asked).Should(Receive())
		Eventually(asked).Should(Receive(), "it is tried again")
		Expect(told(ctx, w, id)).To(HaveLen(2))
		hoard.Close()
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveLen(4))
		Eventually(budget.Used).Should(BeZero())
	})

	It("is drawn for answers of models, and a run whose model was not asked for lack of it is tried again", Label("AGT-06"), func(ctx SpecContext) {
		w := newWorld()
		budget := membudget.New(64<<20, time.Millisecond)
		w.Definitions.Put("agent", enginetest.Script(enginetest.Say("here")))
		hungry := &hungryModels{Factory: w.Models, budget: budget}
		w.Models = hungry
		start(w, func(o *engine.Options) { o.Memory = budget })
		id := makeThread(ctx, w, "agent")
		send(ctx, w, id, "hello")
		rest(ctx, w, id)
		Expect(told(ctx, w, id)).To(HaveLen(2))
		Expect(hungry.asked.Load()).To(BeNumerically(">", 1))
		Expect(hungry.drawn.Load()).To(BeTrue(), "the call has an account")
		Eventually(budget.Used).Should(BeZero(), "the account of an answer is closed when the message is recorded")
	})
})

// hungryModels has models that find no memory when they are asked first, and keep what they draw afterwards.
type hungryModels struct {
	model.Factory
	budget *membudget.Budget
	asked  atomic.Int32
	drawn  atomic.Bool
}

func (h *hungryModels) Client(c model.Config) (model.Client, error) {
	client, err := h.Factory.Client(c)
	return &hungryModel{client, h}, err
}

type hungryModel struct {
	model.Client
	of *hungryModels
}

func (m *hungryModel) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	if m.of.asked.Add(1) == 1 {
		return nil, &membudget.BusyError{Namespace: enginetest.Namespace, Bytes: 1}
	}
	before := m.of.budget.Used()
	if err := membudget.From(ctx).Draw(ctx, 1<<20); err != nil {
		return nil, err
	}
	m.of.drawn.Store(m.of.budget.Used() > before)
	return m.Client.Stream(ctx, req, emit)
}
