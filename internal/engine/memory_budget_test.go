package engine_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/membudget"
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
})
