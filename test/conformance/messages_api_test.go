package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// conversation is a thread by the Go client, through the aggregation layer.
func conversation(t *harness.Thread) *runtimeclient.Thread {
	GinkgoHelper()
	c, err := runtimeclient.New(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	return c.Thread(t.Namespace, t.Name)
}

// numbered injects messages 0, 1, 2, … of which every fourth is silent and every fifth one level down.
func numbered(ctx context.Context, t *runtimeclient.Thread, n int) {
	GinkgoHelper()
	for i := range n {
		m := runtimev1.NewMessage{ID: fmt.Sprint("m", i), Content: fmt.Sprint(i), Silent: i%4 == 3}
		if i%5 == 4 {
			m.Depth, m.ParentID = 1, fmt.Sprint("m", i-1)
		}
		_, err := t.Inject(ctx, m)
		Expect(err).NotTo(HaveOccurred())
	}
}

func contents(l *runtimev1.MessageList) []string {
	out := []string{}
	for _, m := range l.Messages {
		out = append(out, *m.Content)
	}
	return out
}

var _ = Describe("The messages of a thread", func() {
	It("keep every field of the record, and info is a silent system message", Label("MSG-01"), func(ctx SpecContext) {
		th := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		Expect(th.WriteFile(ctx, "/in.csv", "text/csv", []byte("a,b\n"))).To(Succeed())
		t := conversation(th)
		before := time.Now().Add(-time.Minute).UnixMicro()
		sent, err := t.Inject(ctx, runtimev1.NewMessage{
			ID: "call", Role: "assistant", Name: "bot", ToolCalls: []runtimev1.ToolCall{{ID: "c1", Name: "sum", Arguments: `{"a":1}`}},
			ParentID: "root", Depth: 2, Silent: true, Metadata: map[string]any{"deep": map[string]any{"x": []any{1.5, nil, "y"}}},
			Attachments: []runtimev1.Attachment{{Path: "/in.csv"}}, Status: "failed", ReasoningContent: "because",
		})
		Expect(err).NotTo(HaveOccurred())
		got, err := t.Message(ctx, "call")
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(Equal(sent))
		Expect(got.CreatedAt).To(BeNumerically(">", before), "microseconds")
		raw, err := json.Marshal(got)
		Expect(err).NotTo(HaveOccurred())
		Expect(raw).To(MatchJSON(fmt.Sprintf(`{"id": "call", "role": "assistant", "content": null, "name": "bot",
			"tool_calls": [{"id": "c1", "name": "sum", "arguments": "{\"a\":1}"}], "created_at": %d, "parent_id": "root", "depth": 2,
			"silent": true, "metadata": {"deep": {"x": [1.5, null, "y"]}},
			"attachments": [{"path": "/in.csv", "name": "in.csv", "mimeType": "text/csv", "size": 4}],
			"status": "failed", "reasoning_content": "because"}`, got.CreatedAt)))

		result, err := t.Inject(ctx, runtimev1.NewMessage{Role: "tool", Name: "sum", ToolCallID: "c1", ToolStatus: "error", Content: "no"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Message(ctx, result.ID)).To(HaveValue(And(HaveField("ToolCallID", "c1"), HaveField("ToolStatus", "error"), HaveField("Status", "completed"))))

		info, err := t.Inject(ctx, runtimev1.NewMessage{Role: runtimev1.RoleInfo, Content: "the branch was merged"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Message(ctx, info.ID)).To(HaveValue(And(HaveField("Role", "system"), HaveField("Silent", true))))
		for _, bad := range []runtimev1.NewMessage{{Role: "robot", Content: "x"}, {Content: "x", Status: "odd"}, {Content: "x", Depth: -1}, {Content: "x", Depth: 101}, {Role: "tool", Content: "x"}, {}} {
			_, err := t.Inject(ctx, bad)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%+v: %v", bad, err)
		}
	}, SpecTimeout(2*time.Minute))

	It("come in pages, by order, silence and depth", Label("MSG-02"), func(ctx SpecContext) {
		t := conversation(converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()}))
		const n = 130
		numbered(ctx, t, n)
		var plain, all []string // of the conversation itself, and of all
		for i := range n {
			all = append(all, fmt.Sprint(i))
			if i%4 != 3 && i%5 != 4 {
				plain = append(plain, fmt.Sprint(i))
			}
		}
		page := func(o runtimeclient.MessageOptions) *runtimev1.MessageList {
			GinkgoHelper()
			l, err := t.Messages(ctx, o)
			Expect(err).NotTo(HaveOccurred())
			return l
		}
		newest := page(runtimeclient.MessageOptions{IncludeSilent: true, AllDepths: true})
		Expect(contents(newest)).To(Equal(all[n-100:]), "100 by default: the newest slice, oldest first")
		Expect(newest.Total).To(BeEquivalentTo(n))
		Expect(newest.HasMore).To(BeTrue())
		for offset := 0; offset < len(plain)+7; offset += 13 {
			o := runtimeclient.MessageOptions{Page: runtimeclient.Page{Limit: 10, Offset: offset}}
			end := max(len(plain)-offset, 0)
			want := plain[max(end-10, 0):end]
			l := page(o)
			Expect(contents(l)).To(HaveExactElements(want), "newest, offset %d", offset)
			Expect(l.Total).To(BeEquivalentTo(len(plain)))
			Expect(l.HasMore).To(Equal(end > 10), "newest, offset %d", offset)
			o.Order = "desc"
			got := contents(page(o))
			for i := range got {
				Expect(got[i]).To(Equal(want[len(want)-1-i]), "desc, offset %d", offset)
			}
			o.Order = "asc"
			l = page(o)
			Expect(contents(l)).To(HaveExactElements(plain[min(offset, len(plain)):min(offset+10, len(plain))]), "asc, offset %d", offset)
			Expect(l.HasMore).To(Equal(offset+10 < len(plain)))
		}
		Expect(page(runtimeclient.MessageOptions{MaxDepth: 1}).Total).To(BeEquivalentTo(n-n/4), "one level more, still no silent ones")
		Expect(page(runtimeclient.MessageOptions{IncludeSilent: true}).Total).To(BeEquivalentTo(n-n/5), "silent ones too, this level only")
		for _, bad := range []runtimeclient.MessageOptions{{Order: "up"}, {Page: runtimeclient.Page{Limit: 1001}}, {Page: runtimeclient.Page{Limit: -1}}, {Page: runtimeclient.Page{Offset: -1}}} {
			_, err := t.Messages(ctx, bad)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%+v: %v", bad, err)
		}
	}, SpecTimeout(2*time.Minute))

	It("are null when absent, which a missing thread is not", Label("MSG-03"), func(ctx SpecContext) {
		th := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		t := conversation(th)
		Expect(t.Message(ctx, "none")).To(BeNil())
		m, err := t.Inject(ctx, runtimev1.NewMessage{Content: "there"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.Message(ctx, m.ID)).To(Equal(m))
		_, err = conversation(cluster.Thread(th.Namespace, "nobody")).Message(ctx, m.ID)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(2*time.Minute))

	It("are injected without starting a run", Label("MSG-04"), func(ctx SpecContext) {
		th := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		t := conversation(th)
		for _, role := range []string{"user", "system", "assistant"} {
			_, err := t.Inject(ctx, runtimev1.NewMessage{Role: role, Content: "by " + role})
			Expect(err).NotTo(HaveOccurred())
		}
		// A message that does start a run shows that the injected ones had not, and that the model saw them.
		ms := say(ctx, th, 1, "go")
		Expect(texts(ms)).To(Equal([]string{"user: by user", "system: by system", "assistant: by assistant", "user: go", "assistant: echo: go"}))
		Expect(t.Runs(ctx, runtimeclient.Page{})).To(HaveField("Runs", HaveLen(1)))
	}, SpecTimeout(2*time.Minute))

	It("are updated by merging metadata and replacing fields, and deleted with the results of their calls", Label("MSG-06"), func(ctx SpecContext) {
		t := conversation(converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()}))
		_, err := t.Inject(ctx, runtimev1.NewMessage{ID: "m", Content: "before", Name: "ada", Metadata: map[string]any{"keep": "x", "drop": "y", "change": 1}})
		Expect(err).NotTo(HaveOccurred())
		text, failed := "after", runtimev1.MessageFailed
		m, err := t.UpdateMessage(ctx, "m", runtimev1.MessageUpdates{Content: &text, Metadata: map[string]any{"drop": nil, "change": 2, "new": true}, Status: &failed})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Metadata).To(Equal(map[string]any{"keep": "x", "change": 2.0, "new": true}))
		Expect(m).To(HaveValue(And(HaveField("Content", HaveValue(Equal("after"))), HaveField("Status", "failed"), HaveField("Name", "ada"))))
		Expect(t.Message(ctx, "m")).To(Equal(m))
		silent := true
		m, err = t.UpdateMessage(ctx, "m", runtimev1.MessageUpdates{Silent: &silent})
		Expect(err).NotTo(HaveOccurred())
		Expect(*m.Content).To(Equal("after"), "what is left out stays")
		Expect(t.Messages(ctx, runtimeclient.MessageOptions{})).To(HaveField("Total", BeZero()))
		_, err = t.UpdateMessage(ctx, "none", runtimev1.MessageUpdates{Content: &text})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		odd := "odd"
		_, err = t.UpdateMessage(ctx, "m", runtimev1.MessageUpdates{Status: &odd})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)

		for _, n := range []runtimev1.NewMessage{
			{ID: "ask", Role: "assistant", ToolCalls: []runtimev1.ToolCall{{ID: "c1", Name: "a", Arguments: "{}"}, {ID: "c2", Name: "b", Arguments: "{}"}}},
			{ID: "r1", Role: "tool", ToolCallID: "c1", Content: "one"}, {ID: "r2", Role: "tool", ToolCallID: "c2", Content: "two"},
			{ID: "r3", Role: "tool", ToolCallID: "c3", Content: "of another call"},
		} {
			_, err := t.Inject(ctx, n)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(t.DeleteMessage(ctx, "ask")).To(BeTrue())
		Expect(t.DeleteMessage(ctx, "ask")).To(BeFalse())
		l, err := t.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(contents(l)).To(Equal([]string{"after", "of another call"}))
		Expect(t.Message(ctx, "r1")).To(BeNil())
	}, SpecTimeout(2*time.Minute))

	It("of users wait five at most, and one more is refused with nothing lost", Label("MSG-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		th := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("hold", harness.Slow(time.Hour, harness.Answer("never"))), harness.Echo()})
		t := conversation(th)
		Expect(th.Say(ctx, "hold")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Total", BeZero())) }).Should(Succeed())
		for i := range 5 {
			m, err := t.Queue(ctx, runtimev1.NewMessage{Content: fmt.Sprint(i)})
			Expect(err).NotTo(HaveOccurred())
			Expect(m.ID).To(MatchRegexp(`^queued-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`))
		}
		_, err := t.Queue(ctx, runtimev1.NewMessage{Content: "one too many"})
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("queue")))
		queue, err := t.Queued(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(contents(queue)).To(Equal([]string{"0", "1", "2", "3", "4"}), "the five are there, in order")

		By("the system is not counted")
		_, err = t.Queue(ctx, runtimev1.NewMessage{Role: "system", Content: "from the system"})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.DeleteMessage(ctx, queue.Messages[0].ID)).To(BeTrue(), "what waits can be taken back")
		_, err = t.Queue(ctx, runtimev1.NewMessage{Content: "5"})
		Expect(err).NotTo(HaveOccurred())
		queue, err = t.Queued(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(contents(queue)).To(Equal([]string{"1", "2", "3", "4", "from the system", "5"}))
	}, SpecTimeout(2*time.Minute))

	It("tell of the life of children", Label("MSG-09"), func(ctx SpecContext) {
		ns := namespace(ctx)
		spawn := func(message string) skeinv1.ScriptStep {
			return harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": message})
		}
		th := family(ctx, ns,
			[]skeinv1.ScriptStep{
				harness.On("good", spawn("add 2 and 3")), harness.On("bad", spawn("break")), harness.On("long", spawn("hang")),
				harness.After("subagent_create", harness.Answer("started")), {Content: "noted"},
			},
			[]skeinv1.ScriptStep{harness.On("add", harness.Answer("the sum is 5")), harness.On("break", skeinv1.ScriptStep{Error: "broken"}), harness.On("hang", harness.Slow(time.Hour, harness.Answer("never")))},
			helper(func(s *skeinv1.AgentSubagent) { s.Blocking = false }))
		t := conversation(th)
		kinds := func(g Gomega) (kinds []string) {
			l, err := t.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true})
			g.Expect(err).NotTo(HaveOccurred())
			for _, m := range l.Messages {
				if kind, ok := m.Metadata["status_kind"].(string); ok && m.Role == runtimev1.RoleSystem {
					g.Expect(m.Metadata).To(HaveKeyWithValue("subagent_id", Not(BeEmpty())))
					g.Expect(*m.Content).NotTo(ContainSubstring("sum is"), "what a child says has no more weight than what a person says")
					kinds = append(kinds, kind)
				}
			}
			return kinds
		}
		Expect(th.Say(ctx, "good")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(kinds(g)).To(Equal([]string{"created", "completed"})) }).Should(Succeed())
		settled(ctx, th, 1)
		Expect(th.Say(ctx, "bad")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(kinds(g)).To(Equal([]string{"created", "completed", "created", "failed"})) }).Should(Succeed())
		settled(ctx, th, 2)
		Expect(th.Say(ctx, "long")).To(Succeed())
		var child string
		Eventually(ctx, func(g Gomega) {
			g.Expect(kinds(g)).To(HaveLen(5))
			for _, s := range subagents(ctx, ns) {
				if s.Status.Entry != nil && s.Status.Entry.Status == "running" {
					child = s.Status.Entry.ThreadName
				}
			}
			g.Expect(child).NotTo(BeEmpty())
		}).Should(Succeed())
		Expect(cluster.Thread(ns, child).Terminate(ctx)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(kinds(g)).To(Equal([]string{"created", "completed", "created", "failed", "created", "terminated"}))
		}).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("A conversation", func() {
	It("is truncated at a message, with the relationships made past it", Label("MSG-11", "REL-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		th := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.On("hold", harness.Slow(time.Hour, harness.Answer("never"))), harness.Echo()})
		create(ctx, harness.NewThread(ns, "early", "agent"), harness.NewThread(ns, "late", "agent"))
		early, late := ready(ctx, cluster.Thread(ns, "early")), ready(ctx, cluster.Thread(ns, "late"))
		t := conversation(th)
		numbered(ctx, t, 12)
		for peer, index := range map[string]int64{"early": 3, "late": 9} {
			_, err := t.Relate(ctx, runtimev1.Relationship{ThreadID: peer, Type: "mention", Role: "parent", MessageIndex: &index, Comment: "see"})
			Expect(err).NotTo(HaveOccurred())
		}
		object, err := early.Object(ctx)
		Expect(err).NotTo(HaveOccurred())
		rs, err := t.Relationships(ctx, runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(rs.Relationships).To(HaveLen(2))
		Expect(conversation(late).Relationships(ctx, runtimeclient.Page{})).To(HaveField("Relationships", ConsistOf(And(
			HaveField("Role", "child"), HaveField("MessageIndex", HaveValue(BeEquivalentTo(9))), HaveField("Comment", "see")))), "the other end has it, too")

		before, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		five := int64(5)
		old := before.V - 1
		_, err = t.Truncate(ctx, runtimev1.Truncate{MessageIndex: &five, V: &old})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		done, err := t.Truncate(ctx, runtimev1.Truncate{MessageID: "m5", V: &before.V})
		Expect(err).NotTo(HaveOccurred())
		Expect(done).To(HaveValue(Equal(runtimev1.Truncated{MessageIndex: 5, Removed: 6})))
		l, err := t.Messages(ctx, runtimeclient.MessageOptions{IncludeSilent: true, AllDepths: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(contents(l)).To(Equal([]string{"0", "1", "2", "3", "4", "5"}))
		Expect(t.Message(ctx, "m6")).To(BeNil())
		Expect(t.Relationships(ctx, runtimeclient.Page{})).To(HaveField("Relationships", ConsistOf(HaveField("ThreadID", string(object.UID)))))
		Expect(conversation(late).Relationships(ctx, runtimeclient.Page{})).To(HaveField("Relationships", BeEmpty()), "on both ends")
		Expect(conversation(early).Relationships(ctx, runtimeclient.Page{})).To(HaveField("Relationships", HaveLen(1)))

		By("keeping a link once, at a message that there is")
		six, two := int64(6), int64(2)
		_, err = t.Relate(ctx, runtimev1.Relationship{ThreadID: "late", Type: "mention", Role: "parent", MessageIndex: &six})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("give an index from 0 to 5")))
		again, err := t.Relate(ctx, runtimev1.Relationship{ThreadID: "early", Type: "mention", Role: "parent", MessageIndex: &two, Comment: "other"})
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(HaveValue(And(HaveField("MessageIndex", HaveValue(BeEquivalentTo(3))), HaveField("Comment", "see"))), "the answer is what is kept")
		Expect(t.Relationships(ctx, runtimeclient.Page{})).To(HaveField("Relationships", ConsistOf(Equal(*again))))
		log, err := th.Log(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(log[len(log)-1].Type).To(Equal("thread.truncated"))

		for _, bad := range []runtimev1.Truncate{{}, {MessageID: "none"}, {MessageID: "m1", MessageIndex: &five}, {MessageIndex: &before.V}} {
			_, err := t.Truncate(ctx, bad)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%+v: %v", bad, err)
		}
		ms := say(ctx, th, 1, "and on")
		Expect(texts(ms)[len(ms)-2:]).To(Equal([]string{"user: and on", "assistant: echo: and on"}), "it goes on from there")

		By("refusing while a run is under way, with the queue untouched")
		Expect(th.Say(ctx, "hold")).To(Succeed())
		Eventually(ctx, func(g Gomega) { g.Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Total", BeZero())) }).Should(Succeed())
		Expect(th.Say(ctx, "waits")).To(Succeed())
		_, err = t.Truncate(ctx, runtimev1.Truncate{MessageIndex: &five})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("run is under way")))
		Expect(t.Queued(ctx, runtimeclient.Page{})).To(HaveField("Total", BeEquivalentTo(1)))
	}, SpecTimeout(2*time.Minute))
})
