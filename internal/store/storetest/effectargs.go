package storetest

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeEffectArgs(e *env) {
	It("arguments of an effect are stored once, and go with their thread", Label("EFF-01", "THR-09"), func(ctx SpecContext) {
		id := e.thread(ctx)
		put := func(a store.EffectArgs) {
			GinkgoHelper()
			Expect(e.store.PutEffectArgs(ctx, a)).To(Succeed())
		}
		put(store.EffectArgs{ID: "a", Namespace: "default", ThreadID: id, Args: json.RawMessage(`{"n":1}`)})
		put(store.EffectArgs{ID: "a", Namespace: "default", ThreadID: id, Args: json.RawMessage(`{"n":2}`)})
		other := e.thread(ctx)
		put(store.EffectArgs{ID: "b", Namespace: "default", ThreadID: other, Args: json.RawMessage(`[]`)})
		Expect(e.store.EffectArgs(ctx, id, "a")).To(MatchJSON(`{"n":1}`))
		_, err := e.store.EffectArgs(ctx, id, "c")
		Expect(err).To(MatchError(store.ErrNotFound))
		_, err = e.store.EffectArgs(ctx, other, "a")
		Expect(err).To(MatchError(store.ErrNotFound), "they are another thread's")
		Expect(e.store.RemoveEffectArgs(ctx, other, "a")).To(Succeed())
		Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 1, ThreadID: other, Namespace: "default", TakesArgs: "a"})).To(BeTrue())
		Expect(e.store.EffectArgs(ctx, id, "a")).To(MatchJSON(`{"n":1}`))
		Expect(e.store.PurgeThread(ctx, id)).To(BeEmpty())
		_, err = e.store.EffectArgs(ctx, id, "a")
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(e.store.EffectArgs(ctx, other, "b")).To(MatchJSON(`[]`))
	})
}
