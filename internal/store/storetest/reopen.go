package storetest

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeReopen(e *env) {
	Describe("a reopened store", func() {
		It("has every acknowledged write", Label("MSG-05"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("q", "waits"))
			e.say(ctx, id, "said")
			e.apply(ctx, id, &store.PutValue{Key: "k", Value: json.RawMessage(`1`)}, putFile("/d/f", 1),
				&store.PutRun{Run: store.Run{ID: "r", Status: store.RunRunning, State: json.RawMessage(`{"n":1}`)}})
			f, err := e.store.Acquire(ctx, id, "a", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			before, events, items := e.info(ctx, id), e.events(ctx, id), e.inbox(ctx, id)

			e.reopen()

			Expect(e.info(ctx, id)).To(Equal(before))
			Expect(e.events(ctx, id)).To(Equal(events))
			Expect(e.inbox(ctx, id)).To(Equal(items))
			Expect(e.store.Value(ctx, id, "k")).To(MatchJSON(`1`))
			if !e.backend.Exclusive() {
				Expect(e.store.Runnable(ctx, 10)).To(BeEmpty(), "the lease outlives the process")
				_, err = e.store.Acquire(ctx, id, "b", time.Minute)
				Expect(err).To(MatchError(store.ErrLeaseHeld))
				Expect(e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message("go on")})).To(Succeed())
				return
			}
			Expect(e.store.Runnable(ctx, 10)).To(ConsistOf(id), "the holder is gone for good")
			next, err := e.store.Acquire(ctx, id, "b", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			Expect(next.Epoch).To(BeNumerically(">", f.Epoch))
			Expect(e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message("too late")})).To(MatchError(store.ErrFenced))
		})

		It("releases firings that no process works on any more", Label("EFF-04"), func(ctx SpecContext) {
			if !e.backend.Exclusive() {
				return // they are claimed when they expire, as describeFirings shows
			}
			f := store.Firing{EffectID: "e", Due: e.now(), Effect: "x", Status: store.FiringPending}
			Expect(e.store.RecordFiring(ctx, f)).To(BeTrue())
			Expect(e.store.ClaimFirings(ctx, "a", time.Hour, map[string]int{"": 1})).To(HaveLen(1))
			Expect(e.store.ClaimFirings(ctx, "b", time.Hour, map[string]int{"": 1})).To(BeEmpty())
			e.reopen()
			Expect(e.store.ClaimFirings(ctx, "b", time.Hour, map[string]int{"": 1})).To(ConsistOf(HaveField("Attempts", 2)))
		})

		It("reports whether it works", func(ctx SpecContext) {
			Expect(e.store.Ping(ctx)).To(Succeed())
			Expect(e.store.Close()).To(Succeed())
			Expect(e.store.Ping(ctx)).To(MatchError(store.ErrUnavailable))
			_, err := e.store.Thread(ctx, "x")
			Expect(err).To(MatchError(store.ErrUnavailable))
			Expect(e.store.Close()).To(Succeed())
		})
	})
}
