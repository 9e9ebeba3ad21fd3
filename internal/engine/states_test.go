package engine_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// How long a stop takes is for the benchmarks (test/bench/stops_test.go, over the same states).
var _ = Describe("A stop ends a run that is in the middle of", Label("RUN-04"), func() {
	for _, s := range enginetest.States() {
		It(s.Name, func(ctx SpecContext) {
			w := newWorld()
			sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour, MaxMemory: 64 << 20})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(sandboxes.Close)
			held := s.Put(w)
			DeferCleanup(held.Close)
			e, quit := start(w)
			id := makeThread(ctx, w, enginetest.StateAgent)
			send(ctx, w, id, "go")
			Expect(s.In(ctx, w, held, id)).To(Succeed())
			send(ctx, w, id, "waits")

			Expect(e.Stop(ctx, id, "enough")).To(Succeed())
			Expect(lastRun(ctx, w, id)).To(And(HaveField("Status", store.RunStopped), HaveField("Reason", skeinv1.ReasonStoppedByUser), HaveField("Message", "enough")))
			Expect(w.Store.Thread(ctx, id)).To(HaveField("Parked", true))
			lines := told(ctx, w, id)
			Expect(lines).To(ContainElement("assistant: (stopped by user)"))
			Expect(lines).NotTo(ContainElement(HavePrefix("tool ")), "a call that was cut off has no result")
			children, err := w.Store.Children(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(children).To(HaveLen(s.Children))
			for _, c := range children {
				Expect(lastRun(ctx, w, c.ID).Status).To(Equal(store.RunStopped))
			}
			if s.Leaves {
				Eventually(ctx, held.Gone()).Should(Receive(), "the other side was hung up on")
			}
			Eventually(func() int { _, held := sandboxes.Counts(); return held }).Should(BeZero(), "its sandbox was given back")

			before := eventTypes(ctx, w, id)
			quit() // and all that it was at has come to its end
			Expect(eventTypes(ctx, w, id)).To(Equal(before), "nothing is written later")
		})
	}
})

// eventTypes gives the types of all that the log of a thread has.
func eventTypes(ctx context.Context, w *enginetest.World, id string) (types []string) {
	GinkgoHelper()
	events, err := w.Store.Events(ctx, id, 0, 10000)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range events {
		types = append(types, e.Type)
	}
	return types
}
