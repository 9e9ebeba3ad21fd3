package engine_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/effects"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// away is a store that is not available for writes for a while.
type away struct {
	store.Store
	writes   atomic.Bool  // fail, but those that claim and record firings
	finishes atomic.Int32 // how many ends of firings fail
}

func (s *away) Apply(ctx context.Context, id string, f *store.Fence, ops ...store.Op) error {
	if s.writes.Load() {
		return store.ErrUnavailable
	}
	return s.Store.Apply(ctx, id, f, ops...)
}

func (s *away) FinishFiring(ctx context.Context, end store.FiringEnd) error {
	if s.finishes.Add(-1) >= 0 {
		return store.ErrUnavailable
	}
	return s.Store.FinishFiring(ctx, end)
}

var _ = Describe("An effect while the database is away", Label("EFF-04"), func() {
	var w *enginetest.World
	var st *away
	BeforeEach(func() {
		w = newWorld()
		sandboxes, err := w.UseProcesses(process.Options{MaxWallTime: time.Hour})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(sandboxes.Close)
		w.Definitions.Put("a", enginetest.Script(enginetest.Say("noted: {{.Last.Content}}")))
		st = &away{Store: w.Store}
	})

	for _, handler := range []struct{ that, code string }{
		{"fails with its call", `export default async (state) => { await state.setValue('first', true); await state.queueMessage('reminder'); }`},
		{"throws an error of its own for it", `export default async (state) => {
  try { await state.setValue('first', true); await state.queueMessage('reminder'); } catch { throw new Error('mine'); }
}`},
	} {
		It("runs again when its handler "+handler.that+", which is no attempt", func(ctx SpecContext) {
			putEffect(w, "remind", handler.code)
			st.writes.Store(true)
			start(w, func(o *engine.Options) { o.Threads = w.Over(st) })
			id := makeThread(ctx, w, "a")
			f := fireEffect(ctx, w, id, "remind", nil, func(f *store.Firing) {
				f.Target = effects.Target{Deadline: 10 * time.Minute}.Encode()
			})
			Eventually(func() string {
				got, err := w.Store.Firing(ctx, f.Key())
				Expect(err).NotTo(HaveOccurred())
				return got.Waiting + got.Error
			}).Should(ContainSubstring("the handler runs again"))
			st.writes.Store(false)
			Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1), HaveField("Error", "")))
			rest(ctx, w, id)
			Expect(told(ctx, w, id)).To(Equal([]string{"user: reminder", "assistant: noted: reminder"}))
		})
	}

	It("is recorded once the database is back, without another run of its handler", func(ctx SpecContext) {
		putEffect(w, "count", `export default async (state) => { await state.setValue('n', ((await state.getValue('n')) ?? 0) + 1); }`)
		st.finishes.Store(3)
		start(w, func(o *engine.Options) { o.Threads = w.Over(st) })
		id := makeThread(ctx, w, "a")
		f := fireEffect(ctx, w, id, "count", nil)
		Expect(endedFiring(ctx, w, f)).To(And(HaveField("Status", store.FiringSucceeded), HaveField("Attempts", 1)))
		Expect(w.Store.Value(ctx, id, "n")).To(BeEquivalentTo("1"))
	})
})
