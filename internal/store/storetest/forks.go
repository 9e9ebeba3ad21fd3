package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

var allMessages = store.MessageQuery{Order: "asc", Limit: 1000, IncludeSilent: true, AllDepths: true}

// fork creates a fork of a thread at an index.
func (e *env) fork(ctx SpecContext, origin string, index int64) string {
	GinkgoHelper()
	return e.thread(ctx, &store.Fork{Origin: origin, Index: index})
}

// said creates a thread with messages 0 to n-1, whose ids are m0, m1, …
func (e *env) said(ctx SpecContext, n int) string {
	GinkgoHelper()
	id := e.thread(ctx)
	for i := range n {
		m := message(fmt.Sprint(i))
		m.ID = fmt.Sprint("m", i)
		e.apply(ctx, id, &store.AppendMessage{Message: m})
	}
	return id
}

func describeForks(e *env) {
	Describe("forks", Label("REL-02"), func() {
		It("have the messages of their origin up to a point, and record that point", func(ctx SpecContext) {
			origin := e.said(ctx, 30)
			before := e.info(ctx, origin)
			byIndex := &store.Fork{Origin: origin, Index: 20}
			fork := e.thread(ctx, byIndex)
			Expect(byIndex.Messages).To(Equal(int64(21)))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, 21)))
			info := e.info(ctx, fork)
			Expect(info.OriginID).To(Equal(origin))
			Expect(info.ForkIndex).To(Equal(int64(20)))
			Expect(info.Messages).To(Equal(int64(21)))
			Expect(info.Queued).To(BeZero())
			Expect(e.info(ctx, origin).Version).To(Equal(before.Version+1), "it changes the origin too")

			byID := &store.Fork{Origin: origin, MessageID: "m7"}
			Expect(e.texts(ctx, e.thread(ctx, byID), allMessages)).To(Equal(numbers(0, 8)))
			Expect(byID.Index).To(Equal(int64(7)))
			for id, message := range map[string]string{origin: "m29", fork: "m20"} {
				e.apply(ctx, id, &store.DeleteMessage{ID: "m3"})
				index, err := e.store.MessageIndex(ctx, id, message)
				Expect(err).NotTo(HaveOccurred())
				Expect(index).To(Equal(e.info(ctx, id).Messages - 1))
				_, err = e.store.MessageIndex(ctx, id, "m3")
				Expect(err).To(MatchError(store.ErrNotFound))
			}
			origin = e.said(ctx, 30)
			page, err := e.store.Messages(ctx, fork, store.MessageQuery{Limit: 100, Order: "asc"})
			Expect(err).NotTo(HaveOccurred())
			for _, index := range []int{5, 19} {
				bySeq := &store.Fork{Origin: fork, Seq: page.Messages[index].Seq}
				want := e.texts(ctx, fork, allMessages)[:index+1]
				Expect(e.texts(ctx, e.thread(ctx, bySeq), allMessages)).To(Equal(want))
				Expect(bySeq.Index).To(BeEquivalentTo(index))
			}
			newest := &store.Fork{Origin: origin, Newest: true}
			Expect(e.texts(ctx, e.thread(ctx, newest), allMessages)).To(Equal(numbers(0, 30)))
			Expect(newest.Index).To(Equal(int64(29)))
		})

		It("are refused past the end, and for an origin that does not exist", func(ctx SpecContext) {
			origin := e.said(ctx, 3)
			for _, bad := range []*store.Fork{{Origin: origin, Index: 3}, {Origin: origin, Index: -1}, {Origin: origin, MessageID: "none"}, {Origin: origin, Seq: 1 << 40}} {
				_, created, err := e.store.CreateThread(ctx, store.Thread{ID: "refused", Namespace: "default", Agent: "a"}, bad)
				Expect(err).To(MatchError(store.ErrForkPoint))
				Expect(created).To(BeFalse())
			}
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: "refused", Namespace: "default", Agent: "a"}, &store.Fork{Origin: "nobody"})
			Expect(err).To(MatchError(store.ErrNotFound))
			_, err = e.store.Thread(ctx, "refused")
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.store.Apply(ctx, origin, nil, &store.Fork{Origin: e.said(ctx, 1)})).NotTo(Succeed(), "only a new thread is a fork")
		})

		It("and their origins do not see each other's edits, deletions and messages", func(ctx SpecContext) {
			origin := e.said(ctx, 10)
			fork := e.fork(ctx, origin, 7)
			e.apply(ctx, origin, &store.UpdateMessage{ID: "m2", Content: ptr("origin's")}, &store.DeleteMessage{ID: "m3"})
			e.apply(ctx, fork, &store.UpdateMessage{ID: "m4", Content: ptr("fork's")}, &store.DeleteMessage{ID: "m5"})
			e.say(ctx, origin, "on")
			e.say(ctx, fork, "aside")
			Expect(e.texts(ctx, origin, allMessages)).To(Equal([]string{"0", "1", "origin's", "4", "5", "6", "7", "8", "9", "on"}))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal([]string{"0", "1", "2", "3", "fork's", "6", "7", "aside"}))
			m, err := e.store.Message(ctx, fork, "m2")
			Expect(err).NotTo(HaveOccurred())
			Expect(*m.Content).To(Equal("2"))
			_, err = e.store.Message(ctx, fork, "m8")
			Expect(err).To(MatchError(store.ErrNotFound), "it is past the point")
			_, err = e.store.Message(ctx, fork, "m5")
			Expect(err).To(MatchError(store.ErrNotFound))

			again := message("again")
			again.ID = "m1"
			op := &store.AppendMessage{Message: again}
			e.apply(ctx, fork, op)
			Expect(op.Existed).To(BeTrue(), "an inherited message has the id already")
		})

		It("delete inherited results with their call", Label("MSG-06"), func(ctx SpecContext) {
			origin := e.thread(ctx)
			ask := &store.Message{ID: "ask", Role: store.RoleAssistant, ToolCalls: []store.ToolCall{{ID: "c1"}, {ID: "c2"}}}
			result := func(call string) *store.AppendMessage {
				m := message("result of " + call)
				m.Role, m.ToolCallID = store.RoleTool, call
				return &store.AppendMessage{Message: m}
			}
			e.apply(ctx, origin, &store.AppendMessage{Message: ask}, result("c1"))
			fork := e.fork(ctx, origin, 1)
			e.apply(ctx, fork, result("c2"))
			e.apply(ctx, fork, &store.DeleteMessage{ID: "ask"})
			Expect(e.texts(ctx, fork, allMessages)).To(BeEmpty())
			Expect(e.info(ctx, fork).Messages).To(BeZero())
			Expect(e.info(ctx, origin).Messages).To(Equal(int64(2)))
		})

		It("keep inherited messages when the origin is truncated and purged, until the last fork is purged", func(ctx SpecContext) {
			origin := e.said(ctx, 20)
			fork := e.fork(ctx, origin, 14)
			second := e.fork(ctx, fork, 9)
			e.apply(ctx, origin, &store.Truncate{Index: 4})
			Expect(e.texts(ctx, origin, allMessages)).To(Equal(numbers(0, 5)))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, 15)))
			e.say(ctx, origin, "on")
			third := e.fork(ctx, origin, 5)
			_, err := e.store.PurgeThread(ctx, origin)
			Expect(err).NotTo(HaveOccurred())
			_, err = e.store.Thread(ctx, origin)
			Expect(err).To(MatchError(store.ErrNotFound))
			Expect(e.texts(ctx, fork, allMessages)).To(Equal(numbers(0, 15)))
			Expect(e.texts(ctx, second, allMessages)).To(Equal(numbers(0, 10)))
			Expect(e.texts(ctx, third, allMessages)).To(Equal(append(numbers(0, 5), "on")))
			listed, _, err := e.store.Threads(ctx, store.ThreadQuery{})
			Expect(err).NotTo(HaveOccurred())
			Expect(listed).To(HaveLen(3), "the remnant is not visible")
			for _, id := range []string{fork, second, third} {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			if l, ok := e.store.(interface {
				LeftOver(context.Context) (int, int, error)
			}); ok {
				threads, messages, err := l.LeftOver(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect([]int{threads, messages}).To(Equal([]int{0, 0}))
			}
		})

		It("continue the log where the origin's messages end", func(ctx SpecContext) {
			origin := e.said(ctx, 5)
			fork := e.fork(ctx, origin, 2)
			e.say(ctx, fork, "own")
			e.apply(ctx, fork, &store.DeleteMessage{ID: "m1"})
			var got []string
			last := int64(0)
			for _, ev := range e.events(ctx, fork) {
				Expect(ev.Seq).To(BeNumerically(">", last))
				last = ev.Seq
				var m store.Message
				if ev.Data != nil {
					Expect(json.Unmarshal(ev.Data, &m)).To(Succeed())
				}
				text := ev.Type
				if m.Content != nil {
					text += " " + *m.Content
				}
				got = append(got, text)
			}
			Expect(got).To(Equal([]string{"message.created 0", "message.created", "message.created 2", "message.created own", "message.deleted"}))
			some, err := e.store.Events(ctx, fork, 1, 2)
			Expect(err).NotTo(HaveOccurred())
			Expect(some).To(HaveLen(2))
			Expect(some[0].Seq).To(Equal(int64(2)))
			page, err := e.store.Messages(ctx, fork, store.MessageQuery{AfterSeq: 1, Limit: 1})
			Expect(err).NotTo(HaveOccurred())
			Expect(contents(page.Messages)).To(Equal([]string{"2"}))
			Expect(page.HasMore).To(BeTrue())
		})

		It("have the files that the origin has at that moment", func(ctx SpecContext) {
			origin := e.said(ctx, 2)
			put := func(id, path, digest string) {
				e.apply(ctx, id, &store.PutFile{File: store.File{Path: path, Digest: digest, Size: 3}, Object: "object-" + digest, Uploaded: e.now()})
			}
			put(origin, "/a/b.txt", "d1")
			fork := e.fork(ctx, origin, 0)
			put(origin, "/a/b.txt", "d2")
			put(fork, "/c.txt", "d3")
			f, err := e.store.File(ctx, fork, "/a/b.txt")
			Expect(err).NotTo(HaveOccurred())
			Expect(f.Digest).To(Equal("d1"))
			_, err = e.store.File(ctx, origin, "/c.txt")
			Expect(err).To(MatchError(store.ErrNotFound))
			free, err := e.store.PurgeThread(ctx, origin)
			Expect(err).NotTo(HaveOccurred())
			Expect(free).To(ConsistOf("object-d2"), "the fork has the other")
		})
	})

	Describe("relationships", Label("REL-02", "MSG-11"), func() {
		relations := func(ctx SpecContext, id string) []store.Relationship {
			GinkgoHelper()
			rs, total, err := e.store.Relationships(ctx, id, 0, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(total).To(BeEquivalentTo(len(rs)))
			for i := range rs {
				Expect(rs[i].Name).To(Equal(e.info(ctx, rs[i].ThreadID).Name))
				rs[i].Name = "" // only reads have it
			}
			return rs
		}

		It("are stored at both ends, and are removed with truncated messages", func(ctx SpecContext) {
			origin := e.said(ctx, 10)
			early, late := e.fork(ctx, origin, 2), e.fork(ctx, origin, 8)
			Expect(relations(ctx, early)).To(ConsistOf(store.Relationship{
				ThreadID: origin, Type: store.RelationFork, Role: store.RelationChild, MessageIndex: 2, CreatedAt: e.now()}))
			Expect(relations(ctx, origin)).To(ConsistOf(
				store.Relationship{ThreadID: early, Type: store.RelationFork, Role: store.RelationParent, MessageIndex: 2, CreatedAt: e.now()},
				store.Relationship{ThreadID: late, Type: store.RelationFork, Role: store.RelationParent, MessageIndex: 8, CreatedAt: e.now()}))
			mention := &store.PutRelationship{R: store.Relationship{ThreadID: late, Type: store.RelationMention, Role: store.RelationChild, MessageIndex: -1, Comment: "see"}}
			e.apply(ctx, early, mention)
			e.apply(ctx, early, mention)
			Expect(relations(ctx, late)).To(ContainElement(And(HaveField("ThreadID", early), HaveField("Role", store.RelationParent), HaveField("Comment", "see"))))
			Expect(relations(ctx, early)).To(HaveLen(2))
			Expect(e.store.Apply(ctx, early, nil, &store.PutRelationship{R: store.Relationship{ThreadID: "nobody"}})).To(MatchError(store.ErrNotFound))
			page, total, err := e.store.Relationships(ctx, origin, 1, 1)
			Expect(err).NotTo(HaveOccurred())
			Expect(page).To(HaveLen(1))
			Expect(total).To(Equal(int64(2)))

			e.apply(ctx, early, &store.Truncate{Index: 1})
			Expect(relations(ctx, early)).To(HaveLen(2), "their indexes count messages of the parents")
			version := e.info(ctx, late).Version
			e.apply(ctx, origin, &store.Truncate{Index: 5})
			Expect(relations(ctx, origin)).To(ConsistOf(HaveField("ThreadID", early)))
			Expect(relations(ctx, late)).To(ConsistOf(HaveField("ThreadID", early)), "the other end is removed too")
			Expect(e.info(ctx, late).Version).To(Equal(version+1), "which changes that thread")
		})

		It("go at both ends when one end is purged, and what a fork comes from stays known", func(ctx SpecContext) {
			origin := e.said(ctx, 10)
			var forks []string
			for i := range 250 { // more than one step of a purge
				forks = append(forks, e.fork(ctx, origin, int64(i%10)))
			}
			version := e.info(ctx, origin).Version
			_, err := e.store.PurgeThread(ctx, forks[0])
			Expect(err).NotTo(HaveOccurred())
			Expect(e.info(ctx, origin).Version).To(Equal(version + 1))
			_, total, err := e.store.Relationships(ctx, origin, 1, 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(total).To(BeEquivalentTo(249))
			_, err = e.store.PurgeThread(ctx, origin)
			Expect(err).NotTo(HaveOccurred())
			for _, id := range forks[1:] {
				Expect(relations(ctx, id)).To(BeEmpty())
			}
			Expect(e.info(ctx, forks[1])).To(And(HaveField("OriginID", origin), HaveField("ForkIndex", int64(1)), HaveField("Messages", int64(2))))
		})

		It("go at both ends when the parent's conversation is destroyed", func(ctx SpecContext) {
			origin := e.said(ctx, 10)
			fork := e.fork(ctx, origin, 8)
			link := &store.PutRelationship{R: store.Relationship{ThreadID: fork, Type: store.RelationMention, Role: store.RelationParent, MessageIndex: -1}}
			e.apply(ctx, origin, link, &store.Destroy{Reason: store.DestroyedExplicit})
			Expect(relations(ctx, origin)).To(ConsistOf(HaveField("Type", store.RelationMention)), "it was made at no message")
			Expect(relations(ctx, fork)).To(ConsistOf(HaveField("Type", store.RelationMention)))
			Expect(e.texts(ctx, fork, allMessages)).To(HaveLen(9))
			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: "refused", Namespace: "default", Agent: "a"}, &store.Fork{Origin: origin, MessageID: "m1"})
			Expect(err).To(MatchError(store.ErrForkPoint))
		})

		It("are listed with those of a child first, then the newest", func(ctx SpecContext) {
			origin := e.said(ctx, 3)
			middle := e.fork(ctx, origin, 2)
			var want []string
			for range 5 {
				e.clock.Step(time.Second)
				want = append([]string{e.fork(ctx, middle, 1)}, want...)
			}
			rs, total, err := e.store.NewestRelationships(ctx, middle, 4)
			Expect(err).NotTo(HaveOccurred())
			Expect(total).To(Equal(int64(6)))
			ids := []string{}
			for _, r := range rs {
				ids = append(ids, r.ThreadID)
			}
			Expect(ids).To(Equal(append([]string{origin}, want[:3]...)))
			rs, total, err = e.store.NewestRelationships(ctx, e.thread(ctx), 4)
			Expect(err).NotTo(HaveOccurred())
			Expect(total).To(BeZero())
			Expect(rs).To(BeEmpty())
		})

		It("are created once, at a message that the parent has", Label("REL-01"), func(ctx SpecContext) {
			one, other := e.said(ctx, 3), e.said(ctx, 5)
			at := func(role string, index int64) *store.PutRelationship {
				return &store.PutRelationship{R: store.Relationship{ThreadID: other, Type: store.RelationMention, Role: role, MessageIndex: index, Comment: fmt.Sprint(index)}}
			}
			Expect(e.store.Apply(ctx, one, nil, at(store.RelationParent, 3))).To(MatchError(store.ErrForkPoint))
			Expect(e.store.Apply(ctx, one, nil, at(store.RelationChild, 5))).To(MatchError(store.ErrForkPoint))
			Expect(relations(ctx, one)).To(BeEmpty())
			Expect(relations(ctx, other)).To(BeEmpty())

			answers := make([]*store.PutRelationship, 20)
			Expect(together(len(answers), func(i int) error {
				answers[i] = at(store.RelationChild, int64(i%5))
				return e.store.Apply(ctx, one, nil, answers[i])
			})).To(Succeed())
			kept := relations(ctx, one)
			Expect(kept).To(HaveLen(1))
			made := 0
			for _, a := range answers {
				Expect(a.Kept).To(Equal(kept[0]), "each call returns the stored relationship")
				if !a.Existed {
					made++
				}
			}
			Expect(made).To(Equal(1))
			mirrored := relations(ctx, other)
			Expect(mirrored).To(ConsistOf(And(HaveField("ThreadID", one), HaveField("MessageIndex", kept[0].MessageIndex), HaveField("Role", store.RelationParent))))
		})
	})

	Describe("truncation", Label("MSG-11"), func() {
		It("removes later messages, leaves their creation in the log, and the thread continues from there", func(ctx SpecContext) {
			id := e.said(ctx, 20)
			e.apply(ctx, id, queued("q", "waits"))
			version := e.info(ctx, id).Version
			op := &store.Truncate{MessageID: "m11", ExpectVersion: &version}
			e.apply(ctx, id, op)
			Expect(op.Index).To(Equal(int64(11)))
			Expect(op.Removed).To(Equal(int64(8)))
			Expect(e.texts(ctx, id, allMessages)).To(Equal(numbers(0, 12)))
			Expect(e.inbox(ctx, id)).To(HaveLen(1), "the queue is untouched")
			types := e.eventTypes(ctx, id)
			Expect(types).To(HaveLen(30))
			Expect(types[20:]).To(HaveExactElements(store.EventMessageQueued, "message.deleted", "message.deleted", "message.deleted", "message.deleted",
				"message.deleted", "message.deleted", "message.deleted", "message.deleted", store.EventTruncated))
			e.say(ctx, id, "on")
			Expect(e.texts(ctx, id, allMessages)).To(Equal(append(numbers(0, 12), "on")))
			Expect(e.store.Apply(ctx, id, nil, &store.Truncate{Index: 13})).To(MatchError(store.ErrForkPoint))
			Expect(e.store.Apply(ctx, id, nil, &store.Truncate{Index: 1, ExpectVersion: &version})).To(MatchError(store.ErrConflict))
			all := &store.Truncate{Index: -1}
			e.apply(ctx, id, all)
			Expect(all.Removed).To(Equal(int64(13)))
			Expect(e.texts(ctx, id, allMessages)).To(BeEmpty())
		})

		It("is refused every time past the end, also under concurrent writes", func(ctx SpecContext) {
			id := e.said(ctx, 3)
			Expect(together(32, func(int) error {
				for range 5 {
					m := message("in the same transaction")
					err := e.store.Apply(ctx, id, nil, &store.AppendMessage{Message: m}, &store.Truncate{Index: 99})
					if !errors.Is(err, store.ErrForkPoint) {
						return fmt.Errorf("it was not refused: %w", err)
					}
				}
				return nil
			})).To(Succeed())
			Expect(e.texts(ctx, id, allMessages)).To(HaveLen(3))
		})

		It("is refused while a run is running or waiting", func(ctx SpecContext) {
			id := e.said(ctx, 3)
			for _, status := range []store.RunStatus{store.RunRunning, store.RunWaiting} {
				e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: status}})
				Expect(e.store.Apply(ctx, id, nil, &store.Truncate{Index: 0})).To(MatchError(store.ErrRunning))
			}
			e.apply(ctx, id, &store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: store.RunSucceeded}})
			e.apply(ctx, id, &store.Truncate{Index: 0})
		})
	})
}

func numbers(from, to int) []string {
	texts := []string{}
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}
