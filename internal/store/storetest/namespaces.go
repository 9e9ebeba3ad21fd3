package storetest

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// describeNamespaces is about threads that name one of another namespace. For them it does not exist.
func describeNamespaces(e *env) {
	const foreign = "other"
	untouched := func(ctx context.Context, id string, change func()) {
		GinkgoHelper()
		before := *e.info(ctx, id)
		change()
		Expect(*e.info(ctx, id)).To(Equal(before))
	}
	create := func(ctx context.Context, t store.Thread, ops ...store.Op) error {
		t.ID, t.Namespace, t.Name, t.Agent = "00000000-0000-4000-8000-00000000fffe", "default", "new", "helper"
		_, _, err := e.store.CreateThread(ctx, t, ops...)
		return err
	}

	Describe("threads of two namespaces", Label("THR-03", "SUB-01", "ENV-04", "REL-02"), func() {
		It("are not parent and child, nor origin and fork, nor related", func(ctx SpecContext) {
			theirs := e.threadIn(ctx, foreign, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: ptr("secret")}},
				&store.SetEnv{Vars: []store.EnvVar{{Name: "TOKEN", Value: []byte("sealed"), KeyID: 7}}})
			own := e.thread(ctx)
			link := store.Relationship{ThreadID: theirs, Type: store.RelationMention, Role: store.RelationChild, MessageIndex: -1}
			untouched(ctx, theirs, func() {
				Expect(create(ctx, store.Thread{ParentID: theirs, Reference: "r", Child: &store.Child{Name: "kind"}})).To(MatchError(store.ErrNotFound))
				Expect(create(ctx, store.Thread{}, &store.Fork{Origin: theirs, Newest: true})).To(MatchError(store.ErrNotFound))
				Expect(create(ctx, store.Thread{}, &store.PutRelationship{R: link})).To(MatchError(store.ErrNotFound))
				Expect(e.store.Apply(ctx, own, nil, &store.PutRelationship{R: link})).To(MatchError(store.ErrNotFound))
			})
			Expect(e.store.Children(ctx, theirs)).To(BeEmpty())
			Expect(e.store.LivingChildren(ctx, foreign, theirs)).To(BeEmpty())
		})

		It("send each other nothing", func(ctx SpecContext) {
			theirs, own := e.threadIn(ctx, foreign), e.thread(ctx)
			item := store.InboxItem{Key: "k", Kind: store.InboxMessage, Payload: []byte(`{"id":"a","role":"user","content":"x"}`)}
			untouched(ctx, theirs, func() {
				Expect(e.store.Apply(ctx, own, nil, &store.Enqueue{To: theirs, Item: item})).To(MatchError(store.ErrNotFound))
				e.apply(ctx, own, &store.Enqueue{To: theirs, Item: item, IgnoreTerminated: true})
				e.apply(ctx, own, &store.AppendMessage{To: theirs, Message: &store.Message{Role: store.RoleSystem, Content: ptr("told")}})
			})
			Expect(e.store.Inbox(ctx, theirs)).To(BeEmpty())
		})

		It("are not what an effect of the other fires for", func(ctx SpecContext) {
			theirs := e.threadIn(ctx, foreign)
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 1, ThreadID: theirs, Namespace: "default", Name: "e", Effect: "e"})).To(BeFalse())
			Expect(e.store.RecordFiring(ctx, store.Firing{EffectID: "e", Due: 1, ThreadID: theirs, Namespace: foreign, Name: "e", Effect: "e"})).To(BeTrue())
		})
	})
}
