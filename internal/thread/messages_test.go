package thread_test

import (
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("injecting a message", Label("MSG-04"), func() {
	It("appends it and starts nothing", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		m, err := st.Inject(ctx, thread.NewMessage{Role: store.RoleSystem, Content: ptr("note"), Silent: true, Name: "n", Metadata: map[string]any{"k": "v"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
		stored, err := st.Message(ctx, m.ID)
		Expect(err).NotTo(HaveOccurred())
		Expect(stored).To(Equal(m))
		Expect(m.ID).To(HavePrefix("msg_"))
		Expect(m.CreatedAt).To(Equal(e.clock.Now().UnixMicro()))
		Expect(m.Status).To(Equal(store.MessageCompleted))
		page, err := st.Messages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(BeEmpty(), "it is silent")
	})

	It("with an idempotency key or an id returns the first result again", Label("MSG-10"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st, other := e.create(ctx, "t"), e.create(ctx, "other")
		for _, n := range []thread.NewMessage{{IdempotencyKey: "k"}, {ID: "my-id"}} {
			n.Content = ptr("first")
			first, err := st.Inject(ctx, n)
			Expect(err).NotTo(HaveOccurred())
			n.Content = ptr("second")
			again, err := st.Inject(ctx, n)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(first))
			elsewhere, err := other.Inject(ctx, n)
			Expect(err).NotTo(HaveOccurred())
			Expect(*elsewhere.Content).To(Equal("second"))
		}
		info, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Messages).To(Equal(int64(2)))
	})

	It("fills in its attachments, which must exist", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		write(ctx, st, "/a.csv", "1,2")
		given := []store.Attachment{{Path: "a.csv"}}
		m, err := st.Inject(ctx, thread.NewMessage{Attachments: given})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Attachments).To(Equal([]store.Attachment{{Path: "/a.csv", Name: "a.csv", MimeType: "text/csv", Size: 3}}))
		Expect(given[0].Path).To(Equal("a.csv"))
		_, err = st.Inject(ctx, thread.NewMessage{Attachments: []store.Attachment{{Path: "/none"}}})
		Expect(err).To(beInvalid("attachments", "there is no file /none"))
	})

	DescribeTable("refuses invalid messages", func(ctx SpecContext, n thread.NewMessage, field, text string) {
		st := newEnv(ctx).create(ctx, "t")
		for _, call := range []func() (*store.Message, error){
			func() (*store.Message, error) { return st.Inject(ctx, n) },
			func() (*store.Message, error) { return st.Queue(ctx, n) },
		} {
			_, err := call()
			Expect(err).To(beInvalid(field, text))
		}
	},
		Entry("an unknown role", thread.NewMessage{Role: "robot", Content: ptr("x")}, "role", "system, user, assistant or tool"),
		Entry("no content", thread.NewMessage{}, "content", "needs content"),
		Entry("a tool result without a call", thread.NewMessage{Role: store.RoleTool, Content: ptr("x")}, "tool_call_id", "names the call"),
		Entry("content that is too large", thread.NewMessage{Content: ptr(strings.Repeat("x", 1<<20))}, "message", "write large data to a file"),
		Entry("an id that is too long", thread.NewMessage{ID: strings.Repeat("x", 201), Content: ptr("x")}, "id", "at most 200 bytes"),
		Entry("metadata that is not JSON", thread.NewMessage{Content: ptr("x"), Metadata: map[string]any{"f": func() {}}}, "message", "cannot be written as JSON"),
	)
})

var _ = Describe("a message", func() {
	It("is nil when absent", Label("MSG-03"), func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		Expect(st.Message(ctx, "none")).To(BeNil())
	})

	It("is updated and deleted", Label("MSG-06"), func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		m, err := st.Inject(ctx, thread.NewMessage{Content: ptr("a"), Metadata: map[string]any{"x": "1"}})
		Expect(err).NotTo(HaveOccurred())
		updated, err := st.UpdateMessage(ctx, m.ID, thread.MessageUpdate{Content: ptr("b"), Metadata: map[string]any{"y": "2"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(*updated.Content).To(Equal("b"))
		Expect(updated.Metadata).To(Equal(map[string]any{"x": "1", "y": "2"}))
		_, err = st.UpdateMessage(ctx, m.ID, thread.MessageUpdate{Status: ptr(store.MessageStatus("odd"))})
		Expect(err).To(beInvalid("status", "pending, completed or failed"))
		_, err = st.UpdateMessage(ctx, "none", thread.MessageUpdate{})
		Expect(err).To(MatchError(store.ErrNotFound))
		Expect(st.DeleteMessage(ctx, m.ID)).To(BeTrue())
		Expect(st.DeleteMessage(ctx, m.ID)).To(BeFalse())
	})
})

var _ = Describe("a page of messages", Label("MSG-02"), func() {
	It("refuses invalid parameters", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		for field, q := range map[string]store.MessageQuery{
			"limit": {Limit: 1001}, "offset": {Offset: -1}, "maxDepth": {MaxDepth: -1}, "order": {Order: "up"},
		} {
			_, err := st.Messages(ctx, q)
			Expect(err).To(beInvalid(field, "give"))
		}
	})
})

var _ = Describe("queueing a message", Label("MSG-05"), func() {
	It("is durable and ordered, wakes the thread, and shows as pending until it is taken", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		_, err := st.Inject(ctx, thread.NewMessage{Content: ptr("stored")})
		Expect(err).NotTo(HaveOccurred())
		var sent []string
		for i := range 3 {
			m, err := st.Queue(ctx, thread.NewMessage{Content: ptr(fmt.Sprint("queued ", i)), Metadata: map[string]any{"n": "x"}})
			Expect(err).NotTo(HaveOccurred())
			Expect(m.ID).To(HavePrefix("queued-"))
			sent = append(sent, m.ID)
		}
		Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{"t"}))
		page, err := st.Messages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Total).To(Equal(int64(4)))
		for i, m := range page.Messages[1:] {
			Expect(m.ID).To(Equal(sent[i]))
			Expect(m.Status).To(Equal(store.MessagePending))
			Expect(m.Metadata).To(Equal(map[string]any{"n": "x", "queued": true}))
			Expect(st.Message(ctx, m.ID)).To(Equal(&m))
		}
		waiting, err := st.QueuedMessages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(waiting.Messages).To(Equal(page.Messages[1:]))
		Expect(waiting.Total).To(Equal(int64(3)))
	})

	It("with an idempotency key or an id happens once, also after it was taken", Label("MSG-10"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		for _, n := range []thread.NewMessage{{IdempotencyKey: "k"}, {ID: "my-id"}} {
			n.Content = ptr("once")
			first, err := st.Queue(ctx, n)
			Expect(err).NotTo(HaveOccurred())
			Expect(st.Queue(ctx, n)).To(Equal(first))
			items, err := e.store.Inbox(ctx, "t")
			Expect(err).NotTo(HaveOccurred())
			Expect(items).To(HaveLen(1))
			var m store.Message
			Expect(json.Unmarshal(items[0].Payload, &m)).To(Succeed())
			Expect(st.Apply(ctx, &store.AppendMessage{Message: &m}, &store.Dequeue{Seqs: []int64{items[0].Seq}})).To(Succeed())
			again, err := st.Queue(ctx, n)
			Expect(err).NotTo(HaveOccurred())
			Expect(again.ID).To(Equal(first.ID))
			Expect(again.Status).To(Equal(store.MessageCompleted))
			Expect(st.QueuedMessages(ctx, store.MessageQuery{})).To(HaveField("Messages", BeEmpty()))
		}
	})

	It("is refused beyond the limit, which does not count system messages", Label("MSG-07"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		send := func(system bool) error {
			_, err := st.Queue(ctx, thread.NewMessage{Content: ptr("x"), FromSystem: system})
			return err
		}
		for range 3 {
			Expect(send(true)).To(Succeed())
		}
		for range 5 {
			Expect(send(false)).To(Succeed())
		}
		err := send(false)
		Expect(err).To(MatchError(store.ErrQueueFull))
		Expect(err).To(MatchError(ContainSubstring("5 wait already")))
		Expect(send(true)).To(Succeed())
		Expect(st.QueuedMessages(ctx, store.MessageQuery{})).To(HaveField("Messages", HaveLen(9)))
	})

	It("is refused with metadata that takes far more memory than bytes", Label("MSG-01"), func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		var small []any
		for range 50_000 {
			small = append(small, map[string]any{"a": nil})
		}
		_, err := st.Queue(ctx, thread.NewMessage{Content: ptr("x"), Metadata: map[string]any{"small": small}})
		Expect(err).To(MatchError(ContainSubstring("many small values")))
		_, err = st.Queue(ctx, thread.NewMessage{Content: ptr("x"), Metadata: map[string]any{"large": strings.Repeat("x", 900_000)}})
		Expect(err).NotTo(HaveOccurred())
	})

	It("is subject to the configured limit", Label("MSG-07"), func(ctx SpecContext) {
		one := newEnv(ctx, func(o *thread.Options) { o.MaxQueued = 1 }).create(ctx, "t")
		endless := newEnv(ctx, func(o *thread.Options) { o.MaxQueued = -1 }).create(ctx, "t")
		for i := range 20 {
			_, err := endless.Queue(ctx, thread.NewMessage{Content: ptr("x")})
			Expect(err).NotTo(HaveOccurred())
			if _, err = one.Queue(ctx, thread.NewMessage{Content: ptr("x")}); i > 0 {
				Expect(err).To(MatchError(store.ErrQueueFull))
			}
		}
	})
})

var _ = Describe("key-values", Label("KVS-01"), func() {
	It("are any JSON, nil when missing, removed by null", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		Expect(st.Value(ctx, "k")).To(BeNil())
		for _, v := range []string{`{"a":[1,"x",null]}`, `"text"`, `0`, `false`, `[]`} {
			Expect(st.SetValue(ctx, "k", json.RawMessage(v))).To(Succeed())
			Expect(st.Value(ctx, "k")).To(MatchJSON(v))
		}
		for _, none := range []string{"null", "", " null\n"} {
			Expect(st.SetValue(ctx, "k", json.RawMessage(`1`))).To(Succeed())
			Expect(st.SetValue(ctx, "k", json.RawMessage(none))).To(Succeed())
			Expect(st.Value(ctx, "k")).To(BeNil(), "%q", none)
		}
	})

	It("refuse values that are not JSON or too large, and empty keys", func(ctx SpecContext) {
		st := newEnv(ctx).create(ctx, "t")
		Expect(st.SetValue(ctx, "k", json.RawMessage(`{x}`))).To(beInvalid("value", "not valid JSON"))
		Expect(st.SetValue(ctx, "k", json.RawMessage(`"`+strings.Repeat("x", 1<<20)+`"`))).To(beInvalid("value", "keep large data in a file"))
		Expect(st.SetValue(ctx, "", json.RawMessage(`1`))).To(beInvalid("key", "1 to 512 bytes"))
		Expect(st.SetValue(ctx, "a\x00b", json.RawMessage(`1`))).To(beInvalid("key", "without NUL"))
		_, err := st.Value(ctx, strings.Repeat("k", 513))
		Expect(err).To(beInvalid("key", "1 to 512 bytes"))
	})
})
