package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

func contents(l *runtimev1.MessageList) []string {
	var out []string
	for _, m := range l.Messages {
		out = append(out, *m.Content)
	}
	return out
}

var _ = Describe("messages and queue", func() {
	It("injects without starting execution and lists with all fields", Label("MSG-01", "MSG-04"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		sent, err := t.Inject(ctx, runtimev1.NewMessage{
			ID: "m1", Role: "assistant", Content: "hi", Name: "bot", Silent: true, Metadata: map[string]any{"k": 1.5},
			ToolCalls: []runtimev1.ToolCall{{ID: "c1", Name: "add", Arguments: `{"a":1}`}},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.rights.last()).To(Equal("alice create threads/messages ns/hello"))
		list, err := t.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Messages).To(Equal([]runtimev1.Message{*sent}))
		Expect(list.Kind).To(Equal("MessageList"))
		Expect(sent).To(And(
			HaveField("ID", "m1"), HaveField("Role", "assistant"), HaveField("Content", HaveValue(Equal("hi"))), HaveField("Name", "bot"),
			HaveField("Silent", true), HaveField("Metadata", HaveKeyWithValue("k", 1.5)), HaveField("Status", "completed"),
			HaveField("ToolCalls", ConsistOf(runtimev1.ToolCall{ID: "c1", Name: "add", Arguments: `{"a":1}`})),
			HaveField("CreatedAt", BeNumerically(">", int64(1e15))),
		))
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Messages", BeEmpty()), "silent ones are left out")
		Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Total", BeZero()), "nothing waits, so nothing starts")

		one, err := t.Message(ctx, "m1")
		Expect(err).NotTo(HaveOccurred())
		Expect(one).To(Equal(sent))
		Expect(t.Message(ctx, "nope")).To(BeNil())
		_, err = e.client().Thread("ns", "nobody").Message(ctx, "m1")
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "no thread is an error, no message is not: %v", err)
	})

	It("pages", Label("MSG-01"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		for i := range 5 {
			_, err := t.Inject(ctx, runtimev1.NewMessage{Content: fmt.Sprint(i)})
			Expect(err).NotTo(HaveOccurred())
		}
		page := func(o runtimeclient.MessageOptions) *runtimev1.MessageList {
			l, err := t.Messages(ctx, o)
			Expect(err).NotTo(HaveOccurred())
			Expect(l.Total).To(Equal(int64(5)))
			return l
		}
		two := runtimeclient.Page{Limit: 2}
		newest := page(runtimeclient.MessageOptions{Page: two})
		Expect(contents(newest)).To(Equal([]string{"3", "4"}))
		Expect(newest.HasMore).To(BeTrue())
		Expect(contents(page(runtimeclient.MessageOptions{Page: two, Order: "asc"}))).To(Equal([]string{"0", "1"}))
		Expect(contents(page(runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: 2, Offset: 4}, Order: "asc"}))).To(Equal([]string{"4"}))
		Expect(contents(page(runtimeclient.MessageOptions{Page: two, Order: "desc"}))).To(Equal([]string{"4", "3"}))
	})

	It("queues durably and shows what waits", Label("MSG-05"), func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		_, err := t.WriteFile(ctx, "/in.csv", strings.NewReader("a,b\n"), runtimeclient.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		sent, err := t.Queue(ctx, runtimev1.NewMessage{Content: "go", Attachments: []runtimev1.Attachment{{Path: "in.csv"}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(sent.Status).To(Equal("pending"))
		Expect(sent.Metadata).To(HaveKeyWithValue("queued", true))
		Expect(sent.Attachments).To(ConsistOf(runtimev1.Attachment{Path: "/in.csv", Name: "in.csv", MimeType: "text/csv", Size: 4}))
		Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Messages", ConsistOf(*sent)))
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Messages", ConsistOf(*sent)))
		Expect(e.svc.Store().Runnable(ctx, 10)).To(ConsistOf(st.ID()), "an idle thread starts")
	})

	It("repeats of a write under an idempotency key change nothing", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		first, err := t.Queue(ctx, runtimev1.NewMessage{Content: "go", IdempotencyKey: "k"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Queue(ctx, runtimev1.NewMessage{Content: "go", IdempotencyKey: "k"})).To(HaveField("ID", first.ID))
		resp, _ := e.do("POST", at("hello", "/queue"), strings.NewReader(`{"content":"go"}`), runtimev1.HeaderIdempotencyKey, "k")
		Expect(resp.StatusCode).To(Equal(http.StatusCreated))
		Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(1)))
	})

	It("refuses another message under a used idempotency key, and knows a repeat after an edit of the first one", Label("MSG-10"), func(ctx SpecContext) {
		e := newEnv()
		st, t := e.thread("hello")
		for _, path := range []string{"a.csv", "b.csv"} {
			_, err := st.WriteFile(ctx, path, strings.NewReader("1,2"), thread.WriteFileOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		for name, write := range map[string]func(context.Context, runtimev1.NewMessage) (*runtimev1.Message, error){"/queue": t.Queue, "/messages": t.Inject} {
			m := runtimev1.NewMessage{Content: "go", IdempotencyKey: "k", Attachments: []runtimev1.Attachment{{Path: "a.csv"}}}
			first, err := write(ctx, m)
			Expect(err).NotTo(HaveOccurred(), name)
			refused := func(change func(*runtimev1.NewMessage)) {
				GinkgoHelper()
				other := m
				change(&other)
				_, err := write(ctx, other)
				Expect(err).To(And(kind(runtimeclient.ErrInvalid), MatchError(ContainSubstring("this key was used for another request"))), name)
			}
			again := func(m runtimev1.NewMessage) {
				GinkgoHelper()
				Expect(write(ctx, m)).To(HaveField("ID", first.ID), name)
			}
			refused(func(n *runtimev1.NewMessage) { n.Content = "stay" })
			refused(func(n *runtimev1.NewMessage) { n.Role = runtimev1.RoleSystem })
			refused(func(n *runtimev1.NewMessage) { n.Attachments = []runtimev1.Attachment{{Path: "b.csv"}} })
			refused(func(n *runtimev1.NewMessage) { n.Attachments = nil })
			s := e.status("POST", at("hello", name), `{"content":"stay"}`, runtimev1.HeaderIdempotencyKey, "k")
			Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid), "the key of a body is used for a header too")
			again(m)
			m.Role, m.Attachments = runtimev1.RoleUser, []runtimev1.Attachment{{Path: "/a.csv"}}
			again(m)

			Expect(st.Apply(ctx, &store.AppendMessage{Message: &store.Message{ID: first.ID, Role: store.RoleUser, Content: ptr.To("go")}})).To(Succeed(), "a run takes it")
			_, err = st.UpdateMessage(ctx, first.ID, thread.MessageUpdate{Content: ptr.To("edited since")})
			Expect(err).NotTo(HaveOccurred())
			again(m)
			refused(func(n *runtimev1.NewMessage) { n.Content = "edited since" })
		}
		Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(1)))
	})

	It("refuses more than may wait, with 429 and Retry-After", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		for range 5 {
			_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "x"})
			Expect(err).NotTo(HaveOccurred())
		}
		_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "one too many"})
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		resp, _ := e.do("POST", at("hello", "/queue"), strings.NewReader(`{"content":"x"}`))
		Expect(resp.Header.Get("Retry-After")).To(Equal("1"))
	})

	It("refuses new work of a terminated thread and still reads", Label("MSG-05"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		_, err := t.Inject(ctx, runtimev1.NewMessage{Content: "before"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Terminate(ctx)).To(Succeed())
		rec, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.Terminated).To(HaveValue(BeNumerically(">", 0)))
		Expect(rec.TerminatedReason).To(Equal("TerminatedByRequest"))
		_, err = t.Queue(ctx, runtimev1.NewMessage{Content: "after"})
		Expect(apierrors.IsGone(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("terminated")))
		_, err = t.ExecuteCode(ctx, runtimev1.CodeRequest{Source: "export default () => 1"})
		Expect(apierrors.IsGone(err)).To(BeTrue(), "%v", err)
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Messages", HaveLen(1)))
		Expect(t.Terminate(ctx)).To(Succeed(), "again is no error")
	})

	DescribeTable("refuses bad bodies, saying what to do",
		func(sub, body, reason, field, message string) {
			e := newEnv()
			e.thread("hello")
			s := e.status("POST", at("hello", sub), body)
			Expect(string(s.Reason)).To(Equal(reason))
			Expect(s.Message).To(ContainSubstring(message))
			if field != "" {
				Expect(s.Details.Causes).To(ContainElement(HaveField("Field", field)))
			}
		},
		Entry("empty", "/queue", "", "BadRequest", "", "empty"),
		Entry("no JSON", "/queue", "{", "BadRequest", "", "JSON"),
		Entry("wrong type", "/queue", `{"content":5}`, "Invalid", "content", "number"),
		Entry("unknown field", "/queue", `{"contents":"x"}`, "Invalid", "contents", `unknown field "contents"`),
		Entry("field twice", "/queue", `{"content":"x","content":"y"}`, "Invalid", "content", "duplicate"),
		Entry("role", "/messages", `{"role":"robot","content":"x"}`, "Invalid", "role", "system, user, assistant or tool"),
		Entry("queued role", "/queue", `{"role":"assistant","content":"x"}`, "Invalid", "role", "POST messages"),
		Entry("nothing to say", "/queue", `{}`, "Invalid", "content", "content"),
		Entry("no such attachment", "/queue", `{"content":"x","attachments":[{"path":"/nowhere"}]}`, "Invalid", "", "/nowhere"),
		Entry("long content", "/queue", `{"content":"`+strings.Repeat("x", runtimev1.MaxContentBytes+1)+`"}`, "Invalid", "content", "write a long text to a file"),
		Entry("large body", "/queue", `{"content":"`+strings.Repeat("x", runtimev1.MaxBodyBytes)+`"}`, "RequestEntityTooLarge", "", "1048576"),
	)

	It("refuses a body that is not declared as JSON", func() {
		e := newEnv()
		e.thread("hello")
		s := e.status("POST", at("hello", "/queue"), `content=x`, "Content-Type", "application/x-www-form-urlencoded")
		Expect(s.Reason).To(Equal(metav1.StatusReasonUnsupportedMediaType))
	})

	DescribeTable("refuses bad query parameters, naming each",
		func(rest string, fields ...string) {
			e := newEnv()
			e.thread("hello")
			s := e.status("GET", at("hello", rest), "")
			Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid))
			var got []string
			for _, c := range s.Details.Causes {
				got = append(got, c.Field)
				Expect(s.Message).To(ContainSubstring(c.Field))
			}
			Expect(got).To(ConsistOf(fields))
		},
		Entry("limit", "/messages?limit=many", "limit"),
		Entry("too large", "/messages?limit=1001", "limit"),
		Entry("zero", "/messages?limit=0", "limit"),
		Entry("several", "/messages?limit=x&offset=-1&order=up&includeSilent=maybe", "limit", "offset", "order", "includeSilent"),
		Entry("twice", "/messages?limit=1&limit=2", "limit"),
		Entry("unknown", "/messages?limits=1", "limits"),
		Entry("depth", "/messages?maxDepth=-2", "maxDepth"),
		Entry("after", "/events?after=x", "after"),
		Entry("after the end", "/events?after=99", "after"),
		Entry("runs", "/runs?limit=no", "limit"),
		Entry("files", "/files?glob=*&prefix=/a", "glob"),
	)
})
