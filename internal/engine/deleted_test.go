package engine_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("A thread whose object was deleted", Label("THR-09", "K8S-05"), func() {
	for _, by := range []struct {
		text  string
		abort bool
	}{{"that deletes it", true}, {"that another one told of it", false}} {
		It("stops at once, and no run of it begins again before it is purged, on a replica "+by.text, func(ctx SpecContext) {
			w := newWorld()
			w.Definitions.Put("works", enginetest.Script(enginetest.Say("late")))
			w.Definitions.Put("witness", enginetest.Script(enginetest.Say("well")))
			calls := &hanging{name: "works", begun: make(chan struct{}, 10), ended: make(chan struct{}, 10)}
			e, _ := start(w, func(o *engine.Options) {
				calls.Factory, o.Models = o.Models, calls
				o.Workers, o.SweepInterval, o.LeaseTTL = 1, hour, hour
			})
			id := makeThread(ctx, w, "works")
			send(ctx, w, id, "hello")
			Eventually(ctx, calls.begun).Should(Receive())
			send(ctx, w, id, "and what waits")

			Expect(w.Store.MarkDeleted(ctx, id, id)).To(Succeed())
			if by.abort {
				e.Abort(ctx, id, "the spec deletes it")
			}
			Eventually(ctx, calls.ended).Should(Receive())
			e.Wake(id)
			other := makeThread(ctx, w, "witness") // the only worker comes to it after the deleted thread
			send(ctx, w, other, "hello")
			Expect(rest(ctx, w, other).Status).To(Equal(store.RunSucceeded))
			Expect(calls.begun).NotTo(Receive(), "the model was called again")

			start(w, func(o *engine.Options) { o.Owner, o.Models, o.Workers = "next", calls, 1 }) // which looks for work when it begins
			send(ctx, w, other, "again")
			Eventually(func() []string { return told(ctx, w, other) }).Should(HaveLen(4))
			Expect(calls.begun).NotTo(Receive(), "the next manager called the model again")
		})
	}
})

// hanging has calls of one model, by its name, end with their context only.
type hanging struct {
	model.Factory
	name         string
	begun, ended chan struct{}
}

func (s *hanging) Client(c model.Config) (model.Client, error) {
	client, err := s.Factory.Client(c)
	if c.Name == s.name && err == nil {
		client = &hangingClient{Client: client, of: s}
	}
	return client, err
}

type hangingClient struct {
	model.Client
	of *hanging
}

func (c *hangingClient) Stream(ctx context.Context, _ model.Request, _ func(model.Delta)) (*model.Response, error) {
	c.of.begun <- struct{}{}
	<-ctx.Done()
	c.of.ended <- struct{}{}
	return nil, context.Cause(ctx)
}
