package storetest

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeRelated(e *env) {
	// relations gives the relationships of a thread, without the names of the other ends.
	relations := func(ctx context.Context, id string) []store.Relationship {
		GinkgoHelper()
		rs, _, err := e.store.Relationships(ctx, id, 0, 0)
		Expect(err).NotTo(HaveOccurred())
		for i := range rs {
			rs[i].Name = ""
		}
		return rs
	}

	Describe("threads that lead to each other", Label("REL-01", "REL-03", "REL-04"), func() {
		It("are stored before their objects, with a message and a relationship, and work once they are adopted", func(ctx SpecContext) {
			old := e.said(ctx, 3)
			ops := []store.Op{
				&store.Enqueue{Item: store.InboxItem{Key: "first", Kind: store.InboxMessage, Payload: []byte(`{"id":"a","role":"user","content":"x"}`)}},
				&store.PutRelationship{R: store.Relationship{ThreadID: old, Type: store.RelationHandoff, Role: store.RelationChild, MessageIndex: 2, Comment: "c"}},
				&store.Retain{},
			}
			id := e.thread(ctx, ops...)
			Expect(relations(ctx, id)).To(ConsistOf(And(HaveField("ThreadID", old), HaveField("Role", store.RelationChild), HaveField("MessageIndex", BeEquivalentTo(2)))))
			Expect(relations(ctx, old)).To(ConsistOf(And(HaveField("ThreadID", id), HaveField("Role", store.RelationParent), HaveField("Comment", "c"))))
			Expect(e.info(ctx, id).RetainedAt).NotTo(BeZero())
			Expect(e.store.Apply(ctx, id, nil, &store.Continue{})).To(MatchError(store.ErrRetained))
			Expect(e.store.Retained(ctx, "default", "", 0, 0)).To(ConsistOf(HaveField("ID", id)))

			e.apply(ctx, id, &store.Adopt{ObjectUID: "uid", Name: "new", Agent: "helper"})
			Expect(e.info(ctx, id).BelongsTo("uid")).To(BeTrue())
			Expect(e.store.Inbox(ctx, id)).To(HaveLen(1))
			Expect(relations(ctx, id)).To(HaveLen(1))

			_, _, err := e.store.CreateThread(ctx, store.Thread{ID: "00000000-0000-4000-8000-00000000ffff", Namespace: "default", Name: "late", Agent: "helper"},
				&store.PutRelationship{R: store.Relationship{ThreadID: old, Type: store.RelationHandoff, Role: store.RelationChild, MessageIndex: 3}})
			Expect(err).To(MatchError(store.ErrForkPoint), "the old thread has no such message")
			Expect(relations(ctx, old)).To(HaveLen(1), "nothing of it was stored")
		})

		It("stay related by a truncation that keeps the message, whatever was deleted before it", Label("MSG-11"), func(ctx SpecContext) {
			origin := e.said(ctx, 10)
			fork, peer := e.fork(ctx, origin, 9), e.said(ctx, 1)
			e.apply(ctx, origin, &store.PutRelationship{R: store.Relationship{ThreadID: peer, Type: store.RelationMention, Role: store.RelationParent, MessageIndex: 9}})
			page, err := e.store.Messages(ctx, origin, store.MessageQuery{Order: "asc", Limit: 2})
			Expect(err).NotTo(HaveOccurred())
			e.apply(ctx, origin, &store.DeleteMessage{ID: page.Messages[0].ID}, &store.DeleteMessage{ID: page.Messages[1].ID})

			whole := &store.Truncate{Index: 7}
			e.apply(ctx, origin, whole)
			Expect(whole.Removed).To(BeZero())
			for _, id := range []string{fork, peer} {
				Expect(relations(ctx, origin)).To(ContainElement(And(HaveField("ThreadID", id), HaveField("MessageIndex", BeEquivalentTo(9)))))
				Expect(relations(ctx, id)).To(HaveLen(1))
			}
			e.apply(ctx, origin, &store.Truncate{Index: 6})
			for _, id := range []string{origin, fork, peer} {
				Expect(relations(ctx, id)).To(BeEmpty())
			}
		})

		It("mention each other at the same time", func(ctx SpecContext) {
			ids := make([]string, 20)
			for i := range ids {
				ids[i] = e.said(ctx, 1)
			}
			Expect(together(len(ids), func(i int) error {
				for j := range ids {
					if i == j {
						continue
					}
					op := &store.PutRelationship{R: store.Relationship{ThreadID: ids[j], Type: store.RelationMention, Role: store.RelationParent, Comment: fmt.Sprint(i, j)}}
					if err := e.store.Apply(ctx, ids[i], nil, op); err != nil {
						return err
					}
				}
				return nil
			})).To(Succeed())
			for i := range ids {
				own := relations(ctx, ids[i])
				Expect(own).To(HaveLen(2 * (len(ids) - 1)))
				for _, r := range own {
					mirror := r
					mirror.ThreadID, mirror.Role = ids[i], map[string]string{store.RelationParent: store.RelationChild, store.RelationChild: store.RelationParent}[r.Role]
					Expect(relations(ctx, r.ThreadID)).To(ContainElement(mirror))
				}
			}
		})
	})
}
