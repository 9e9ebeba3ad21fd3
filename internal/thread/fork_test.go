package thread_test

import (
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("A fork", Label("REL-02"), func() {
	It("has what the origin had, except its mode, caps, skills, queue and values", func(ctx SpecContext) {
		e := newEnv(ctx)
		_, _, err := e.Create(ctx, thread.NewThread{Thread: store.Thread{
			ID: "origin", Namespace: "default", Name: "origin", Agent: "helper", UserID: "ada", Title: "Plan",
			Fields: store.Fields{AgentMode: "deep", MaxTokens: 5, ActivatedSkills: []store.SkillActivation{{Name: "s"}}, Draft: "d",
				Workspace: &store.Workspace{Tags: []string{"t"}, Trees: []json.RawMessage{json.RawMessage(`{"uri":"file:///a"}`)}}},
		}})
		Expect(err).NotTo(HaveOccurred())
		origin := e.open(ctx, "origin")
		for i := range 5 {
			_, err := origin.Inject(ctx, thread.NewMessage{ID: fmt.Sprint("m", i), Content: ptr(fmt.Sprint(i))})
			Expect(err).NotTo(HaveOccurred())
		}
		write(ctx, origin, "/a.txt", "bytes")
		_, err = origin.Queue(ctx, thread.NewMessage{Content: ptr("waits")})
		Expect(err).NotTo(HaveOccurred())
		Expect(origin.SetValue(ctx, "k", json.RawMessage(`1`))).To(Succeed())
		before := len(e.objects())

		made, created, err := e.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: "fork", Name: "fork"}}, thread.ForkOf{ThreadID: "origin", Index: 2})
		Expect(err).NotTo(HaveOccurred())
		Expect(created).To(BeTrue())
		Expect(made).To(HaveValue(And(
			HaveField("Title", "Forked: Plan"), HaveField("Agent", "helper"), HaveField("UserID", "ada"), HaveField("Namespace", "default"),
			HaveField("OriginID", "origin"), HaveField("ForkIndex", int64(2)), HaveField("Messages", int64(3)), HaveField("Queued", BeZero()),
			HaveField("Fields", store.Fields{Workspace: &store.Workspace{Tags: []string{"t"}, Trees: []json.RawMessage{json.RawMessage(`{"uri":"file:///a"}`)}}}),
		)))
		fork := e.open(ctx, "fork")
		Expect(fork.Value(ctx, "k")).To(BeNil())
		text, ok := read(ctx, fork, "/a.txt")
		Expect(ok).To(BeTrue())
		Expect(text).To(Equal("bytes"))
		Expect(e.objects()).To(HaveLen(before), "no bytes were copied")
		Expect(fork.FileStats(ctx)).To(HaveValue(And(HaveField("FileCount", int64(1)), HaveField("TotalSize", int64(5)))))

		again, created, err := e.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: "fork", Name: "fork"}}, thread.ForkOf{ThreadID: "origin", Index: 4})
		Expect(err).NotTo(HaveOccurred())
		Expect(created).To(BeFalse())
		Expect(again.Messages).To(Equal(int64(3)))
		deeper, _, err := e.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: "deeper", Name: "deeper"}}, thread.ForkOf{ThreadID: "fork", MessageID: "m1"})
		Expect(err).NotTo(HaveOccurred())
		Expect(deeper.Title).To(Equal("Forked(2): Plan"))
		Expect(deeper.Messages).To(Equal(int64(2)))

		Expect(e.Purge(ctx, "origin")).To(Succeed())
		text, _ = read(ctx, fork, "/a.txt")
		Expect(text).To(Equal("bytes"))
		Expect(fork.Message(ctx, "m2")).To(HaveValue(HaveField("Content", HaveValue(Equal("2")))))
	})

	It("is refused past the end, and the error says which messages exist", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "origin")
		n := thread.NewThread{Thread: store.Thread{ID: "fork", Name: "fork"}}
		_, _, err := e.Fork(ctx, n, thread.ForkOf{ThreadID: "origin"})
		Expect(err).To(beInvalid("messageIndex", "has no messages"))
		_, err = st.Inject(ctx, thread.NewMessage{Content: ptr("one")})
		Expect(err).NotTo(HaveOccurred())
		_, _, err = e.Fork(ctx, n, thread.ForkOf{ThreadID: "origin", Index: 1})
		Expect(err).To(beInvalid("messageIndex", "from 0 to 0"))
		_, _, err = e.Fork(ctx, n, thread.ForkOf{ThreadID: "origin", MessageID: "none"})
		Expect(err).To(beInvalid("messageId", `"none"`))
		_, _, err = e.Fork(ctx, n, thread.ForkOf{ThreadID: "nobody"})
		Expect(err).To(MatchError(store.ErrNotFound))
		_, _, err = st.Truncate(ctx, thread.Truncation{Index: 3})
		Expect(err).To(beInvalid("messageIndex", "from 0 to 0"))
	})

	It("is refused while the origin is being purged, and the error does not ask for messages", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "origin")
		_, err := st.Inject(ctx, thread.NewMessage{ID: "m", Content: ptr("one")})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Store().MarkDeleted(ctx, "origin", "origin")).To(Succeed())
		Expect(e.Store().Apply(ctx, "origin", nil, &store.Destroy{})).To(Succeed()) // so it is until its rows are removed
		for _, of := range []thread.ForkOf{{Newest: true}, {Index: 0}, {MessageID: "m"}} {
			_, err := e.ForkPoint(ctx, "origin", of)
			Expect(err).To(MatchError(store.ErrObjectDeleted))
			of.ThreadID = "origin"
			_, _, err = e.Fork(ctx, thread.NewThread{Thread: store.Thread{ID: "fork", Name: "fork"}}, of)
			Expect(err).To(And(MatchError(store.ErrNotFound), Not(MatchError(store.ErrObjectDeleted))), "it is not the object of the fork")
		}
		_, _, err = st.Truncate(ctx, thread.Truncation{Index: 0})
		Expect(err).To(MatchError(store.ErrObjectDeleted))
	})

	DescribeTable("has a title", func(title, want string) { Expect(thread.ForkTitle(title)).To(Equal(want)) },
		Entry("from its origin", "Plan", "Forked: Plan"),
		Entry("with a count for the fork of a fork", "Forked: Plan", "Forked(2): Plan"),
		Entry("with the next count", "Forked(41): Plan", "Forked(42): Plan"),
		Entry("when the origin has none", "", "Forked: Untitled"),
		Entry("when the origin's only looks like a fork's", "Forked(x): Plan", "Forked: Forked(x): Plan"),
		Entry("when the origin's has two lines", "Forked: a\nb", "Forked(2): a\nb"),
	)
})

var _ = Describe("Relationships", func() {
	It("are checked", Label("REL-01"), func(ctx SpecContext) {
		e := newEnv(ctx)
		a, b := e.create(ctx, "a"), e.create(ctx, "b")
		good := store.Relationship{ThreadID: "b", Type: store.RelationMention, Role: store.RelationChild, MessageIndex: -1}
		for field, edit := range map[string]func(*store.Relationship){
			"type":         func(r *store.Relationship) { r.Type = store.RelationFork },
			"role":         func(r *store.Relationship) { r.Role = "uncle" },
			"threadID":     func(r *store.Relationship) { r.ThreadID = "a" },
			"messageIndex": func(r *store.Relationship) { r.MessageIndex = -2 },
		} {
			bad := good
			edit(&bad)
			_, _, err := a.Relate(ctx, bad)
			Expect(err).To(beInvalid(field, ""))
		}
		beyond := good
		beyond.MessageIndex = 0
		_, _, err := a.Relate(ctx, beyond)
		Expect(err).To(beInvalid("messageIndex", "b has no messages"))
		_, err = b.Inject(ctx, thread.NewMessage{Content: ptr("one")})
		Expect(err).NotTo(HaveOccurred())
		beyond.MessageIndex = 1
		_, _, err = a.Relate(ctx, beyond)
		Expect(err).To(beInvalid("messageIndex", "b has 1 messages: give an index from 0 to 0"))
		missing := good
		missing.ThreadID = "missing"
		_, _, err = a.Relate(ctx, missing)
		Expect(err).To(And(MatchError(thread.ErrNoPeer), MatchError(store.ErrNotFound)))
		kept, existed, err := a.Relate(ctx, good)
		Expect(err).NotTo(HaveOccurred())
		Expect(existed).To(BeFalse())
		beyond.MessageIndex = 0
		again, existed, err := a.Relate(ctx, beyond)
		Expect(err).NotTo(HaveOccurred())
		Expect(existed).To(BeTrue())
		Expect(again).To(Equal(kept), "the call returns the stored relationship")
		rs, total, err := a.Relationships(ctx, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(rs).To(HaveLen(1))
		Expect(total).To(Equal(int64(1)))
	})
})
