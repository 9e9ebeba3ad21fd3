package storetest

import (
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeAges(e *env) {
	Describe("what is old", func() {
		It("no longer has the pieces of answers that are stored, and a client that resumes gets the message", Label("EVT-03", "K8S-11"), func(ctx SpecContext) {
			id := e.thread(ctx, &store.PutRun{Run: store.Run{ID: "done", Status: store.RunRunning}})
			piece := func(run, message string) *store.AppendEvent {
				return &store.AppendEvent{Event: store.Event{Type: store.EventDelta, RunID: run, MessageID: message, Data: json.RawMessage(`{"text":"x"}`)}}
			}
			answer := named("answer", "whole")
			answer.RunID = "done"
			e.apply(ctx, id, piece("done", "answer"), piece("done", "answer"), &store.AppendMessage{Message: answer}, piece("done", "withdrawn"),
				&store.PutRun{Run: store.Run{ID: "done", Status: store.RunStopped}}, &store.PutRun{Run: store.Run{ID: "going", Status: store.RunRunning}},
				piece("going", "unfinished"))
			e.clock.Step(time.Minute)
			old := e.now()
			e.apply(ctx, id, piece("done", "answer"))

			Expect(e.store.SweepDeltas(ctx, old, 2)).To(Equal(int64(2)))
			Expect(e.store.SweepDeltas(ctx, old, 10)).To(Equal(int64(1)))
			Expect(e.store.SweepDeltas(ctx, old, 10)).To(BeZero())
			var left []string
			for _, ev := range e.events(ctx, id) {
				if ev.Type == store.EventDelta {
					left = append(left, ev.MessageID)
				}
				if ev.Type == store.EventMessageCreated {
					Expect(string(ev.Data)).To(ContainSubstring(`"whole"`))
				}
			}
			Expect(left).To(Equal([]string{"unfinished", "answer"}), "one is not finished, and one is new")
			seen, err := e.store.Events(ctx, id, 2, 1) // the client's last one was a piece that is gone
			Expect(err).NotTo(HaveOccurred())
			Expect(seen).To(ConsistOf(HaveField("Type", store.EventMessageCreated)))
		})

		It("has the keys of inbox items for some time, and as long as they wait", Label("MSG-10", "K8S-11"), func(ctx SpecContext) {
			id := e.thread(ctx)
			put := func(key string) *store.Enqueue {
				GinkgoHelper()
				op := &store.Enqueue{Item: store.InboxItem{Key: key, Kind: store.InboxResume}}
				e.apply(ctx, id, op)
				return op
			}
			taken := put("taken")
			put("waits")
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{taken.Seq}})
			e.clock.Step(time.Minute)
			old := e.now()
			put("new")
			Expect(put("taken").Existed).To(BeTrue())
			Expect(e.store.SweepInboxKeys(ctx, old, 10)).To(Equal(int64(1)))
			Expect(e.store.SweepInboxKeys(ctx, old, 10)).To(BeZero())
			Expect(put("waits").Existed).To(BeTrue())
			Expect(put("new").Existed).To(BeTrue())
			Expect(put("taken").Existed).To(BeFalse(), "it is recognised no longer")
		})
	})
}
