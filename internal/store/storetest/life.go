package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeLife(e *env) {
	const ttl = time.Minute
	running := func(id string) *store.PutRun {
		return &store.PutRun{Run: store.Run{ID: id, Agent: "helper", Status: store.RunRunning}}
	}

	Describe("clearing a conversation", func() {
		It("removes messages, inbox and run, keeps files and values, and logs all of it", Label("THR-06", "LOG-03"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.say(ctx, id, "one")
			e.apply(ctx, id, queued("m2", "two"), &store.PutValue{Key: "k", Value: []byte(`1`)})
			f, err := e.store.Acquire(ctx, id, "me", ttl)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Apply(ctx, id, f, running("sess_1"))).To(Succeed())
			e.apply(ctx, id, &store.UpdateThread{EditFields: func(f *store.Fields) error {
				f.AgentMode, f.ActivatedSkills = "deep", []store.SkillActivation{{Name: "sql"}}
				return nil
			}})
			seen := e.info(ctx, id).LastSeq

			op := &store.Destroy{Reason: store.DestroyedExplicit}
			e.apply(ctx, id, op)
			Expect(op.Done).To(BeTrue())
			Expect(e.store.Apply(ctx, id, f, &store.AppendMessage{Message: message("late")})).To(MatchError(store.ErrFenced))
			t := e.info(ctx, id)
			Expect(*t).To(And(HaveField("Messages", BeZero()), HaveField("Queued", BeZero()), HaveField("DestroyedReason", "explicit"), HaveField("DestroyedAt", e.now()),
				HaveField("Fields", store.Fields{AgentMode: "deep"})))
			Expect(e.texts(ctx, id, store.MessageQuery{IncludeQueued: true})).To(BeEmpty())
			Expect(e.inbox(ctx, id)).To(BeEmpty())
			Expect(e.store.Run(ctx, id, "")).To(HaveValue(And(HaveField("Status", store.RunStopped), HaveField("Reason", "Destroyed"))))
			Expect(e.store.Value(ctx, id, "k")).To(MatchJSON(`1`))
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			events := e.events(ctx, id)
			for i, ev := range events {
				Expect(ev.Seq).To(Equal(int64(i+1)), "the log has no gaps")
			}
			last := events[len(events)-1]
			Expect(last.Seq).To(BeNumerically(">", seen))
			Expect(last.Type).To(Equal(store.EventDestroyed))
			Expect(last.Data).To(MatchJSON(`{"reason":"explicit","messages":1}`))
			Expect(e.eventTypes(ctx, id)).To(ContainElements(store.EventMessageCreated, store.EventMessageDeleted, store.EventRunEnded))

			e.say(ctx, id, "again")
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"again"}))
		})
	})

	It("can happen within a run, which continues", Label("THR-06", "AGT-09"), func(ctx SpecContext) {
		id := e.thread(ctx)
		e.say(ctx, id, "one")
		f, err := e.store.Acquire(ctx, id, "me", ttl)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.store.Apply(ctx, id, f, running("sess_1"))).To(Succeed())
		e.apply(ctx, id, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxMessage, Payload: []byte(`{"id":"m2","role":"user"}`)}})
		op := &store.Destroy{Reason: store.DestroyedExplicit, Within: true}
		Expect(e.store.Apply(ctx, id, f, op, &store.AppendMessage{Message: message("first")})).To(Succeed())
		Expect(op.Done).To(BeTrue())
		Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"first"}))
		Expect(e.store.Run(ctx, id, "")).To(HaveValue(HaveField("Status", store.RunRunning)))
		Expect(e.info(ctx, id).DestroyedReason).To(Equal("explicit"))
		Expect(e.eventTypes(ctx, id)).To(ContainElements(store.EventMessageDeleted, store.EventDestroyed))
		Expect(e.store.Inbox(ctx, id)).To(HaveLen(1), "queued items are for the next run")
	})

	Describe("idle expiry", func() {
		const hour = int64(3600e6)
		expire := func(ctx SpecContext, id string) bool {
			GinkgoHelper()
			op := &store.Destroy{Reason: store.DestroyedExpired, IfExpired: true}
			e.apply(ctx, id, op)
			return op.Done
		}
		due := func(ctx SpecContext) []string {
			GinkgoHelper()
			ids, err := e.store.Expired(ctx, 10)
			Expect(err).NotTo(HaveOccurred())
			return ids
		}

		It("does not end a conversation whose object is being deleted, because its data may still be saved", Label("THR-07", "THR-09"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.say(ctx, id, "one")
			e.apply(ctx, id, &store.SetIdleExpiry{Expiry: hour})
			Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed())
			e.clock.Step(2 * time.Hour)
			Expect(expire(ctx, id)).To(BeFalse())
			Expect(due(ctx)).To(BeEmpty())
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"one"}))
		})

		It("counts from the last activity, and expires once after each", Label("THR-07"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.say(ctx, id, "one")
			e.apply(ctx, id, &store.SetIdleExpiry{Expiry: hour})
			e.clock.Step(59 * time.Minute)
			Expect(due(ctx)).To(BeEmpty())
			e.say(ctx, id, "two")
			version := e.info(ctx, id).Version
			e.clock.Step(2 * time.Minute)
			Expect(due(ctx)).To(Equal([]string{id}), "the check is due")
			Expect(expire(ctx, id)).To(BeFalse(), "but something has happened")
			Expect(due(ctx)).To(BeEmpty())
			Expect(e.info(ctx, id).Version).To(Equal(version), "the check does not change the thread")
			e.clock.Step(58 * time.Minute)
			Expect(due(ctx)).To(Equal([]string{id}))
			Expect(expire(ctx, id)).To(BeTrue())
			Expect(e.info(ctx, id).DestroyedReason).To(Equal("expired"))
			e.clock.Step(24 * time.Hour)
			Expect(due(ctx)).To(BeEmpty(), "nothing is left to expire")
			e.say(ctx, id, "three")
			e.clock.Step(time.Hour)
			Expect(due(ctx)).To(Equal([]string{id}))
			Expect(expire(ctx, id)).To(BeTrue())
			e.say(ctx, id, "four")
			e.apply(ctx, id, &store.SetIdleExpiry{})
			e.clock.Step(24 * time.Hour)
			Expect(due(ctx)).To(BeEmpty())
			Expect(expire(ctx, id)).To(BeFalse())
		})

		It("spares threads that run, wait, have queued or held items, or are leased", Label("THR-07"), func(ctx SpecContext) {
			waiting := running("sess_1")
			waiting.Run.Status = store.RunWaiting
			held := &store.Enqueue{Item: store.InboxItem{Kind: store.InboxHook, Payload: []byte(`{"hook":"h"}`)}}
			for what, busy := range map[string]store.Op{"running": running("sess_1"), "waiting": waiting, "queued": queued("m", "hi"), "a hook is held": held, "held": nil} {
				id := e.thread(ctx)
				e.say(ctx, id, "one")
				e.apply(ctx, id, &store.SetIdleExpiry{Expiry: hour})
				if busy != nil {
					e.apply(ctx, id, busy)
				}
				if busy == held {
					e.apply(ctx, id, &store.Delay{Seq: held.Seq, Until: e.now() + 10*hour, Tries: 1})
				}
				e.clock.Step(time.Hour)
				if busy == nil {
					_, err := e.store.Acquire(ctx, id, "external:me", ttl)
					Expect(err).NotTo(HaveOccurred())
				}
				Expect(due(ctx)).To(ContainElement(id), what)
				Expect(expire(ctx, id)).To(BeFalse(), what)
				Expect(due(ctx)).NotTo(ContainElement(id), what)
				Expect(e.info(ctx, id).Messages).To(Equal(int64(1)), what)
			}
		})

		It("stands still for a thread without an object, and begins anew with the next one", Label("THR-07", "THR-09"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.say(ctx, id, "one")
			e.apply(ctx, id, &store.SetIdleExpiry{Expiry: hour})
			still := func(what string) {
				GinkgoHelper()
				e.clock.Step(2 * time.Hour)
				Expect(due(ctx)).To(BeEmpty(), what)
			}
			Expect(e.store.MarkDeleted(ctx, id, id)).To(Succeed())
			e.clock.Step(time.Hour)
			Expect(due(ctx)).To(ContainElement(id), "its timer was set before")
			Expect(expire(ctx, id)).To(BeFalse())
			still("being deleted")
			e.apply(ctx, id, &store.UpdateThread{Title: new("another")})
			still("being deleted, and changed")
			e.apply(ctx, id, &store.Retain{Of: id})
			still("retained")

			retained := e.thread(ctx)
			e.say(ctx, retained, "one")
			e.apply(ctx, retained, &store.SetIdleExpiry{Expiry: hour}, &store.Retain{Of: retained})
			e.clock.Step(time.Hour)
			Expect(due(ctx)).To(ContainElement(retained), "its timer was set before")
			Expect(expire(ctx, retained)).To(BeFalse())
			Expect(due(ctx)).To(BeEmpty())
			for _, id := range []string{id, retained} {
				e.apply(ctx, id, &store.Adopt{ObjectUID: "next " + id, Name: "next-" + id, Agent: "helper"})
			}
			Expect(due(ctx)).To(BeEmpty())
			e.clock.Step(time.Hour)
			Expect(due(ctx)).To(ConsistOf(id, retained))
			Expect(expire(ctx, id)).To(BeTrue())
		})
	})

	Describe("parking", func() {
		It("keeps queued items until a user's message or Continue", Label("MSG-08"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("m1", "one"))
			e.apply(ctx, id, &store.Park{})
			Expect(e.info(ctx, id).Parked).To(BeTrue())
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			e.apply(ctx, id, queued("m2", "by itself"))
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			said := queued("m3", "from a user")
			said.Unpark = true
			e.apply(ctx, id, said)
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{id}))
			Expect(e.info(ctx, id).Parked).To(BeFalse())
			Expect(e.inbox(ctx, id)).To(HaveLen(3))

			e.apply(ctx, id, &store.Park{})
			op := &store.Continue{}
			e.apply(ctx, id, op)
			Expect(op.Was).To(BeTrue())
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{id}))
			e.apply(ctx, id, op)
			Expect(op.Was).To(BeFalse())
			e.apply(ctx, id, &store.Terminate{})
			Expect(e.store.Apply(ctx, id, nil, op)).To(MatchError(store.ErrTerminated))
		})

		It("does nothing while an item in the inbox matches Unless", func(ctx SpecContext) {
			one, two := queued("m1", "one"), queued("m2", "two")
			two.Item.Key = "two"
			id := e.thread(ctx, one, two)
			park := &store.Park{Unless: func(item store.InboxItem) bool {
				return item.Key == "two" && item.Kind == store.InboxMessage && len(item.Payload) > 0
			}}
			e.apply(ctx, id, park)
			Expect(e.info(ctx, id).Parked).To(BeFalse())
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{id}))
			e.apply(ctx, id, &store.Dequeue{Seqs: []int64{two.Seq}}, park)
			Expect(e.info(ctx, id).Parked).To(BeTrue())
			Expect(e.inbox(ctx, id)).To(HaveLen(1))
		})
	})

	Describe("retaining", func() {
		It("keeps everything, accepts nothing new, and ends when an object adopts the thread", Label("THR-09"), func(ctx SpecContext) {
			id := e.thread(ctx, queued("m1", "one"))
			e.say(ctx, id, "said")
			f, err := e.store.Acquire(ctx, id, "me", ttl)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.Apply(ctx, id, f, running("sess_1"))).To(Succeed())
			Expect(e.store.Apply(ctx, id, nil, &store.Adopt{ObjectUID: "other", Name: "other", Agent: "helper"})).To(MatchError(store.ErrNotRetained))
			Expect(e.store.Apply(ctx, id, nil, &store.MarkForPurge{})).To(MatchError(store.ErrNotRetained))

			Expect(e.store.Apply(ctx, id, nil, &store.Retain{Of: "another object"})).To(MatchError(store.ErrNotRetained))
			Expect(e.info(ctx, id).RetainedAt).To(BeZero())
			e.apply(ctx, id, &store.Retain{Of: id})
			e.apply(ctx, id, &store.Retain{Of: id}, &store.Retain{}) // repeating it is no error
			t := e.info(ctx, id)
			Expect(t.RetainedAt).To(Equal(e.now()))
			Expect(t.BelongsTo(id)).To(BeFalse())
			Expect(e.store.Run(ctx, id, "")).To(HaveValue(HaveField("Status", store.RunStopped)))
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			Expect(e.inbox(ctx, id)).To(HaveLen(1))
			for _, op := range []store.Op{queued("m2", "no"), &store.AppendMessage{Message: message("no")}, &store.PutValue{Key: "k", Value: []byte("1")}, &store.Terminate{}, &store.Destroy{}} {
				Expect(e.store.Apply(ctx, id, nil, op)).To(MatchError(store.ErrRetained), "%T", op)
			}
			child := e.thread(ctx)
			result := queued("m3", "dropped")
			result.To, result.IgnoreTerminated = id, true
			e.apply(ctx, child, result)
			Expect(e.inbox(ctx, id)).To(HaveLen(1))
			Expect(e.store.Retained(ctx, t.Namespace, "", 10, 0)).To(HaveExactElements(HaveField("ID", id)))
			Expect(e.store.Retained(ctx, t.Namespace, id, 10, 0)).To(BeEmpty())
			Expect(e.store.Retained(ctx, "elsewhere", "", 10, 0)).To(BeEmpty())
			other := e.thread(ctx)
			owned := []store.ThreadOwner{{ThreadID: child, Name: e.info(ctx, child).Name, UID: child}, {ThreadID: other, Name: e.info(ctx, other).Name, UID: other}}
			slices.SortFunc(owned, func(a, b store.ThreadOwner) int { return strings.Compare(a.ThreadID, b.ThreadID) })
			Expect(e.store.Owned(ctx, t.Namespace, "", 10)).To(Equal(owned))
			Expect(e.store.Owned(ctx, t.Namespace, "", 1)).To(Equal(owned[:1]))
			Expect(e.store.Owned(ctx, t.Namespace, owned[0].ThreadID, 10)).To(Equal(owned[1:]))
			Expect(e.store.Owned(ctx, "elsewhere", "", 10)).To(BeEmpty())
			var derived []string
			for i, namespace := range []string{"default", "elsewhere", "default", "default"} {
				d := fmt.Sprintf("00000000-0000-5000-8000-%012d", i)
				_, _, err := e.store.CreateThread(ctx, store.Thread{ID: d, Namespace: namespace, Name: "d", Agent: "a"}, &store.Retain{})
				Expect(err).NotTo(HaveOccurred())
				derived = append(derived, d)
			}
			e.apply(ctx, derived[2], &store.Adopt{ObjectUID: "uid-d", Name: "d", Agent: "a"})
			Expect(e.store.Owned(ctx, "default", "", 10)).To(ContainElement(store.ThreadOwner{ThreadID: derived[2], Name: "d", UID: "uid-d"}))
			e.apply(ctx, derived[2], &store.Retain{}) // it had an object
			e.apply(ctx, derived[3], &store.MarkForPurge{})
			first, err := e.store.Undeclared(ctx, "", 1)
			Expect(err).NotTo(HaveOccurred())
			Expect(first).To(HaveExactElements(HaveField("ID", derived[0])))
			Expect(e.store.Undeclared(ctx, derived[0], 10)).To(HaveExactElements(HaveField("ID", derived[1])))
			Expect(e.store.Undeclared(ctx, derived[1], 10)).To(BeEmpty())

			adopt := &store.Adopt{ObjectUID: "uid-2", Name: "second", Agent: "other"}
			e.apply(ctx, id, adopt)
			e.apply(ctx, id, adopt) // repeating it is no error
			t = e.info(ctx, id)
			Expect(*t).To(And(HaveField("Name", "second"), HaveField("Agent", "other"), HaveField("DeclaredAgent", "other"), HaveField("OriginAgent", "helper"), HaveField("RetainedAt", BeZero()), HaveField("RootID", id)))
			Expect(t.BelongsTo("uid-2")).To(BeTrue())
			Expect(t.OwnerUID()).To(Equal("uid-2"))
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{id}))
			Expect(e.texts(ctx, id, store.MessageQuery{})).To(Equal([]string{"said"}))
			Expect(e.store.Apply(ctx, id, nil, &store.Adopt{ObjectUID: "uid-3", Name: "third", Agent: "a"})).To(MatchError(store.ErrNotRetained))
		})

		It("belongs to a namespace, not to its name, and is listed when it is old", Label("THR-09", "K8S-09"), func(ctx SpecContext) {
			id, other := e.thread(ctx), e.thread(ctx)
			e.apply(ctx, id, &store.Retain{NamespaceUID: "ns-1"})
			Expect(e.info(ctx, id).Within("ns-1")).To(BeTrue())
			Expect(e.info(ctx, id).Within("ns-2")).To(BeFalse())
			adopt := func(uid string) error {
				return e.store.Apply(ctx, id, nil, &store.Adopt{ObjectUID: "uid-2", NamespaceUID: uid, Name: "n", Agent: "a"})
			}
			Expect(adopt("ns-2")).To(MatchError(store.ErrNotRetained))
			Expect(e.store.RetainedBefore(ctx, e.now(), 10)).To(BeEmpty())
			e.clock.Step(time.Hour)
			e.apply(ctx, other, &store.Retain{})
			Expect(e.store.RetainedBefore(ctx, e.now(), 10)).To(HaveExactElements(HaveField("ID", id)))
			e.apply(ctx, other, &store.MarkForPurge{})
			Expect(e.store.RetainedBefore(ctx, 0, 10)).To(HaveExactElements(HaveField("ID", other)), "its purge was interrupted")
			Expect(adopt("ns-1")).To(Succeed())
			Expect(e.info(ctx, id)).To(HaveValue(And(HaveField("NamespaceUID", "ns-1"), HaveField("RetainedAt", BeZero()))))
			Expect(e.store.RetainedBefore(ctx, e.now(), 10)).To(HaveExactElements(HaveField("ID", other)))
		})

		It("is not found by the lists and searches of a later namespace", Label("THR-16", "THR-15"), func(ctx SpecContext) {
			old, unknown, here := e.threadIn(ctx, "n"), e.threadIn(ctx, "n"), e.threadIn(ctx, "n")
			for _, id := range []string{old, unknown, here} {
				e.say(ctx, id, "remember")
			}
			e.apply(ctx, old, &store.Retain{NamespaceUID: "ns-1"})
			e.apply(ctx, unknown, &store.Retain{})
			found := func(uids []string) []string {
				GinkgoHelper()
				hits, _, err := e.store.Search(ctx, store.SearchQuery{Text: "remember", NamespaceUIDs: uids})
				Expect(err).NotTo(HaveOccurred())
				var ids []string
				for _, h := range hits {
					ids = append(ids, h.ThreadID)
				}
				for _, q := range []store.ThreadQuery{
					{}, {Namespace: "n"}, {Namespace: "n", Agent: e.info(ctx, here).Agent}, {Archived: store.ArchivedShown},
					{After: &store.ThreadCursor{LastActivityAt: e.now() + 1, ID: old}},
				} {
					q.NamespaceUIDs = uids
					Expect(e.list(ctx, q)).To(ConsistOf(ids), "%+v", q)
				}
				for _, id := range []string{old, unknown, here} {
					Expect(e.info(ctx, id).WithinAny(uids)).To(Equal(slices.Contains(ids, id)))
				}
				return ids
			}
			Expect(found(nil)).To(ConsistOf(old, unknown, here))
			Expect(found([]string{"ns-2", "ns-1"})).To(ConsistOf(old, unknown, here))
			Expect(found([]string{"ns-2"})).To(ConsistOf(unknown, here))
			Expect(found([]string{"ns-2", "ns-3"})).To(ConsistOf(unknown, here))
			Expect(found([]string{})).To(ConsistOf(unknown, here))
		})

		It("refuses to adopt a thread that is being purged", Label("THR-09"), func(ctx SpecContext) {
			id := e.thread(ctx)
			e.apply(ctx, id, &store.Retain{})
			e.apply(ctx, id, &store.MarkForPurge{})
			Expect(e.store.Apply(ctx, id, nil, &store.Adopt{ObjectUID: "uid-2", Name: "n", Agent: "a"})).To(MatchError(store.ErrNotRetained))
			Expect(e.store.Retained(ctx, e.info(ctx, id).Namespace, "", 10, 0)).To(HaveLen(1), "an interrupted purge can be repeated")
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			_, err = e.store.Thread(ctx, id)
			Expect(err).To(MatchError(store.ErrNotFound))
		})
	})
}
