package storetest

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeLog(e *env) {
	Describe("the log", Label("LOG-03"), func() {
		It("records every change in order", func(ctx SpecContext) {
			id := e.thread(ctx, queued("q", "queued"))
			waits := e.inbox(ctx, id)[0]
			m := message("queued")
			m.ID = "q"
			e.apply(ctx, id,
				&store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunRunning}},
				&store.AppendMessage{Message: m}, &store.Dequeue{Seqs: []int64{waits.Seq}})
			e.apply(ctx, id, &store.AppendEvent{Event: store.Event{Type: store.EventDelta, RunID: "r", Data: json.RawMessage(`{"text":"he"}`)}})
			e.apply(ctx, id, &store.UpdateMessage{ID: "q", Content: ptr("changed")})
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Agent: "helper", Status: store.RunSucceeded, Steps: 1}})
			e.apply(ctx, id, &store.PutFile{File: store.File{Path: "/a.txt", Digest: digest(1), Size: 4, MimeType: "text/plain"}, Object: object(1), Uploaded: e.now()})
			e.apply(ctx, id, &store.RemoveFile{Path: "/a.txt"})
			e.apply(ctx, id, &store.DeleteMessage{ID: "q"})
			e.apply(ctx, id, &store.Terminate{Reason: "TerminatedByRequest"})

			Expect(e.eventTypes(ctx, id)).To(Equal([]string{
				store.EventMessageQueued, store.EventRunStarted, store.EventMessageCreated, store.EventDelta, store.EventMessageUpdated,
				store.EventRunEnded, store.EventFileWritten, store.EventFileDeleted, store.EventMessageDeleted, store.EventTerminated,
			}))
			events := e.events(ctx, id)
			for i := 1; i < len(events); i++ {
				Expect(events[i].Seq).To(BeNumerically(">", events[i-1].Seq))
			}
			Expect(events[len(events)-1].Seq).To(Equal(e.info(ctx, id).LastSeq))
			Expect(string(events[3].Data)).To(MatchJSON(`{"text":"he"}`))
			Expect(string(events[5].Data)).To(MatchJSON(`{"agent":"helper","status":"succeeded","steps":1}`))
			Expect(string(events[6].Data)).To(MatchJSON(`{"path":"/a.txt","size":4,"mimeType":"text/plain"}`))
			Expect(events[2].MessageID).To(Equal("q"))
			Expect(events[2].Data).To(BeNil(), "the message is deleted")
		})

		It("reports the last edit after a sequence number", func(ctx SpecContext) {
			id := e.thread(ctx)
			m, other := message("said"), message("beside")
			lastEdit := func(after int64) int64 {
				GinkgoHelper()
				seq, err := e.store.LastEdit(ctx, id, after)
				Expect(err).NotTo(HaveOccurred())
				return seq
			}
			e.apply(ctx, id, &store.AppendMessage{Message: m}, &store.AppendMessage{Message: other})
			Expect(lastEdit(0)).To(BeZero(), "an append is not an edit")
			for _, op := range []store.Op{&store.UpdateMessage{ID: m.ID, Content: ptr("changed")}, &store.DeleteMessage{ID: m.ID},
				&store.Truncate{Index: -1}, &store.Destroy{Reason: store.DestroyedExplicit}} {
				before := e.info(ctx, id).LastSeq
				e.apply(ctx, id, op)
				Expect(lastEdit(before)).To(BeNumerically(">", before), "%T", op)
				e.apply(ctx, id, &store.AppendMessage{Message: message("more")})
				Expect(lastEdit(e.info(ctx, id).LastSeq - 1)).To(BeZero())
			}
			Expect(e.store.LastEdit(ctx, "00000000-0000-0000-0000-000000000000", 0)).To(BeZero())
		})

		It("includes the message that an entry is about", Label("EVT-03"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("q", "waits"))
			m := message("said")
			m.ID, m.RunID = "m", "r"
			op := &store.AppendMessage{Message: m}
			e.apply(ctx, id, op)
			e.apply(ctx, id, &store.UpdateMessage{ID: "m", Metadata: map[string]any{"a": 1.0}})
			events := e.events(ctx, id)
			Expect(events).To(HaveLen(3))
			var waits, said store.Message
			Expect(json.Unmarshal(events[0].Data, &waits)).To(Succeed())
			Expect(waits.Status).To(Equal(store.MessagePending))
			Expect(*waits.Content).To(Equal("waits"))
			Expect(json.Unmarshal(events[1].Data, &said)).To(Succeed())
			Expect(*said.Content).To(Equal("said"))
			Expect(events[1].RunID).To(Equal("r"))
			Expect(events[1].Seq).To(Equal(m.Seq))
			Expect(events[2].Data).To(MatchJSON(events[1].Data))
		})

		It("is read from a sequence number on, in bounded pages", Label("EVT-03"), func(ctx SpecContext) {
			id := e.thread(ctx)
			var want []int64
			for range 10 {
				ev := &store.AppendEvent{Event: store.Event{Type: "event:tick"}}
				m := message("m")
				e.apply(ctx, id, ev, &store.AppendMessage{Message: m})
				want = append(want, ev.Event.Seq, m.Seq)
			}
			var got []int64
			for last := int64(0); ; {
				events, err := e.store.Events(ctx, id, last, 3)
				Expect(err).NotTo(HaveOccurred())
				if len(events) == 0 {
					break
				}
				Expect(len(events)).To(BeNumerically("<=", 3))
				for _, ev := range events {
					got = append(got, ev.Seq)
				}
				last = events[len(events)-1].Seq
			}
			Expect(got).To(Equal(want))
		})
	})
}
