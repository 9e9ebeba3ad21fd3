package thread_test

import (
	"bytes"
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
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

	It("restores contents whose object is missing, though another file has them", func(ctx SpecContext) {
		rows, sum := backedUp(ctx)
		e := newEnv(ctx)
		other := e.create(ctx, "other")
		write(ctx, other, "/same", "of a backup")
		Expect(e.bucket.Delete(ctx, e.objects()[0])).To(Succeed())
		Expect(e.store.RestoreRows(ctx, toDefault, rows)).To(Succeed())
		Expect(e.RestoreContents(ctx, toDefault, sum.Contents[0].Digest, strings.NewReader("of a backup"))).To(Succeed())
		for _, st := range []*thread.State{restored(ctx, e, sum), other} {
			data, _ := read(ctx, st, "/same")
			Expect(data).To(Equal("of a backup"))
		}
		Expect(e.objects()).To(HaveLen(1))
	})

	It("restores contents whose first upload was stored without an answer", func(ctx SpecContext) {
		rows, sum := backedUp(ctx)
		e := newEnv(ctx)
		breaks := &unanswered{Store: e.store}
		svc := thread.NewService(thread.Options{Store: breaks, Blobs: e.bucket, Clock: e.clock})
		Expect(e.store.RestoreRows(ctx, toDefault, rows)).To(Succeed())
		send := func() error {
			return svc.RestoreContents(ctx, toDefault, sum.Contents[0].Digest, strings.NewReader("of a backup"))
		}
		Expect(send()).To(MatchError(store.ErrUnavailable))
		Expect(e.objects()).To(HaveLen(1), "the row may refer to it")
		Expect(send()).To(Succeed())
		data, _ := read(ctx, restored(ctx, e, sum), "/same")
		Expect(data).To(Equal("of a backup"))
	})

	It("keeps no contents that a restore refuses", func(ctx SpecContext) {
		rows, sum := backedUp(ctx)
		e := newEnv(ctx)
		Expect(e.RestoreContents(ctx, toDefault, sum.Contents[0].Digest, strings.NewReader("of a backup"))).
			To(MatchError(ContainSubstring("send the rows first")))
		Expect(e.store.RestoreRows(ctx, toDefault, rows)).To(Succeed())
		Expect(e.RestoreContents(ctx, toDefault, sum.Contents[0].Digest, strings.NewReader("other bytes"))).
			To(MatchError(ContainSubstring("the backup is damaged")))
		Expect(e.objects()).To(BeEmpty())
		Expect(e.RestoreContents(ctx, toDefault, sum.Contents[0].Digest, strings.NewReader("of a backup"))).To(Succeed())
		st := restored(ctx, e, sum)
		Expect(st.Unlink(ctx, "/same")).To(Succeed())
		Expect(e.RestoreContents(ctx, toDefault, sum.Contents[0].Digest, strings.NewReader("of a backup"))).To(MatchError(store.ErrRestored))
		Expect(e.objects()).To(BeEmpty())
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

// toDefault is the restore of the backup that backedUp returns.
var toDefault = store.Restore{ID: "b1", Namespace: "default"}

// backedUp returns the rows of a thread "t" whose file /same has the contents "of a backup".
func backedUp(ctx context.Context) (rows []store.BackupRow, sum *store.BackupSummary) {
	GinkgoHelper()
	e := newEnv(ctx)
	write(ctx, e.create(ctx, "t"), "/same", "of a backup")
	sum, err := e.store.Backup(ctx, store.Namespace{Name: "default"}, func(r store.BackupRow) error {
		r.Data = bytes.Clone(r.Data)
		rows = append(rows, r)
		return nil
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(sum.Contents).To(HaveLen(1))
	return rows, sum
}

// restored finishes a restore and returns its thread, which an object has adopted.
func restored(ctx context.Context, e *env, sum *store.BackupSummary) *thread.State {
	GinkgoHelper()
	Expect(e.store.FinishRestore(ctx, toDefault, sum.Rows)).To(Succeed())
	Expect(e.store.Apply(ctx, "t", nil, &store.Adopt{ObjectUID: "new", Name: "t", Agent: "helper"})).To(Succeed())
	return e.open(ctx, "t")
}

// unanswered is a store whose connection breaks once, after RestoreContents has committed.
type unanswered struct {
	store.Store
	broke bool
}

func (u *unanswered) RestoreContents(ctx context.Context, r store.Restore, c store.BackupContents, uploaded int64) ([]string, error) {
	freed, err := u.Store.RestoreContents(ctx, r, c, uploaded)
	if err == nil && !u.broke {
		u.broke = true
		return nil, store.ErrUnavailable
	}
	return freed, err
}
