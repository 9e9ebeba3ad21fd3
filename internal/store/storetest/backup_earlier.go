package storetest

import (
	"bytes"
	_ "embed"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// earlierRows are the rows of a backup that a release with schema 32 made of what everything had made. It had the tables and columns of
// the first release that made backups, whose schema is store.OldestBackup. So this stays as it is until that is raised.
//
//go:embed testdata/backup-schema-32.jsonl
var earlierRows []byte

// describeEarlier checks a backup that an earlier release made.
func (b *backups) describeEarlier() {
	It("of an earlier release is restored", func(ctx SpecContext) {
		c := copied{sum: &store.BackupSummary{Rows: map[string]int64{}, Contents: []store.BackupContents{{Digest: digest(1), Size: 1}, {Digest: digest(2), Size: 2}}}}
		for line := range bytes.Lines(earlierRows) {
			var r store.BackupRow
			Expect(json.Unmarshal(line, &r)).To(Succeed())
			c.rows = append(c.rows, r)
			c.sum.Rows[r.Table]++
		}
		b.send(ctx, c)
		b.finish(ctx, c)
		s := b.target.store
		id := func(suffix string) string { return "00000000-0000-4000-8000-00000000" + suffix }
		root, child, fork, second, imported, retained := id("0001"), id("c001"), id("f001"), id("f002"), id("0003"), id("0004")
		said := func(thread string) (texts []string) {
			GinkgoHelper()
			page, err := s.Messages(ctx, thread, store.MessageQuery{Order: "asc", Limit: 1000, IncludeSilent: true, AllDepths: true})
			Expect(err).NotTo(HaveOccurred())
			for _, m := range page.Messages {
				texts = append(texts, *m.Content)
			}
			return texts
		}
		Expect(said(root)).To(And(HaveLen(22), ContainElements("hello 0", "hello 19", "remember me", "of a page")))
		Expect(said(child)).To(Equal([]string{"I am the child"}))
		Expect(said(fork)).To(Equal([]string{"will be a remnant", "own"}))
		Expect(said(second)).To(Equal([]string{"hello 0", "hello 1", "hello 2", "hello 3"}))
		Expect(said(imported)).To(Equal([]string{"imported"}))
		Expect(said(retained)).To(Equal([]string{"kept"}))
		Expect(s.Files(ctx, root, "/", true)).To(HaveLen(3))
		Expect(s.Value(ctx, root, "v0")).To(MatchJSON(`{"deep":[1,2]}`))
		Expect(s.Env(ctx, root)).To(ConsistOf(And(HaveField("Name", "TOKEN"), HaveField("Value", []byte{0, 255, 1}))))
		Expect(s.Inbox(ctx, root)).To(HaveLen(2))
		Expect(s.Usage(ctx, store.UsageQuery{ThreadID: root, Subtree: true})).To(HaveField("InputTokens", int64(10)))
		Expect(s.GetKV(ctx, store.Namespace{Name: "default"}, "cache", "k")).To(HaveField("Value", MatchJSON(`[1]`)))
		Expect(s.LivingChildren(ctx, "default", root)).To(Equal(map[string]int{"helper": 1}))

		b.adopt(ctx, root, child, fork, second, imported)
		Expect(s.Runnable(ctx, 100)).To(ContainElements(root, child))
		Expect(s.BindEffects(ctx, b.restore, map[string]string{"e-once": "n-once", "e-daily": "n-daily"})).To(Succeed())
		Expect(s.PendingFirings(ctx)).To(HaveKeyWithValue("default", int64(2)))
		b.target.apply(ctx, root, &store.Dequeue{Seqs: []int64{32}})
		Expect(s.SweepInboxKeys(ctx, b.target.now(), 10)).To(BeZero(), "the age of a key counts from the restore if the backup does not have it")
		for _, thread := range []string{retained, imported, second, fork, child, root} {
			_, err := s.PurgeThread(ctx, thread)
			Expect(err).NotTo(HaveOccurred())
		}
	})
}
