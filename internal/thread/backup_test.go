package thread_test

import (
	"bytes"
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("a backup", Label("K8S-09"), func() {
	It("reads the contents of files that are removed meanwhile, which go later", func(ctx SpecContext) {
		e := newEnv(ctx)
		st := e.create(ctx, "t")
		write(ctx, st, "/gone", "was here")
		b, err := e.BeginBackup(ctx)
		Expect(err).NotTo(HaveOccurred())
		sum, err := b.Rows(ctx, "default", func(store.BackupRow) error { return nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(st.Unlink(ctx, "/gone")).To(Succeed())
		Expect(e.Purge(ctx, "t")).To(Succeed())
		e.clock.Step(time.Minute)
		Expect(e.Sweep(ctx)).To(BeZero())
		var out bytes.Buffer
		Expect(b.Contents(ctx, sum.Contents[0], &out)).To(Succeed())
		Expect(out.String()).To(Equal("was here"))
		b.Close()
		for range 2 {
			_, err = e.Sweep(ctx)
			Expect(err).NotTo(HaveOccurred())
			e.clock.Step(48 * time.Hour)
		}
		Expect(e.objects()).To(BeEmpty())
		Expect(b.Contents(ctx, sum.Contents[0], &out)).To(MatchError(ContainSubstring("are not in the bucket")))
	})

	It("is not needed for threads whose object is gone; those with one are left alone", func(ctx SpecContext) {
		e := newEnv(ctx)
		for _, id := range []string{"c", "a", "b", "lost", "kept"} {
			e.create(ctx, id)
		}
		exists := func(_ context.Context, name, uid string) (bool, error) {
			return name != "lost" && name != "b" && uid == name, nil
		}
		found, more, err := e.Orphans(ctx, "default", "", 1, exists)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(HaveField("ID", "b")))
		Expect(more).To(BeTrue())
		found, more, err = e.Orphans(ctx, "default", "b", 1, exists)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(HaveField("ID", "lost")))
		Expect(more).To(BeFalse())
		Expect(e.RetainOrphan(ctx, "default", "kept", exists)).To(MatchError(store.ErrNotRetained))
		Expect(e.RetainOrphan(ctx, "other", "lost", exists)).To(MatchError(store.ErrNotFound))
		for range 2 {
			Expect(e.RetainOrphan(ctx, "default", "lost", exists)).To(Succeed())
		}
		Expect(e.Store().Retained(ctx, "default", "", 0, 0)).To(ConsistOf(HaveField("ID", "lost")))
	})
})
