package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// describeForeign checks that a backup that was damaged or made up reaches nothing of another namespace, and that two restores of one
// backup do not disturb each other.
func (b *backups) describeForeign() {
	Context("that is not what it should be, or is restored twice at once", func() {
		var c copied
		var ids []string
		var victim string
		BeforeEach(func(ctx SpecContext) {
			ids = b.everything(ctx)
			c = b.read(ctx, &b.source, "default")
			victim = "00000000-0000-4000-8000-00000000beef"
			_, _, err := b.target.store.CreateThread(ctx, store.Thread{ID: victim, Namespace: "victim", Name: "v", Agent: "a"})
			Expect(err).NotTo(HaveOccurred())
		})

		// names makes the first row of a table that has a text in a column name the thread of the victim there.
		names := func(table, column string, wanted func(map[string]any) bool) {
			GinkgoHelper()
			for i, r := range c.rows {
				var fields map[string]any
				Expect(json.Unmarshal(r.Data, &fields)).To(Succeed())
				if r.Table != table || !wanted(fields) {
					continue
				}
				fields[column] = victim
				data, err := json.Marshal(fields)
				Expect(err).NotTo(HaveOccurred())
				c.rows = slices.Clone(c.rows)
				c.rows[i].Data = data
				return
			}
			Fail("no such row of table " + table)
		}
		first := func(map[string]any) bool { return true }
		refused := func(err error, text string) {
			GinkgoHelper()
			var wrong *store.BackupError
			Expect(errors.As(err, &wrong)).To(BeTrue(), "%v", err)
			Expect(wrong.Message).To(And(ContainSubstring(text), Not(ContainSubstring("victim"))))
		}

		DescribeTable("ties no thread of another namespace", func(ctx SpecContext, table, column string) {
			before := answers(ctx, b.target.store, victim)
			names(table, column, first)
			b.send(ctx, c)
			refused(b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows), "a row of table "+table+" names thread "+victim+" of another namespace")
			Expect(b.target.store.Threads(ctx, store.ThreadQuery{Namespace: "default"})).To(BeEmpty())
			Expect(answers(ctx, b.target.store, victim)).To(Equal(before))
		},
			Entry("as a parent", "thread", "parent_id"),
			Entry("as the root of a tree", "thread", "root_id"),
			Entry("as the origin of a fork", "thread", "origin_id"),
			Entry("as related", "relationship", "peer"),
			Entry("as the parent of a child that is to be", "child_task", "parent_id"),
			Entry("by what it used", "usage_sum", "thread_id"),
			Entry("by what the parent used", "usage_sum", "parent_id"),
			Entry("by what the tree used", "usage_sum", "root_id"),
		)

		DescribeTable("writes nothing for a thread that has not arrived", func(ctx SpecContext, table, column string) {
			names(table, column, first)
			var err error
			for _, r := range c.rows {
				if err = b.target.store.RestoreRows(ctx, b.restore, []store.BackupRow{r}); err != nil {
					break
				}
			}
			refused(err, "a row of table "+table+" belongs to thread "+victim+", which has not arrived")
		},
			Entry("of messages", "message", "thread"),
			Entry("of what a fork reads", "message_segment", "source"),
			Entry("of arguments of effects", "effect_args", "thread_id"),
		)

		It("gives no firing to a thread of another namespace", func(ctx SpecContext) {
			names("effect_firing", "thread_id", func(f map[string]any) bool { return f["effect_id"] == "e-once" })
			b.send(ctx, c)
			b.finish(ctx, c)
			b.adopt(ctx, ids[0])
			refused(b.target.store.BindEffects(ctx, b.restore, map[string]string{"e-once": "n-once"}), "a row of table effect_firing names thread "+victim)
			Expect(b.target.store.PendingFirings(ctx)).To(BeEmpty())
		})

		It("reads no contents that were not sent, even if another namespace has them", func(ctx SpecContext) {
			op := putFile("/secret.txt", 1)
			b.target.apply(ctx, victim, op)
			for piece := range slices.Chunk(c.rows, 50) {
				Expect(b.target.store.RestoreRows(ctx, b.restore, piece)).To(Succeed())
			}
			var missing *store.MissingContentsError
			err := b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)
			Expect(errors.As(err, &missing)).To(BeTrue(), "%v", err)
			Expect(missing.Digests).To(ConsistOf(digest(1), digest(2)))

			for _, x := range c.sum.Contents {
				x.Object = "sent/" + x.Digest
				_, err := b.target.store.RestoreContents(ctx, b.restore, x, justNow)
				Expect(err).NotTo(HaveOccurred())
			}
			b.finish(ctx, c)
		})

		It("takes no more rows once it was finished, and says so", func(ctx SpecContext) {
			b.send(ctx, c)
			b.finish(ctx, c)
			Expect(b.target.store.RestoreRows(ctx, b.restore, c.rows)).To(MatchError(store.ErrRestored))
			x := c.sum.Contents[0]
			x.Object = "again"
			_, err := b.target.store.RestoreContents(ctx, b.restore, x, justNow)
			Expect(err).To(MatchError(store.ErrRestored))
			for _, id := range ids {
				Expect(answers(ctx, b.target.store, id)).To(Equal(answers(ctx, b.source.store, id)))
			}
		})

		It("can be sent by two at once", func(ctx SpecContext) {
			done := make(chan error)
			for range 2 {
				go func() {
					defer GinkgoRecover()
					done <- b.sendAll(ctx, c)
				}()
			}
			first, second := <-done, <-done
			if first != nil {
				first, second = second, first
			}
			Expect(first).NotTo(HaveOccurred())
			Expect(second).To(Or(BeNil(), MatchError(store.ErrRestored)))
			for _, id := range ids {
				Expect(answers(ctx, b.target.store, id)).To(Equal(answers(ctx, b.source.store, id)))
			}
		})
	})
}

// sendAll sends the rows and the contents, and finishes the restore.
func (b *backups) sendAll(ctx context.Context, c copied) error {
	for piece := range slices.Chunk(c.rows, 7) {
		if err := b.target.store.RestoreRows(ctx, b.restore, piece); err != nil {
			return err
		}
	}
	for _, x := range c.sum.Contents {
		x.Object = "sent/" + x.Digest
		if _, err := b.target.store.RestoreContents(ctx, b.restore, x, justNow); err != nil {
			return err
		}
	}
	return b.target.store.FinishRestore(ctx, b.restore, c.sum.Rows)
}
