package storetest

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeLines(e *env) {
	Describe("log lines", Label("LOG-03"), func() {
		line := func(runID, message string) *store.AppendEvent {
			data, err := json.Marshal(store.CodeLine{Level: "info", Message: message})
			Expect(err).NotTo(HaveOccurred())
			return &store.AppendEvent{Event: store.Event{Type: store.EventCodeLog, RunID: runID, Data: data}}
		}
		lines := func(ctx context.Context, id string, q store.LineQuery) []string {
			GinkgoHelper()
			events, err := e.store.Lines(ctx, id, q)
			Expect(err).NotTo(HaveOccurred())
			texts := []string{}
			for i := range events {
				var l store.CodeLine
				Expect(json.Unmarshal(events[i].Data, &l)).To(Succeed())
				texts = append(texts, l.Message)
			}
			return texts
		}

		It("are read apart from the rest of the log: by run, from a position on, and from the end", func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, line("r1", "one"), &store.AppendMessage{Message: message("said")}, line("r2", "two"))
			two := e.info(ctx, id).LastSeq
			e.apply(ctx, id, &store.AppendEvent{Event: store.Event{Type: "event:tick"}}, line("r2", "three"),
				&store.AppendEvent{Event: store.Event{Type: store.EventHandlerLog, RunID: "r1", Data: json.RawMessage(`{"level":"info","message":"four"}`)}})
			Expect(lines(ctx, id, store.LineQuery{})).To(Equal([]string{"one", "two", "three", "four"}))
			Expect(lines(ctx, id, store.LineQuery{RunID: "r2"})).To(Equal([]string{"two", "three"}))
			Expect(lines(ctx, id, store.LineQuery{After: two})).To(Equal([]string{"three", "four"}))
			Expect(lines(ctx, id, store.LineQuery{Tail: 2})).To(Equal([]string{"three", "four"}))
			Expect(lines(ctx, id, store.LineQuery{Limit: 1})).To(Equal([]string{"one"}))
			_, err := e.store.Lines(ctx, "00000000-0000-4000-8000-000000000000", store.LineQuery{})
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("are those events that a query selects", func(ctx SpecContext) {
			id := e.thread(ctx)
			for _, kind := range []string{store.EventCodeLog, store.EventHandlerLog, store.EventHookFailed, store.EventTaskFailed, store.EventDelta, "event:code.log"} {
				for _, run := range []string{"r1", "r2", ""} {
					e.apply(ctx, id, &store.AppendEvent{Event: store.Event{Type: kind, RunID: run, Data: json.RawMessage(`{}`)}})
				}
			}
			all, err := e.store.Events(ctx, id, 0, 100)
			Expect(err).NotTo(HaveOccurred())
			for _, q := range []store.LineQuery{{}, {RunID: "r1"}} {
				var selected []int64
				for i := range all {
					if q.Selects(&all[i]) {
						selected = append(selected, all[i].Seq)
					}
				}
				Expect(selected).NotTo(BeEmpty())
				found, err := e.store.Lines(ctx, id, q)
				Expect(err).NotTo(HaveOccurred())
				Expect(found).To(HaveEach(HaveField("Seq", BeElementOf(selected))))
				Expect(found).To(HaveLen(len(selected)))
			}
		})

		It("are dropped above a bound, the oldest first, with a record of how many", func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			e.apply(ctx, other, line("r", "of another thread"))
			for n := 1; n <= 12; n++ {
				e.apply(ctx, id, line("r", fmt.Sprint(n)), &store.AppendMessage{Message: message("kept")}, &store.TrimLines{Keep: 5})
			}
			Expect(lines(ctx, id, store.LineQuery{})).To(Equal([]string{"… 8 older lines dropped: a thread keeps the newest 5", "9", "10", "11", "12"}))
			events, err := e.store.Lines(ctx, id, store.LineQuery{Limit: 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(store.DroppedIn(&events[0])).To(BeEquivalentTo(8))
			Expect(lines(ctx, other, store.LineQuery{})).To(Equal([]string{"of another thread"}))
			kept := 0
			for _, kind := range e.eventTypes(ctx, id) {
				if kind == store.EventMessageCreated {
					kept++
				}
			}
			Expect(kept).To(Equal(12), "only lines are dropped")

			By("writing from many callers at once")
			ops := []store.Op{}
			for n := range 20 {
				ops = append(ops, line("r", fmt.Sprint("again ", n)))
			}
			e.apply(ctx, id, append(ops, &store.TrimLines{Keep: 5})...)
			Expect(lines(ctx, id, store.LineQuery{})).To(Equal([]string{"… 28 older lines dropped: a thread keeps the newest 5", "again 16", "again 17", "again 18", "again 19"}))
		})
	})
}
