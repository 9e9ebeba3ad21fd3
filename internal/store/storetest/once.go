package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeOnce(e *env) {
	Describe("idempotency keys", Label("MSG-10"), func() {
		once := func(key, fingerprint, result string) *store.Once {
			return &store.Once{Key: key, Fingerprint: fingerprint, Result: func() (json.RawMessage, error) { return json.RawMessage(result), nil }}
		}

		It("let a transaction happen once, and return the first result", func(ctx SpecContext) {
			id := e.thread(ctx)
			first := once("k", "f", `{"n":1}`)
			e.apply(ctx, id, first, &store.AppendMessage{Message: message("hi")})
			Expect(first.Existed).To(BeFalse())
			again := once("k", "f", `{"n":2}`)
			e.apply(ctx, id, again, &store.AppendMessage{Message: message("hi")}, &store.PutValue{Key: "k", Value: []byte(`1`)})
			Expect(again.Existed).To(BeTrue())
			Expect(string(again.Recorded)).To(MatchJSON(`{"n":1}`))
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"hi"}))
			Expect(e.info(ctx, id).Version).To(Equal(int64(1)))
			_, err := e.store.Value(ctx, id, "k")
			Expect(err).To(MatchError(store.ErrNotFound))

			fingerprint, result, err := e.store.Recorded(ctx, id, "k")
			Expect(err).NotTo(HaveOccurred())
			Expect(fingerprint).To(Equal("f"))
			Expect(string(result)).To(MatchJSON(`{"n":1}`))
			_, _, err = e.store.Recorded(ctx, id, "other")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, _, err = e.store.Recorded(ctx, "none", "k")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("belong to one thread and one request", func(ctx SpecContext) {
			a, b := e.thread(ctx), e.thread(ctx)
			for _, id := range []string{a, b} {
				e.apply(ctx, id, once("k", "f", `1`), &store.AppendMessage{Message: message("hi")})
				Expect(e.info(ctx, id).Messages).To(Equal(int64(1)))
			}
			Expect(e.store.Apply(ctx, a, nil, once("k", "another", `1`), &store.AppendMessage{Message: message("ho")})).To(MatchError(store.ErrKeyReused))
			Expect(e.info(ctx, a).Messages).To(Equal(int64(1)))
		})

		It("are not used by a transaction that fails", func(ctx SpecContext) {
			id := e.thread(ctx)
			Expect(e.store.Apply(ctx, id, nil, once("k", "f", `1`), &store.RemoveFile{Path: "/none"})).To(MatchError(store.ErrNotFound))
			failing := &store.Once{Key: "k", Fingerprint: "f", Result: func() (json.RawMessage, error) { return nil, errors.New("oops") }}
			Expect(e.store.Apply(ctx, id, nil, failing, &store.AppendMessage{Message: message("lost")})).To(MatchError(ContainSubstring("oops")))
			e.apply(ctx, id, once("k", "f", `1`), &store.AppendMessage{Message: message("hi")})
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"hi"}))
		})

		It("record the results of the other operations", func(ctx SpecContext) {
			id := e.thread(ctx)
			op := &store.AppendMessage{Message: message("hi")}
			o := &store.Once{Key: "k", Result: func() (json.RawMessage, error) { return json.Marshal(op.Message.Seq) }}
			e.apply(ctx, id, o, op)
			_, result, err := e.store.Recorded(ctx, id, "k")
			Expect(err).NotTo(HaveOccurred())
			Expect(string(result)).To(Equal(fmt.Sprint(op.Message.Seq)))
		})

		It("let one of many concurrent requests succeed", func(ctx SpecContext) {
			id := e.thread(ctx)
			var wg sync.WaitGroup
			results := make([]string, 16)
			for i := range results {
				wg.Go(func() {
					defer GinkgoRecover()
					o := once("k", "f", fmt.Sprint(i))
					Expect(e.store.Apply(ctx, id, nil, o, &store.AppendMessage{Message: message(fmt.Sprint(i))})).To(Succeed())
					results[i] = fmt.Sprint(i)
					if o.Existed {
						results[i] = string(o.Recorded)
					}
				})
			}
			wg.Wait()
			Expect(results).To(HaveEach(Equal(e.texts(ctx, id, store.MessageQuery{})[0])))
			Expect(e.info(ctx, id).Messages).To(Equal(int64(1)))
		})

		It("are forgotten by age, and with the thread", func(ctx SpecContext) {
			id, gone := e.thread(ctx), e.thread(ctx)
			e.apply(ctx, id, once("old", "f", `1`))
			e.apply(ctx, gone, once("old", "f", `1`))
			e.clock.Step(time.Hour)
			e.apply(ctx, id, once("new", "f", `1`))
			Expect(e.store.SweepKeys(ctx, e.now(), 1)).To(Equal(int64(1)))
			Expect(e.store.SweepKeys(ctx, e.now(), 10)).To(Equal(int64(1)))
			Expect(e.store.SweepKeys(ctx, e.now(), 10)).To(BeZero())
			_, _, err := e.store.Recorded(ctx, id, "old")
			Expect(err).To(MatchError(store.ErrNotFound))
			_, _, err = e.store.Recorded(ctx, id, "new")
			Expect(err).NotTo(HaveOccurred())
			_, err = e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			e.clock.Step(time.Hour)
			Expect(e.store.SweepKeys(ctx, e.now(), 10)).To(BeZero())
		})
	})
}
