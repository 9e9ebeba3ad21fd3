package storetest

import (
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeMessages(e *env) {
	Describe("messages", Label("MSG-01"), func() {
		It("keep every field", func(ctx SpecContext) {
			id := e.thread(ctx)
			summed := e.say(ctx, id, "hi")
			m := store.Message{
				Summary: &store.Summary{From: summed.ID, To: summed.ID, FromSeq: summed.Seq, ToSeq: summed.Seq, Messages: 1, Agent: "a", Side: "b", Prompt: "p", Model: "m"},
				ID:      "m1", Role: store.RoleAssistant, Content: ptr("text\x01 with 😀"), Name: "n", CreatedAt: 7, ParentID: "p", Depth: 2,
				ToolCalls: []store.ToolCall{{ID: "c1", Name: "sum", Arguments: `{"a":1}`}}, ToolCallID: "call", Silent: true,
				Metadata:    map[string]any{"a": "b", "n": 1.5, "deep": map[string]any{"x": []any{true, nil}}},
				Attachments: []store.Attachment{{Path: "/a.csv", Name: "a.csv", MimeType: "text/csv", Size: 3}},
				Status:      store.MessageFailed, ToolStatus: "error", ReasoningContent: "because", Side: "b", RunID: "sess_1",
				Usage: json.RawMessage(`{"in":3}`),
			}
			given := m
			op := &store.AppendMessage{Message: &given}
			e.apply(ctx, id, op)
			Expect(op.Existed).To(BeFalse())
			m.Seq = given.Seq
			Expect(Unset(m)).To(BeEmpty(), "a new field belongs into this spec")
			Expect(e.store.Message(ctx, id, "m1")).To(Equal(&m))
		})

		It("get defaults for absent fields, and keep absent content apart from empty content", func(ctx SpecContext) {
			id := e.thread(ctx)
			none := &store.Message{Role: store.RoleAssistant, ToolCalls: []store.ToolCall{{ID: "c"}}}
			empty := message("")
			e.apply(ctx, id, &store.AppendMessage{Message: none}, &store.AppendMessage{Message: empty})
			Expect(none.ID).NotTo(BeEmpty())
			Expect(none.ID).NotTo(Equal(empty.ID))
			stored, err := e.store.Message(ctx, id, none.ID)
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.Content).To(BeNil())
			Expect(stored.Status).To(Equal(store.MessageCompleted))
			Expect(stored.CreatedAt).To(Equal(e.now()))
			stored, err = e.store.Message(ctx, id, empty.ID)
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.Content).To(Equal(ptr("")))
			Expect(stored.Seq).To(BeNumerically(">", none.Seq))
		})

		It("have characters replaced that a text of a database cannot hold, in the same way in each", func(ctx SpecContext) {
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: "odd", Namespace: "n", Agent: "a", Title: "a\x00b"})
			Expect(err).NotTo(HaveOccurred())
			e.apply(ctx, "odd", &store.AppendMessage{Message: message("nul \x00 and \xff")})
			page, err := e.store.Messages(ctx, "odd", store.MessageQuery{})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Messages).To(ConsistOf(HaveField("Content", HaveValue(Equal("nul \uFFFD and \uFFFD")))))
			Expect(e.store.Thread(ctx, "odd")).To(HaveField("Title", "a\uFFFDb"))
		})

		It("do not change when the same id is appended again", func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			first := message("first")
			first.ID = "m"
			e.apply(ctx, id, &store.AppendMessage{Message: first})
			second := message("second")
			second.ID = "m"
			op := &store.AppendMessage{Message: second}
			e.apply(ctx, id, op)
			Expect(op.Existed).To(BeTrue())
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"first"}))
			Expect(e.info(ctx, id).Messages).To(Equal(int64(1)))

			elsewhere := message("elsewhere")
			elsewhere.ID = "m"
			e.apply(ctx, other, &store.AppendMessage{Message: elsewhere})
			Expect(e.texts(ctx, other, store.MessageQuery{})).To(Equal([]string{"elsewhere"}))
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"first"}))
		})

		It("are updated by merging metadata and replacing fields", Label("MSG-06"), func(ctx SpecContext) {
			id := e.thread(ctx)
			m := message("before")
			m.ID, m.Metadata = "m", map[string]any{"keep": "x", "drop": "y", "change": 1.0}
			e.apply(ctx, id, &store.AppendMessage{Message: m})
			op := &store.UpdateMessage{ID: "m", Content: ptr("after"), Metadata: map[string]any{"drop": nil, "change": 2.0, "new": true},
				Status: ptr(store.MessageFailed), ToolStatus: ptr("error"), Silent: ptr(true)}
			e.apply(ctx, id, op)
			Expect(*op.Updated.Content).To(Equal("after"))
			stored, err := e.store.Message(ctx, id, "m")
			Expect(err).NotTo(HaveOccurred())
			Expect(stored).To(Equal(op.Updated))
			Expect(stored.Metadata).To(Equal(map[string]any{"keep": "x", "change": 2.0, "new": true}))
			Expect(stored.Status).To(Equal(store.MessageFailed))
			Expect(stored.ToolStatus).To(Equal("error"))
			page, err := e.store.Messages(ctx, id, store.MessageQuery{})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Total).To(BeZero()) // it is silent now

			Expect(e.store.Apply(ctx, id, nil, &store.UpdateMessage{ID: "none"})).To(MatchError(store.ErrNotFound))
		})

		It("are deleted with the results of their tool calls", Label("MSG-06"), func(ctx SpecContext) {
			id := e.thread(ctx)
			result := func(call string) *store.Message {
				m := message("result of " + call)
				m.Role, m.ToolCallID = store.RoleTool, call
				return m
			}
			ask := message("ask")
			ask.ID, ask.Role, ask.ToolCalls = "ask", store.RoleAssistant, []store.ToolCall{{ID: "c1"}, {ID: "c2"}}
			earlier := result("c1") // of an earlier call that had the same id
			e.apply(ctx, id, &store.AppendMessage{Message: earlier}, &store.AppendMessage{Message: ask}, &store.AppendMessage{Message: result("c1")},
				&store.AppendMessage{Message: result("c2")}, &store.AppendMessage{Message: result("c3")})
			op := &store.DeleteMessage{ID: "ask"}
			e.apply(ctx, id, op)
			Expect(op.Deleted).To(BeTrue())
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"result of c1", "result of c3"}))
			Expect(e.info(ctx, id).Messages).To(Equal(int64(2)))
			_, err := e.store.Message(ctx, id, "ask")
			Expect(err).To(MatchError(store.ErrNotFound))
			again := &store.DeleteMessage{ID: "ask"}
			e.apply(ctx, id, again)
			Expect(again.Deleted).To(BeFalse())
		})
	})
}

func describePages(e *env) {
	Describe("pages of messages", Label("MSG-02"), func() {
		page := func(ctx SpecContext, id string, q store.MessageQuery) *store.MessagePage {
			GinkgoHelper()
			p, err := e.store.Messages(ctx, id, q)
			Expect(err).NotTo(HaveOccurred())
			return p
		}
		fill := func(ctx SpecContext, n int) string {
			id := e.thread(ctx)
			var ops []store.Op
			for i := range n {
				ops = append(ops, &store.AppendMessage{Message: message(fmt.Sprint(i))})
			}
			e.apply(ctx, id, ops...)
			return id
		}

		It("without order are the newest slice, oldest first", func(ctx SpecContext) {
			id := fill(ctx, 250)
			p := page(ctx, id, store.MessageQuery{})
			Expect(contents(p.Messages)).To(Equal(numbers(150, 250)))
			Expect(p.Total).To(Equal(int64(250)))
			Expect(p.HasMore).To(BeTrue())
			p = page(ctx, id, store.MessageQuery{Limit: 60, Offset: 220})
			Expect(contents(p.Messages)).To(Equal(numbers(0, 30)))
			Expect(p.HasMore).To(BeFalse())
		})

		It("asc are the oldest slice, desc the newest first", func(ctx SpecContext) {
			id := fill(ctx, 25)
			for _, offset := range []int{0, 3, 12, 20, 24} {
				p := page(ctx, id, store.MessageQuery{Order: "asc", Limit: 5, Offset: offset})
				Expect(contents(p.Messages)).To(Equal(numbers(offset, min(offset+5, 25))), "asc %d", offset)
				Expect(p.HasMore).To(Equal(offset+5 < 25))
				p = page(ctx, id, store.MessageQuery{Order: "desc", Limit: 5, Offset: offset})
				want := numbers(max(25-offset-5, 0), 25-offset)
				for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
					want[i], want[j] = want[j], want[i]
				}
				Expect(contents(p.Messages)).To(Equal(want), "desc %d", offset)
				Expect(p.HasMore).To(Equal(25-offset-5 > 0))
			}
		})

		It("past the end are empty, and have the total", func(ctx SpecContext) {
			id := fill(ctx, 3)
			for _, order := range []string{"", "asc", "desc"} {
				p := page(ctx, id, store.MessageQuery{Order: order, Offset: 3})
				Expect(p.Messages).To(BeEmpty())
				Expect(p.Messages).NotTo(BeNil())
				Expect(p.Total).To(Equal(int64(3)))
				Expect(p.HasMore).To(BeFalse())
				Expect(page(ctx, id, store.MessageQuery{Order: order, Offset: 1000}).HasMore).To(BeFalse())
			}
			Expect(page(ctx, e.thread(ctx), store.MessageQuery{})).To(Equal(&store.MessagePage{Messages: []store.Message{}}))
		})

		It("leave out silent and deeper messages unless asked for", func(ctx SpecContext) {
			id := e.thread(ctx)
			for i, kind := range []struct {
				silent bool
				depth  int
			}{{}, {silent: true}, {depth: 1}, {depth: 2}, {silent: true, depth: 1}, {}} {
				m := message(fmt.Sprint(i))
				m.Silent, m.Depth = kind.silent, kind.depth
				e.apply(ctx, id, &store.AppendMessage{Message: m})
			}
			for _, c := range []struct {
				q    store.MessageQuery
				want []string
			}{
				{store.MessageQuery{}, []string{"0", "5"}},
				{store.MessageQuery{IncludeSilent: true}, []string{"0", "1", "5"}},
				{store.MessageQuery{MaxDepth: 1}, []string{"0", "2", "5"}},
				{store.MessageQuery{MaxDepth: 1, IncludeSilent: true}, []string{"0", "1", "2", "4", "5"}},
				{store.MessageQuery{MaxDepth: 9}, []string{"0", "2", "3", "5"}},
				{store.MessageQuery{AllDepths: true}, []string{"0", "2", "3", "5"}},
				{store.MessageQuery{AllDepths: true, IncludeSilent: true}, []string{"0", "1", "2", "3", "4", "5"}},
			} {
				p := page(ctx, id, c.q)
				Expect(contents(p.Messages)).To(Equal(c.want), "%+v", c.q)
				Expect(p.Total).To(Equal(int64(len(c.want))), "%+v", c.q)
			}
			Expect(e.info(ctx, id).Messages).To(Equal(int64(6)))
		})

		It("after a sequence number continue from there", func(ctx SpecContext) {
			id := fill(ctx, 10)
			all := page(ctx, id, store.MessageQuery{Order: "asc"})
			p := page(ctx, id, store.MessageQuery{AfterSeq: all.Messages[3].Seq, Limit: 4})
			Expect(contents(p.Messages)).To(Equal(numbers(4, 8)))
			Expect(p.HasMore).To(BeTrue())
			p = page(ctx, id, store.MessageQuery{AfterSeq: p.Messages[3].Seq, Limit: 4})
			Expect(contents(p.Messages)).To(Equal(numbers(8, 10)))
			Expect(p.HasMore).To(BeFalse())
		})

		It("end with queued messages when asked to", Label("MSG-05"), func(ctx SpecContext) {
			id := fill(ctx, 5)
			silent := queued("q-silent", "hush")
			m := message("hush")
			m.ID, m.Silent = "q-silent", true
			payload, err := json.Marshal(m)
			Expect(err).NotTo(HaveOccurred())
			silent.Item.Payload = payload
			e.apply(ctx, id, queued("q5", "5"), silent, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}}, queued("q6", "6"))

			p := page(ctx, id, store.MessageQuery{IncludeQueued: true})
			Expect(contents(p.Messages)).To(Equal(numbers(0, 7)))
			Expect(p.Total).To(Equal(int64(7)))
			waits := p.Messages[5]
			Expect(waits.ID).To(Equal("q5"))
			Expect(waits.Status).To(Equal(store.MessagePending))
			Expect(waits.Metadata).To(HaveKeyWithValue("queued", true))
			Expect(p.Messages[4].Metadata).NotTo(HaveKey("queued"))

			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true, Limit: 3})).To(Equal([]string{"4", "5", "6"}))
			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true, Limit: 3, Offset: 1})).To(Equal([]string{"3", "4", "5"}))
			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true, Order: "desc", Limit: 3})).To(Equal([]string{"6", "5", "4"}))
			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true, Order: "asc", Limit: 3, Offset: 3})).To(Equal([]string{"3", "4", "5"}))
			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true, Order: "asc", Limit: 1, Offset: 6})).To(Equal([]string{"6"}))
			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true, IncludeSilent: true, Limit: 3})).To(Equal([]string{"5", "hush", "6"}))
			Expect(page(ctx, id, store.MessageQuery{}).Total).To(Equal(int64(5)))
		})
	})
}
