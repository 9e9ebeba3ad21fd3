package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/modellimit"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// narrow is a model that answers once it is open, behind the limits that it has.
type narrow struct {
	limiter *modellimit.Limiter
	asked   chan struct{}
	open    chan struct{}
}

func (n *narrow) Client(c model.Config) (model.Client, error) {
	return n.limiter.Wrap(n, c.Namespace, c.Name, c.Spec.Limits), nil
}

func (n *narrow) Stream(ctx context.Context, req model.Request, _ func(model.Delta)) (*model.Response, error) {
	last := req.Messages[len(req.Messages)-1]
	if last.Content == "wait" {
		n.asked <- struct{}{}
		select {
		case <-n.open:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return &model.Response{Content: "done", FinishReason: "stop"}, nil
}

var _ = Describe("A model with few permits", Label("AGT-06", "RUN-02"), func() {
	It("holds no more workers than it has use for, and answers all", func(ctx SpecContext) {
		const many = 10
		w := newWorld()
		m := &narrow{limiter: modellimit.New(w.Store, clock.RealClock{}).WithMaxWaiting(1), asked: make(chan struct{}, many), open: make(chan struct{})}
		w.Models = m
		w.Definitions.Put("narrow", func(a *definition.Agent) {
			a.A.Model.Name, a.A.Model.Spec.Limits = "narrow", &skeinv1.ModelLimits{MaxConcurrent: 1}
		})
		w.Definitions.Put("wide", func(a *definition.Agent) { a.A.Model.Name = "wide" })
		e, _ := start(w, func(o *engine.Options) { o.Workers = 4 })
		var held []string
		for range many {
			id := makeThread(ctx, w, "narrow")
			send(ctx, w, id, "wait")
			held = append(held, id)
		}
		Eventually(m.asked).WithContext(ctx).Should(Receive())
		other := makeThread(ctx, w, "wide")
		send(ctx, w, other, "hello")
		Expect(rest(ctx, w, other).Status).To(Equal(store.RunSucceeded), "it need not wait for those")
		Eventually(func() int { running, _ := e.Load(); return running }).WithContext(ctx).Should(Equal(2), "one is asked, and one is next")
		Expect(m.asked).To(BeEmpty(), "there is one permit")

		By("stopping one that waits for its turn")
		last := held[many-1]
		Expect(e.Stop(ctx, last, "")).To(Succeed())
		Expect(rest(ctx, w, last).Status).To(Equal(store.RunStopped))
		close(m.open)
		for _, id := range held[:many-1] {
			Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))
			Expect(told(ctx, w, id)).To(Equal([]string{"user: wait", "assistant: done"}))
		}
	}, NodeTimeout(manyPlays))
})
