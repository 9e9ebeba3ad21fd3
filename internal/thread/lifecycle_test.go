package thread_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("creating a thread", Label("THR-03"), func() {
	given := func() thread.NewThread {
		return thread.NewThread{
			Thread:  store.Thread{ID: "t1", Namespace: "team", Name: "orders", Agent: "analyst", TaskID: "task-1", Arguments: json.RawMessage(`{"a":1}`)},
			Message: "hello",
		}
	}

	It("is idempotent, and queues the first message once", func(ctx SpecContext) {
		e := newEnv(ctx)
		for i := range 3 {
			t, created, err := e.Create(ctx, given())
			Expect(err).NotTo(HaveOccurred())
			Expect(created).To(Equal(i == 0))
			Expect(t.TaskID).To(Equal("task-1"))
			Expect(t.Arguments).To(MatchJSON(`{"a":1}`))
		}
		page, err := e.open(ctx, "t1").QueuedMessages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		waiting := page.Messages
		Expect(waiting).To(HaveLen(1))
		Expect(*waiting[0].Content).To(Equal("hello"))
		Expect(waiting[0].Role).To(Equal(store.RoleUser))
		Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{"t1"}))
	})

	It("from many callers at once creates one", func(ctx SpecContext) {
		e := newEnv(ctx)
		var made atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				defer GinkgoRecover()
				_, created, err := e.Create(ctx, given())
				Expect(err).NotTo(HaveOccurred())
				if created {
					made.Add(1)
				}
			})
		}
		wg.Wait()
		Expect(made.Load()).To(Equal(int32(1)))
		Expect(e.open(ctx, "t1").QueuedMessages(ctx, store.MessageQuery{})).To(HaveField("Messages", HaveLen(1)))
	})

	It("copies attachments from the parent, for the first message", Label("FIL-07"), func(ctx SpecContext) {
		e := newEnv(ctx)
		parent := e.create(ctx, "parent")
		write(ctx, parent, "/data/orders.csv", "a,b\n")
		write(ctx, parent, "/old/orders.csv", "c,d\n")
		n := given()
		n.Namespace = "default"
		n.ParentID, n.AttachFrom, n.Attachments = "parent", "parent", []string{"/data/orders.csv", "old/orders.csv"}
		_, _, err := e.Create(ctx, n)
		Expect(err).NotTo(HaveOccurred())
		child := e.open(ctx, "t1")
		page, err := child.QueuedMessages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		waiting := page.Messages
		Expect(waiting[0].Attachments).To(Equal([]store.Attachment{
			{Path: "/attachments/orders.csv", Name: "orders.csv", MimeType: "text/csv", Size: 4},
			{Path: "/attachments/orders-2.csv", Name: "orders-2.csv", MimeType: "text/csv", Size: 4},
		}))
		data, _ := read(ctx, child, "/attachments/orders-2.csv")
		Expect(data).To(Equal("c,d\n"))

		// The child's files are its own from now on.
		write(ctx, child, "/attachments/orders.csv", "changed")
		_, _, err = e.Create(ctx, n)
		Expect(err).NotTo(HaveOccurred())
		data, _ = read(ctx, child, "/attachments/orders.csv")
		Expect(data).To(Equal("changed"))
		data, _ = read(ctx, parent, "/data/orders.csv")
		Expect(data).To(Equal("a,b\n"))
	})

	It("creates nothing when an attachment is missing", func(ctx SpecContext) {
		e := newEnv(ctx)
		e.create(ctx, "parent")
		n := given()
		n.Namespace = "default"
		n.AttachFrom, n.Attachments = "parent", []string{"/none.csv"}
		_, _, err := e.Create(ctx, n)
		Expect(err).To(beInvalid("attachments", "there is no file /none.csv"))
		_, err = e.Open(ctx, "t1")
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	It("copies no files of a thread in another namespace", Label("THR-01"), func(ctx SpecContext) {
		e := newEnv(ctx)
		write(ctx, e.create(ctx, "parent"), "/secret.csv", "a,b\n")
		n := given()
		Expect(n.Namespace).NotTo(Equal("default"))
		n.AttachFrom, n.Attachments = "parent", []string{"/secret.csv"}
		_, _, err := e.Create(ctx, n)
		Expect(err).To(MatchError(store.ErrNotFound))
		_, err = e.Open(ctx, "t1")
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	DescribeTable("reports what is missing", func(ctx SpecContext, spoil func(*thread.NewThread), field, text string) {
		n := given()
		spoil(&n)
		_, _, err := newEnv(ctx).Create(ctx, n)
		Expect(err).To(beInvalid(field, text))
	},
		Entry("an id", func(n *thread.NewThread) { n.ID = "" }, "id", "UID"),
		Entry("a namespace", func(n *thread.NewThread) { n.Namespace = "" }, "namespace", "needs a namespace"),
		Entry("an agent", func(n *thread.NewThread) { n.Agent = "" }, "agent", "name the one that runs it"),
		Entry("where attachments are", func(n *thread.NewThread) { n.Attachments = []string{"/a"} }, "attachments", "name the thread"),
		Entry("arguments that are an object", func(n *thread.NewThread) { n.Arguments = json.RawMessage(`[1]`) }, "arguments", "JSON object"),
	)
})

var _ = Describe("threads", Label("THR-01"), func() {
	It("have messages, files and values of their own", func(ctx SpecContext) {
		e := newEnv(ctx)
		one := e.create(ctx, "one")
		_, _, err := e.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "two", Namespace: "default", Agent: "a", ParentID: "one"}})
		Expect(err).NotTo(HaveOccurred())
		two := e.open(ctx, "two")
		write(ctx, one, "/a.txt", "of one")
		Expect(one.SetValue(ctx, "k", json.RawMessage(`1`))).To(Succeed())
		_, err = one.Inject(ctx, thread.NewMessage{ID: "m", Content: ptr("of one")})
		Expect(err).NotTo(HaveOccurred())
		_, err = one.Queue(ctx, thread.NewMessage{ID: "q", Content: ptr("of one")})
		Expect(err).NotTo(HaveOccurred())

		_, ok := read(ctx, two, "/a.txt")
		Expect(ok).To(BeFalse())
		Expect(two.Value(ctx, "k")).To(BeNil())
		Expect(two.Message(ctx, "m")).To(BeNil())
		Expect(two.QueuedMessages(ctx, store.MessageQuery{})).To(HaveField("Messages", BeEmpty()))
		page, err := two.Messages(ctx, store.MessageQuery{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Messages).To(BeEmpty())
		listing, err := two.ReadDir(ctx, "/")
		Expect(err).NotTo(HaveOccurred())
		Expect(listing.Entries).To(BeEmpty())
		Expect(two.FindFiles(ctx, "**")).To(HaveField("Paths", BeEmpty()))
	})
})

var _ = Describe("the life of a thread", Label("THR-04"), func() {
	It("goes from creation to runs, then idle and readable, and continues with the next message", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		for turn := range 2 {
			_, err := st.Queue(ctx, thread.NewMessage{Content: ptr(fmt.Sprint("question ", turn))})
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Runnable(ctx, 1)).To(Equal([]string{"t"}))

			fence, err := e.store.Acquire(ctx, "t", "worker", time.Minute)
			Expect(err).NotTo(HaveOccurred())
			run := st.WithFence(fence)
			waiting, err := e.store.Inbox(ctx, "t")
			Expect(err).NotTo(HaveOccurred())
			var m store.Message
			Expect(json.Unmarshal(waiting[0].Payload, &m)).To(Succeed())
			Expect(run.Apply(ctx, &store.AppendMessage{Message: &m}, &store.Dequeue{Seqs: []int64{waiting[0].Seq}})).To(Succeed())
			_, err = run.Inject(ctx, thread.NewMessage{Role: store.RoleAssistant, Content: ptr(fmt.Sprint("answer ", turn))})
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Release(ctx, fence)).To(Succeed())

			Expect(e.store.Runnable(ctx, 1)).To(BeEmpty())
			page, err := st.Messages(ctx, store.MessageQuery{})
			Expect(err).NotTo(HaveOccurred())
			Expect(page.Messages).To(HaveLen(2 * (turn + 1)))
			Expect(page.Messages[2*turn].Status).To(Equal(store.MessageCompleted))
			Expect(page.Messages[2*turn].Metadata).NotTo(HaveKey("queued"))

			_, err = run.Inject(ctx, thread.NewMessage{Content: ptr("after the end")})
			Expect(err).To(MatchError(store.ErrFenced))
			Expect(run.SetValue(ctx, "k", json.RawMessage(`1`))).To(MatchError(store.ErrFenced))
		}
	})

	It("ends with no new work and everything still readable", Label("THR-05"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		write(ctx, st, "/a", "x")
		_, err := st.Queue(ctx, thread.NewMessage{Content: ptr("waits")})
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Terminate(ctx, "TerminatedByRequest")).To(Succeed())
		Expect(st.Terminate(ctx, "again")).To(Succeed())
		info, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.TerminatedAt).To(Equal(e.clock.Now().UnixMicro()))
		Expect(info.TerminatedReason).To(Equal("TerminatedByRequest"))
		_, err = st.Queue(ctx, thread.NewMessage{Content: ptr("late")})
		Expect(err).To(MatchError(store.ErrTerminated))
		Expect(err).To(MatchError(ContainSubstring("start a new thread")))
		data, _ := read(ctx, st, "/a")
		Expect(data).To(Equal("x"))
	})

	It("refuses writes of a call that began before its end", Label("THR-05"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		kept, err := st.Inject(ctx, thread.NewMessage{Content: ptr("kept")})
		Expect(err).NotTo(HaveOccurred())
		bound := st.WhileActive()
		Expect(bound.SetValue(ctx, "k", json.RawMessage(`1`))).To(Succeed())
		keyed, err := bound.Idempotent("key", func() string { return "same" })
		Expect(err).NotTo(HaveOccurred())
		first, err := keyed.Inject(ctx, thread.NewMessage{Content: ptr("first"), IdempotencyKey: "key"})
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Terminate(ctx, "TerminatedByRequest")).To(Succeed())
		before, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())

		_, err = bound.Inject(ctx, thread.NewMessage{Content: ptr("late")})
		Expect(err).To(MatchError(store.ErrTerminated))
		_, err = bound.UpdateMessage(ctx, kept.ID, thread.MessageUpdate{Content: ptr("changed")})
		Expect(err).To(MatchError(store.ErrTerminated))
		_, err = bound.WriteFile(ctx, "/late", strings.NewReader("x"), thread.WriteFileOptions{})
		Expect(err).To(MatchError(store.ErrTerminated))
		Expect(e.objects()).To(BeEmpty(), "the upload is removed")
		Expect(bound.SetValue(ctx, "k", json.RawMessage(`2`))).To(MatchError(store.ErrTerminated))
		Expect(bound.Emit(ctx, "late", json.RawMessage(`1`))).To(MatchError(store.ErrTerminated))

		again, err := bound.Idempotent("key", func() string { return "same" })
		Expect(err).NotTo(HaveOccurred())
		repeated, err := again.Inject(ctx, thread.NewMessage{Content: ptr("first"), IdempotencyKey: "key"})
		Expect(err).NotTo(HaveOccurred(), "a repeat returns the first result")
		Expect(repeated.ID).To(Equal(first.ID))
		after, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Version).To(Equal(before.Version))
	})

	It("ends with a purge that removes its contents, except those that another thread has", Label("THR-09"), func(ctx SpecContext) {
		e := newEnv(ctx)
		one, two := e.create(ctx, "one"), e.create(ctx, "two")
		write(ctx, one, "/own", "own")
		write(ctx, one, "/shared", "shared")
		write(ctx, two, "/other-name", "shared")
		Expect(e.objects()).To(HaveLen(2))
		Expect(e.Purge(ctx, "one")).To(Succeed())
		Expect(e.Purge(ctx, "one")).To(Succeed())
		Expect(e.objects()).To(HaveLen(1))
		data, _ := read(ctx, two, "/other-name")
		Expect(data).To(Equal("shared"))
		_, err := one.Info(ctx)
		Expect(err).To(MatchError(store.ErrNotFound))
		_, err = e.Open(ctx, "one")
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	It("includes custom events", Label("EVT-01"), func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		Expect(st.Emit(ctx, "progress", json.RawMessage(`{"step":3}`))).To(Succeed())
		events, err := e.store.Events(ctx, "t", 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(events).To(HaveLen(1))
		Expect(events[0].Type).To(Equal("event:progress"))
		Expect(events[0].Data).To(MatchJSON(`{"step":3}`))
		Expect(st.Emit(ctx, "no spaces", nil)).To(beInvalid("event", "letters, digits"))
		Expect(st.Emit(ctx, "", nil)).To(beInvalid("event", "starts with a letter"))
		Expect(st.Emit(ctx, "x", json.RawMessage(`{`))).To(beInvalid("data", "not valid JSON"))
	})
})
