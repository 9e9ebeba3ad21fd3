package engine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/postrun"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// answersLater is a model that answers when it is told to, and says that it was asked.
type answersLater struct {
	model.Factory
	asked chan struct{}
	speak chan struct{}
}

func (m answersLater) Client(c model.Config) (model.Client, error) {
	client, err := m.Factory.Client(c)
	return laterClient{client, m}, err
}

type laterClient struct {
	model.Client
	of answersLater
}

func (c laterClient) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	c.of.asked <- struct{}{}
	select {
	case <-c.of.speak:
		return c.Client.Stream(ctx, req, emit)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

var _ = Describe("Draining", Label("K8S-10"), func() {
	var w *enginetest.World
	var later answersLater
	BeforeEach(func() {
		w = newWorld()
		later = answersLater{w.Models, make(chan struct{}, 100), make(chan struct{}, 100)}
		w.Models = later
	})
	// drain begins to drain, and returns how that ended, once it has.
	drain := func(ctx context.Context, e *engine.Engine) <-chan error {
		ended := make(chan error, 1)
		begun, leave := context.WithCancel(ctx)
		leave()
		_ = e.Drain(begun) // does not wait: what comes from here on finds it begun
		go func() { ended <- e.Drain(ctx) }()
		return ended
	}

	It("lets a model call finish, makes no other, and leaves the run to another replica", Label("RUN-02"), func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(
			skeinv1.ScriptStep{ToolCalls: []skeinv1.ScriptToolCall{{Name: "nothing"}}}, enginetest.Say("done")))
		first, _ := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(later.asked).Should(Receive())
		ended := drain(ctx, first)
		next := makeThread(ctx, w, "a")
		send(ctx, w, next, "more")
		Consistently(later.asked, "300ms").ShouldNot(Receive(), "it begins nothing")
		Expect(ended).NotTo(Receive())
		later.speak <- struct{}{}
		Eventually(ended).Should(Receive(Succeed()))
		Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunRunning), HaveField("Steps", 1)), "the answer is recorded")
		fence, err := w.Store.Acquire(ctx, id, "another", time.Minute)
		Expect(err).NotTo(HaveOccurred(), "the lease was given back")
		Expect(w.Store.Release(ctx, fence)).To(Succeed())

		start(w)
		for range 3 { // the rest of the first thread's run, and both calls of the second one's
			later.speak <- struct{}{}
		}
		rest(ctx, w, next)
		Expect(rest(ctx, w, id)).To(HaveField("Steps", 2))
		Expect(later.asked).To(HaveLen(3), "no call was repeated")
		runs, err := w.Runs(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(HaveLen(1))
	})

	It("gives up when its time is over, and says so", func(ctx SpecContext) {
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("done")))
		e, stop := start(w)
		id := makeThread(ctx, w, "a")
		send(ctx, w, id, "go")
		Eventually(later.asked).Should(Receive())
		short, cancel := context.WithCancel(ctx)
		ended := drain(short, e)
		cancel()
		Eventually(ended).Should(Receive(MatchError(context.Canceled)))
		stop()
		Expect(lastRun(ctx, w, id).Status).To(Equal(store.RunRunning), "for the next one")
	})

	It("hands over the tasks after runs, those that wait and those that are cut off", Label("THR-13"), func(ctx SpecContext) {
		later.speak = nil
		w.Models = later.Factory
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("done")))
		began, did := make(chan string, 10), make(chan string, 10)
		e, stop := start(w, func(o *engine.Options) {
			o.PostRunWorkers = 1
			o.PostRun = []postrun.Task{{Name: "slow", Do: func(ctx context.Context, r postrun.Run) error {
				began <- r.Thread.ID
				<-ctx.Done()
				return ctx.Err()
			}}}
		})
		ids := []string{makeThread(ctx, w, "a"), makeThread(ctx, w, "a")}
		for _, id := range ids {
			send(ctx, w, id, "go")
			rest(ctx, w, id)
		}
		Eventually(began).Should(Receive())
		start(w, func(o *engine.Options) {
			o.SweepInterval = 50 * time.Millisecond
			o.PostRun = []postrun.Task{{Name: "quick", Do: func(_ context.Context, r postrun.Run) error {
				did <- r.Thread.ID
				return nil
			}}}
		})
		short, cancel := context.WithCancel(ctx)
		ended := drain(short, e)
		Eventually(did).Should(Receive(BeElementOf(ids)), "the one that waits, while the other is under way")
		Expect(ended).NotTo(Receive())
		cancel()
		stop()
		Eventually(did).Should(Receive(BeElementOf(ids)), "the one that was cut off")
		Consistently(did, "300ms").ShouldNot(Receive(), "once each")
	})
})
