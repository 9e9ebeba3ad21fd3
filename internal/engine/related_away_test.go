package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/engine/ports"
	"github.com/skein-dev/skein/internal/engine/related"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// awayObjects creates no objects until the API server is back.
type awayObjects struct {
	ports.ThreadObjects
	back  atomic.Bool
	tried atomic.Int32
}

func (o *awayObjects) Declare(ctx context.Context, t *store.Thread, cause string) error {
	o.tried.Add(1)
	if !o.back.Load() {
		return errors.New("the API server does not answer")
	}
	return o.ThreadObjects.Declare(ctx, t, cause)
}

var _ = Describe("A context handoff while the API server is away", Label("REL-03"), func() {
	var (
		w     *enginetest.World
		clock *clocktesting.FakeClock
		id    string
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld()
		clock = clocktesting.NewFakeClock(time.Now())
		w.Definitions.Put("old", handsOff(nil)...)
		id = makeThread(ctx, w, "old")
		st, err := w.Threads.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		text := "hello"
		_, err = st.Inject(ctx, thread.NewMessage{Content: &text})
		Expect(err).NotTo(HaveOccurred())
	})
	begin := func(o *awayObjects, change ...func(*engine.Options)) (*engine.Engine, func()) {
		return start(w, append(change, func(opts *engine.Options) { opts.ThreadObjects, opts.Clock = o, clock })...)
	}
	// declares expects that the new thread gets its object once the API server is back.
	declares := func(ctx context.Context, o *awayObjects) {
		GinkgoHelper()
		tried := o.tried.Load()
		Eventually(ctx, func() int32 {
			clock.Step(time.Second)
			return o.tried.Load()
		}).Should(BeNumerically(">", tried+1), "it is tried again and again")
		Expect(w.Objects.Declared()).To(BeZero())
		o.back.Store(true)
		Eventually(ctx, func() int {
			clock.Step(time.Second)
			return w.Objects.Declared()
		}).Should(Equal(1))
		Expect(w.Store.Retained(ctx, enginetest.Namespace, "", 0, 0)).To(BeEmpty())
	}

	It("gets its object once the API server is back, although its caller does not repeat it", func(ctx SpecContext) {
		o := &awayObjects{ThreadObjects: w.Objects}
		e, _ := begin(o)
		_, err := e.HandOff(ctx, id, related.Handoff{Cause: "k", Goal: "go on"})
		Expect(err).To(MatchError(ContainSubstring("does not answer")))
		declares(ctx, o)
		Expect(e.HandOff(ctx, id, related.Handoff{Cause: "k", Goal: "go on"})).To(HaveField("Existed", true))
	})

	It("gets its object once the API server is back, when a manager starts before", func(ctx SpecContext) {
		e, stop := begin(&awayObjects{ThreadObjects: w.Objects}, func(o *engine.Options) {
			o.Faults = func(p string) {
				if p == "declare.before" {
					panic("crash")
				}
			}
		})
		Expect(func() { _, _ = e.HandOff(ctx, id, related.Handoff{Cause: "k", Goal: "go on"}) }).To(PanicWith("crash"))
		stop()
		o := &awayObjects{ThreadObjects: w.Objects}
		begin(o)
		declares(ctx, o)
	})
})
