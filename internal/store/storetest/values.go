package storetest

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeValues(e *env) {
	Describe("key-values", Label("KVS-01"), func() {
		It("are set, replaced and removed by thread", func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			_, err := e.store.Value(ctx, id, "k")
			Expect(err).To(MatchError(store.ErrNotFound))
			e.apply(ctx, id, &store.PutValue{Key: "k", Value: json.RawMessage(`{"a":[1,null]}`)})
			e.apply(ctx, id, &store.PutValue{Key: "f", Value: json.RawMessage(`false`)})
			Expect(e.store.Value(ctx, id, "k")).To(MatchJSON(`{"a":[1,null]}`))
			Expect(e.store.Value(ctx, id, "f")).To(MatchJSON(`false`))
			_, err = e.store.Value(ctx, other, "k")
			Expect(err).To(MatchError(store.ErrNotFound))
			e.apply(ctx, id, &store.PutValue{Key: "k", Value: json.RawMessage(`"x"`)})
			Expect(e.store.Value(ctx, id, "k")).To(MatchJSON(`"x"`))
			e.apply(ctx, id, &store.PutValue{Key: "k"})
			_, err = e.store.Value(ctx, id, "k")
			Expect(err).To(MatchError(store.ErrNotFound))
		})
	})
}
