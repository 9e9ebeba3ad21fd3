package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/store"
)

func (b *backups) describeWhole() {
	It("has every table, and gives the same answers after its restore", func(ctx SpecContext) {
		ids := b.everything(ctx)
		other := b.source.threadIn(ctx, "other")
		c := b.read(ctx, &b.source, "default")
		Expect(c.sum.KeyIDs).To(Equal([]uint32{4242}))
		Expect(c.sum.Contents).To(HaveLen(2))
		Expect(c.sum.Schema).To(BeNumerically(">=", 28))
		for name := range b.tables {
			Expect(c.sum.Rows).To(HaveKeyWithValue(name, BeNumerically(">", 0)), "everything makes no row of table %s: make one, so that this test restores it", name)
		}
		for _, r := range c.rows {
			Expect(string(r.Data)).NotTo(ContainSubstring(other))
		}

		b.send(ctx, c)
		for _, id := range ids {
			_, err := b.target.store.Thread(ctx, id)
			Expect(err).To(MatchError(store.ErrNotFound), "nothing is visible before all of it is there")
		}
		Expect(b.target.store.Threads(ctx, store.ThreadQuery{})).To(BeEmpty())
		Expect(b.target.store.Namespaces(ctx)).To(BeEmpty())
		b.finish(ctx, c)

		for _, id := range ids {
			Expect(answers(ctx, b.target.store, id)).To(Equal(answers(ctx, b.source.store, id)))
		}
		Expect(b.target.store.Runnable(ctx, 100)).To(BeEmpty(), "no replica takes up a thread that has no object")
		counted, stored, err := b.target.sums(ctx, "default")
		Expect(err).NotTo(HaveOccurred())
		Expect(counted).To(And(Equal(stored), BeNumerically(">", 0)), "the bytes of messages, also of those that only a fork reads")
		v, err := b.target.store.GetKV(ctx, store.Namespace{Name: "default"}, "cache", "k")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(v.Value)).To(MatchJSON(`[1]`))
		_, digest, err := b.source.store.ChildTask(ctx, ids[0]+"-1")
		Expect(err).NotTo(HaveOccurred())
		_, same, err := b.target.store.ChildTask(ctx, ids[0]+"-1")
		Expect(err).NotTo(HaveOccurred())
		Expect(same).To(Equal(digest))

		b.adopt(ctx, ids[:5]...)
		root, child := b.target.info(ctx, ids[0]), b.target.info(ctx, ids[1])
		Expect([]any{root.BelongsTo(newUID(ids[0])), root.Title, root.Agent}).To(Equal([]any{true, "Set by code", "helper"}), "the object's spec does not undo what happened since it was written")
		Expect([]any{child.ParentID, child.RootID, child.Depth, child.RegistryStatus, child.Child.ToolCallID}).To(Equal([]any{ids[0], ids[0], 1, "running", "c1"}))
		Expect(b.target.info(ctx, ids[5]).RetainedAt).NotTo(BeZero(), "what was retained before stays so")
		Expect(b.target.store.Runnable(ctx, 100)).To(ContainElements(ids[0], ids[1]), "what waited and what was under way goes on")
		Expect(b.target.store.Nearest(ctx, store.NearestQuery{Namespace: "default", Agent: "helper", Space: "s", Vector: []float32{1, 2}})).To(HaveLen(1))
		again := &store.Once{Key: "once", Fingerprint: "f"}
		b.target.apply(ctx, ids[0], again)
		Expect(again.Existed).To(BeTrue())
		fence, err := b.target.store.Acquire(ctx, ids[0], "someone", time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(fence.Epoch).To(BeNumerically(">", 1), "a holder of before the backup is shut out")
		b.target.apply(ctx, ids[2], &store.DeleteMessage{ID: "none"})
		for _, id := range slices.Backward(ids[:5]) {
			_, err := b.target.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("can be restored beside a thread of the same database that was purged", func(ctx SpecContext) {
		ids := b.everything(ctx)
		c := b.read(ctx, &b.source, "default")
		want := map[string]string{}
		for _, id := range ids {
			want[id] = answers(ctx, b.source.store, id)
		}
		state, err := b.source.store.RestoreState(ctx, b.restore, ids)
		Expect(err).NotTo(HaveOccurred())
		Expect(state.Taken).To(Equal(ids))
		for _, id := range slices.Backward(ids) {
			_, err := b.source.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
		}
		b.target.store, b.source.store = b.source.store, b.target.store
		b.send(ctx, c)
		b.finish(ctx, c)
		b.target.store, b.source.store = b.source.store, b.target.store
		for _, id := range ids {
			Expect(withoutUsage(answers(ctx, b.source.store, id))).To(Equal(withoutUsage(want[id])))
		}
	})
}

// withoutUsage leaves out the sums: those of a purged thread stay with its agent.
func withoutUsage(answers string) string {
	_, rest, _ := strings.Cut(answers, "\n")
	return rest
}

func (b *backups) describeAny() {
	It("of any sequence of forks and edits is the same after its restore", func(ctx SpecContext) {
		round := 0
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			round++
			f := newForkModel(ctx, b.source.store, round, b.target.sums)
			f.create(t, nil)
			t.Repeat(map[string]func(*rapid.T){
				"append": f.append, "burst": f.burst, "update": f.update, "delete": f.delete, "fork": f.fork, "truncate": f.truncate,
				"purge": f.purge, "destroy": f.destroy, "relate": f.relate,
			})
			b.restore = store.Restore{ID: fmt.Sprint("round-", round), Namespace: "n"} // of the model's threads
			c := b.read(ctx, &b.source, "n")
			b.send(ctx, c)
			b.finish(ctx, c)
			for _, thread := range f.threads {
				if have, want := answers(ctx, b.target.store, thread.id), answers(ctx, b.source.store, thread.id); have != want {
					t.Fatalf("thread %s after %v:\n%s\nwas\n%s", thread.id, f.did, have, want)
				}
			}
			for _, thread := range f.threads {
				b.adopt(ctx, thread.id)
			}
			f.store = b.target.store
			f.check(t)
			f.truncate(t)
			f.check(t)
			for _, thread := range f.threads {
				for _, s := range []store.Store{b.source.store, b.target.store} {
					if _, err := s.PurgeThread(ctx, thread.id); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	})
}

func (b *backups) describeSteps() {
	It("is refused when rows or contents are missing, or were not made for this release", func(ctx SpecContext) {
		b.everything(ctx)
		c := b.read(ctx, &b.source, "default")
		var wrong *store.BackupError
		Expect(errors.As(b.target.store.RestoreRows(ctx, b.restore, []store.BackupRow{{Table: "nothing", Data: json.RawMessage(`{}`)}}), &wrong)).To(BeTrue())
		Expect(wrong.Message).To(ContainSubstring(`a table "nothing", which this release does not have`))
		for data, text := range map[string]string{`{"thread":"x"}`: "no column", `{"thread":"x","key":"k","value":"1","updated_at":1,"new":1}`: "a column new", `{"thread":"x","key":"k","value":"1","updated_at":"1"}`: "cannot be read", `[]`: "not an object"} {
			err := b.target.store.RestoreRows(ctx, b.restore, []store.BackupRow{{Table: "kv", Data: json.RawMessage(data)}})
			Expect(errors.As(err, &wrong)).To(BeTrue(), data)
			Expect(wrong.Message).To(ContainSubstring(text))
		}
		lone := slices.IndexFunc(c.rows, func(r store.BackupRow) bool { return r.Table == "kv" })
		Expect(b.target.store.RestoreRows(ctx, b.restore, c.rows[lone:lone+1])).NotTo(Succeed(), "its thread is not there")

		short := c
		short.rows = slices.Concat(c.rows[:lone], c.rows[lone+1:])
		b.send(ctx, short)
		err := b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)
		Expect(errors.As(err, &wrong)).To(BeTrue())
		Expect(wrong.Message).To(Equal("0 rows of table kv have arrived of 1: send the rows of the backup again"))
		Expect(b.target.store.Threads(ctx, store.ThreadQuery{})).To(BeEmpty())

		freed, err := b.target.store.AbandonRestore(ctx, b.restore)
		Expect(err).NotTo(HaveOccurred())
		Expect(freed).To(HaveLen(2))
		for piece := range slices.Chunk(c.rows, 50) {
			Expect(b.target.store.RestoreRows(ctx, b.restore, piece)).To(Succeed())
		}
		var missing *store.MissingContentsError
		Expect(errors.As(b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows), &missing)).To(BeTrue())
		Expect(missing.Digests).To(HaveLen(2))
		_, err = b.target.store.RestoreContents(ctx, b.restore, store.BackupContents{Digest: digest(77), Object: "o", Size: 1}, justNow)
		Expect(err).To(MatchError(store.ErrNotFound))
		b.send(ctx, c)
		b.finish(ctx, c)
	})

	It("is finished once, also without threads that had an object, and is known to be", func(ctx SpecContext) {
		s, ns := b.source.store, store.Namespace{Name: "default"}
		Expect(s.SetKV(ctx, ns, "cache", store.KVEntry{Key: "k", Value: json.RawMessage(`1`)})).To(Succeed())
		var ids []string
		for _, with := range []string{"nothing", "a retained thread", "a living one too"} {
			switch with {
			case "a retained thread":
				ids = append(ids, b.source.thread(ctx))
				b.source.say(ctx, ids[0], "kept")
				b.source.apply(ctx, ids[0], &store.Retain{})
			case "a living one too":
				ids = append(ids, b.source.thread(ctx))
			}
			b.restore.ID = strings.ReplaceAll(with, " ", "-")
			c := b.read(ctx, &b.source, "default")
			b.send(ctx, c)
			Expect(b.target.store.RestoreState(ctx, b.restore, ids)).To(And(HaveField("Finished", false), HaveField("Taken", BeEmpty())), with)
			Expect(b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)).To(Succeed())
			Expect(b.target.store.SetKV(ctx, ns, "cache", store.KVEntry{Key: "k", Value: json.RawMessage(`2`)})).To(Succeed())
			for range 2 {
				Expect(b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)).To(Succeed(), with)
			}
			Expect(b.target.store.GetKV(ctx, ns, "cache", "k")).To(HaveField("Value", MatchJSON(`2`)), "nothing is restored again")
			state, err := b.target.store.RestoreState(ctx, b.restore, ids)
			Expect(err).NotTo(HaveOccurred())
			Expect(state).To(HaveValue(And(HaveField("Taken", BeEmpty()), HaveField("Finished", len(ids) > 0), HaveField("Restored", BeEquivalentTo(max(0, len(ids)-1))))), with)
			if len(ids) > 0 {
				Expect(b.target.store.RestoreRows(ctx, b.restore, c.rows)).To(MatchError(store.ErrRestored), with)
			}
			other := b.restore
			other.ID = "another"
			Expect(b.target.store.RestoreState(ctx, other, ids)).To(HaveField("Taken", HaveLen(len(ids))))
			for _, id := range ids {
				_, err := b.target.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			b.send(ctx, c) // what is gone can be restored again
			Expect(b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)).To(Succeed(), with)
			if len(ids) > 0 {
				b.adopt(ctx, ids[0])
				Expect(b.target.info(ctx, ids[0])).To(HaveField("Agent", "of the spec"), "it is adopted as any other retained thread")
			}
			for _, id := range ids {
				_, err := b.target.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
		}
	})

	It("does not touch the threads of others", func(ctx SpecContext) {
		ids := b.everything(ctx)
		c := b.read(ctx, &b.source, "default")
		_, _, err := b.target.store.CreateThread(ctx, store.Thread{ID: ids[0], Namespace: "victim", Name: "v", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		before := answers(ctx, b.target.store, ids[0])
		state, err := b.target.store.RestoreState(ctx, b.restore, ids)
		Expect(err).NotTo(HaveOccurred())
		Expect(state.Taken).To(Equal(ids[:1]))
		Expect(b.target.store.RestoreRows(ctx, b.restore, c.rows)).NotTo(Succeed())
		Expect(answers(ctx, b.target.store, ids[0])).To(Equal(before))
	})

	It("keeps objects of the bucket while it is made", func(ctx SpecContext) {
		Expect(b.source.store.ContentsHeld(ctx)).To(BeFalse())
		Expect(b.source.store.PinContents(ctx, "x", time.Minute)).To(Succeed())
		Expect(b.source.store.PinContents(ctx, "x", time.Minute)).To(Succeed())
		Expect(b.source.store.ContentsHeld(ctx)).To(BeTrue())
		b.source.clock.Step(2 * time.Minute)
		Expect(b.source.store.ContentsHeld(ctx)).To(BeFalse())
		Expect(b.source.store.PinContents(ctx, "y", time.Minute)).To(Succeed())
		Expect(b.source.store.PinContents(ctx, "y", 0)).To(Succeed())
		Expect(b.source.store.ContentsHeld(ctx)).To(BeFalse())
	})

	It("counts children as before, until they are purged or adopted and end", Label("SUB-03"), func(ctx SpecContext) {
		s, target := b.source.store, &b.target
		parent := b.source.thread(ctx)
		attach := func(kind string) string {
			GinkgoHelper()
			id := b.source.thread(ctx)
			Expect(s.Apply(ctx, id, nil, &store.Attach{ParentID: parent, Reference: "ref-" + kind, Agent: "helper", Child: store.Child{Name: kind},
				RegistryStatus: func(*store.Run) string { return "pending" }})).To(Succeed())
			return id
		}
		earlier := attach("declared")
		b.source.apply(ctx, earlier, &store.Retain{})
		_, err := s.ReserveChild(ctx, store.ChildTask{ID: "made", ParentID: parent, Reference: "ref-made", Namespace: "default", Kind: "made", Agent: "helper"}, nil)
		Expect(err).NotTo(HaveOccurred())
		made := attach("made")
		living := Equal(map[string]int{"declared": 1, "made": 1})
		for _, adopt := range []bool{false, true} {
			child := attach("declared")
			Expect(s.LivingChildren(ctx, "default", parent)).To(living)
			c := b.read(ctx, &b.source, "default")
			b.send(ctx, c)
			b.finish(ctx, c)
			Expect(target.store.LivingChildren(ctx, "default", parent)).To(living)
			purge := func(id string) {
				GinkgoHelper()
				_, err := target.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			purge(earlier)
			Expect(target.store.LivingChildren(ctx, "default", parent)).To(living, "what was retained had left its place")
			if adopt {
				b.adopt(ctx, child)
				Expect(target.store.LivingChildren(ctx, "default", parent)).To(living)
				target.apply(ctx, child, &store.Terminate{})
				Expect(target.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"made": 1}))
			}
			purge(child)
			Expect(target.store.LivingChildren(ctx, "default", parent)).To(Equal(map[string]int{"made": 1}))
			purge(made)
			Expect(target.store.LivingChildren(ctx, "default", parent)).To(BeEmpty())
			purge(parent)
			b.source.apply(ctx, child, &store.Retain{})
		}
	})

	It("leaves a thread whose object is gone to be retained, once", func(ctx SpecContext) {
		id := b.source.thread(ctx)
		b.source.say(ctx, id, "hello")
		Expect(b.source.store.Orphan(ctx, id, "another")).To(MatchError(store.ErrNotRetained))
		Expect(b.source.store.Orphan(ctx, id, id)).To(Succeed())
		Expect(b.source.info(ctx, id).RetainedAt).NotTo(BeZero())
		Expect(b.source.store.Orphan(ctx, id, id)).To(MatchError(store.ErrNotRetained))
	})
}

func (b *backups) describeEffects() {
	It("fires nothing that has fired, and keeps the keys of what was tried", func(ctx SpecContext) {
		ids := b.everything(ctx)
		s := b.source.store
		claimed, err := s.ClaimFirings(ctx, "worker", time.Minute, map[string]int{"default": 10})
		Expect(err).NotTo(HaveOccurred())
		Expect(claimed).To(HaveLen(2))
		for _, f := range claimed {
			if f.EffectID == "e-daily" {
				Expect(s.FinishFiring(ctx, store.FiringEnd{Key: f.Key(), Namespace: "default", Epoch: f.Epoch, Status: store.FiringSucceeded})).To(Succeed())
			}
		}
		c := b.read(ctx, &b.source, "default")
		b.send(ctx, c)
		b.finish(ctx, c)
		Expect(b.target.store.PendingFirings(ctx)).To(BeEmpty())
		uids := map[string]string{"e-once": "n-once", "e-daily": "n-daily"}
		Expect(b.target.store.BindEffects(ctx, b.restore, uids)).To(MatchError(store.ErrRetained))
		b.adopt(ctx, ids[0])
		for range 2 {
			Expect(b.target.store.BindEffects(ctx, b.restore, uids)).To(Succeed())
		}
		state, err := b.target.store.RestoreState(ctx, b.restore, ids)
		Expect(err).NotTo(HaveOccurred())
		Expect(state.Effects).To(BeFalse())

		again, err := b.target.store.ClaimFirings(ctx, "worker", time.Minute, map[string]int{"default": 10})
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(HaveLen(1))
		Expect([]any{again[0].EffectID, again[0].KeyedBy, again[0].ThreadID, again[0].Attempts}).To(Equal([]any{"n-once", "e-once", ids[0], 2}))
		recorded, err := b.target.store.RecordFiring(ctx, store.Firing{EffectID: "n-once", Due: 5, ThreadID: ids[0], Namespace: "default"})
		Expect(err).NotTo(HaveOccurred())
		Expect(recorded).To(BeFalse())
		schedule, err := b.target.store.EffectSchedule(ctx, "n-daily")
		Expect(err).NotTo(HaveOccurred())
		Expect([]any{schedule.Cursor, schedule.Fired, schedule.Skipped}).To(Equal([]any{int64(10), int64(2), int64(1)}))
		Expect(b.target.store.EffectSkips(ctx, "n-daily", 10)).To(HaveLen(1))
		Expect(b.target.store.Firing(ctx, store.FiringKey{EffectID: "n-daily", Due: 9})).To(HaveField("Status", store.FiringSucceeded))
		Expect(b.target.store.EffectArgs(ctx, ids[0], "args-1")).To(MatchJSON(`{"a":2}`))
	})
}
