package engine_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("Recovery", Label("RUN-02", "THR-13"), func() {
	It("finds a thread behind any number of older ones that cannot run", func(ctx SpecContext) {
		const older = 1100 // more than one search takes
		w := newWorld()
		w.Definitions.Put("works", enginetest.Script(skeinv1.ScriptStep{Content: "well"}))
		var first string
		for i := range older {
			blocked := makeThread(ctx, w, fmt.Sprintf("missing-%d", i%3))
			if i == 0 {
				first = blocked
			}
			send(ctx, w, blocked, "hello")
		}
		id := makeThread(ctx, w, "works")
		send(ctx, w, id, "hello")

		By("starting an engine that was told of none of them")
		e, _ := start(w, func(o *engine.Options) { o.SweepInterval, o.Workers = hour, 2 })
		Expect(rest(ctx, w, id).Status).To(Equal(store.RunSucceeded))

		By("making an agent ready")
		w.Definitions.Put("missing-0", enginetest.Script(skeinv1.ScriptStep{Content: "now"}))
		e.Wake(first)
		Expect(rest(ctx, w, first).Status).To(Equal(store.RunSucceeded))
	})
})
